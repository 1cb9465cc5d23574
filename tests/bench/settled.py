"""`kp-worker` of any tree for comparisons, which records each transaction and what it commits.

python -m bench.settled run --config worker.toml

It records at one place, where a transaction is settled, which trees of different age have alike.
"""

from __future__ import annotations

import os
import time
from typing import Any

from bench.process import KINDS, SAMPLE, SAMPLES
from support.child import start_child_in


def record_transactions(file: int) -> None:
    """Record the duration of each transaction, and what its records have waited since they arrived."""
    from knowledgepulse_kafka.commit_outcome import Committed
    from knowledgepulse_worker.lane.assignment import Assignment

    settle = Assignment.settle

    def record_settled(self: Assignment, prepared: Any, outcome: Any) -> Any:
        now, at = time.monotonic(), time.time()
        following = settle(self, prepared, outcome)
        if isinstance(outcome, Committed):
            complete = [record for share in prepared.shares for record in share.complete]
            scored = [getattr(record, "scored", record) for record in complete]  # until 0.5, they were one
            samples = [
                ("transaction", now - prepared.began),
                *(("end_to_end", at - record.record.timestamp_ms / 1000) for record in scored),
                *(("commit_wait", prepared.began - record.scored_at) for record in scored),
            ]
            packed = (SAMPLE.pack(KINDS.index(kind), at, seconds) for kind, seconds in samples)
            os.write(file, b"".join(packed))  # unbuffered, so that readers see all samples
        return following

    Assignment.settle = record_settled  # type: ignore[method-assign]


def main() -> None:
    start_child_in("bench.settled")
    record_transactions(os.open(os.environ[SAMPLES], os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    from knowledgepulse_worker.cli.entry import main as kp_worker

    kp_worker()


if __name__ == "__main__":
    main()
