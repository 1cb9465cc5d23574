"""`kp-worker` for measurements, which records every duration.

python -m bench.process run --config worker.toml

All samples of the metrics are also written to a file, so that quantiles need no buckets.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from support.child import start_child_in

SAMPLES = "BENCH_SAMPLES"
"""Environment variable with the file to append samples to."""

KINDS = ("scoring", "admission", "end_to_end", "transaction", "commit_wait")

SAMPLE = struct.Struct("<Bdd")
"""Index of the kind in KINDS, time of the sample (seconds since the epoch), and duration in seconds."""


def _write_down(file: int, kind: str, seconds: float) -> None:
    # Unbuffered, so that readers see all samples.
    os.write(file, SAMPLE.pack(KINDS.index(kind), time.time(), seconds))


def record_metrics(file: int) -> None:
    """Record the durations that are passed to the worker's metrics."""
    from knowledgepulse_worker.observe.trace_metrics import TraceMetrics

    scored, admitted, finished = TraceMetrics.scored, TraceMetrics.admitted, TraceMetrics.finished

    def record_scored(self: TraceMetrics, *arguments: Any) -> None:  # of the tree that is measured
        _write_down(file, "scoring", arguments[-1])
        scored(self, *arguments)

    def record_admitted(self: TraceMetrics, waited: float) -> None:
        _write_down(file, "admission", waited)
        admitted(self, waited)

    def record_finished(self: TraceMetrics, outcomes: Mapping[str, int], end_to_end: Iterable[float]) -> None:
        ended = list(end_to_end)
        for seconds in ended:
            _write_down(file, "end_to_end", seconds)
        finished(self, outcomes, ended)

    for name, method in (
        ("scored", record_scored),
        ("admitted", record_admitted),
        ("finished", record_finished),
    ):
        setattr(TraceMetrics, name, method)


def main() -> None:
    start_child_in("bench.process")
    record_metrics(os.open(os.environ[SAMPLES], os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    from knowledgepulse_worker.cli.entry import main as kp_worker

    run: Callable[[], Any] = kp_worker
    run()


if __name__ == "__main__":
    main()
