"""Whether this process may still own its partitions.

A group gives a member's partitions to others once it has heard nothing of it for a session. A process that
was suspended for so long knows nothing of that when it wakes, and would publish what it had begun, after its
successor has published the same records with scores of its own.
"""

from __future__ import annotations

import asyncio
import time

from worker.errors import DeliveryError

INTERVAL = 0.5
"""Seconds between two renewals."""


class Lease:
    """Is over for good once it was not renewed for too long.

    Args:
        seconds: that it lasts.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._renewed = time.monotonic()
        self._gap = 0.0

    async def keep(self) -> None:
        """Renew it while the event loop turns.

        Raises:
            DeliveryError: it is over.
        """
        while True:
            self.require()
            self._renewed = time.monotonic()
            await asyncio.sleep(INTERVAL)

    def require(self) -> None:
        """Raise a DeliveryError when it is over: nothing may be sent any more."""
        self._gap = max(self._gap, time.monotonic() - self._renewed)
        if self._gap > self._seconds:
            raise DeliveryError(
                f"nothing was done for {self._gap:.1f} s, as if suspended; after kafka.session_timeout "
                "others may own the partitions"
            )
