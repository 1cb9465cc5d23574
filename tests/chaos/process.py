"""`kp-worker` for the rows: it runs a child with a noisy embedder, and signals inject the child's faults.

python -m chaos.process run --config worker.toml
"""

from __future__ import annotations

import signal
import sys

from knowledgepulse_worker.cli.entry import main
from support.child import start_child_in

ORDERS = "CHAOS_ORDERS"
"""Environment variable with the file of the embedder's orders."""

WITHOUT = "CHAOS_WITHOUT"
"""Environment variable with the mechanism to switch off: `ledger`."""

HOLD_START = "CHAOS_HOLD_START"
"""Environment variable with a file. While it exists, no coordinator answers a child's starting producer."""

MUTE, UNMUTE = signal.SIGRTMIN, signal.SIGRTMIN + 1
"""Block a child's requests to the group coordinator only, and unblock them."""

HOLD = {"positions": signal.SIGRTMIN + 3, "commit": signal.SIGRTMIN + 4}
"""Hold a child's next transaction open before it sends the positions, or before it commits."""

RELEASE = signal.SIGRTMIN + 5
"""Let the transaction go on."""

HELD = "held a transaction open"
"""What a child logs when it holds a transaction."""


if __name__ == "__main__":
    start_child_in("chaos.process")
    if sys.argv[1] == "work":
        from chaos.child import install_faults  # the parent starts without these imports

        install_faults()
    main()
