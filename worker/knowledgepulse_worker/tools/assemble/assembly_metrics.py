"""Prometheus metrics of ``kp-worker assemble``."""

from __future__ import annotations

from collections.abc import Iterable

from knowledgepulse_schemas.dead_letter import REASONS
from knowledgepulse_worker.observe.metric_registry import CollectorRegistry, CommandMetrics, start_at_zero
from knowledgepulse_worker.tools.assemble.open_runs import COMPLETED_BY

SPAN_RESULTS = ("taken", "duplicate", "late")


class AssemblyMetrics(CommandMetrics):
    """All metrics of an assembler."""

    def __init__(self, registry: CollectorRegistry | None = None, group: str = "") -> None:
        super().__init__(registry, group)
        make = self._make
        spans = make.counter("kp_assembly_spans", "Spans that were read, by result", ["result"])
        self._runs = make.counter(
            "kp_assembly_runs", "Complete runs, including those without an agent", ["completed_by"]
        )
        self._traces = make.counter("kp_assembly_traces", "Traces published to the raw topic")
        self._dead_letters = make.counter(
            "kp_assembly_dead_letters", "Records and runs that could not be read", ["reason"]
        )
        self._open_runs = make.gauge("kp_assembly_open_runs", "Open runs", ["partition"])
        self._open_bytes = make.gauge("kp_assembly_open_bytes", "Bytes of open runs", ["partition"])
        self.partitions = make.gauge("kp_assembly_partitions", "Assigned partitions of the spans topic")
        # Bound once, as looking up labels for every record takes longer than counting.
        self._spans = [spans.labels(result) for result in SPAN_RESULTS]
        start_at_zero(self._runs, COMPLETED_BY)
        start_at_zero(self._dead_letters, REASONS)

    def read(self, taken: int, duplicates: int, late: int) -> None:
        """Count the spans of a record by result."""
        for spans, count in zip(self._spans, (taken, duplicates, late), strict=True):
            spans.inc(count)

    def completed(self, completed_by: str) -> None:
        """Count a complete run."""
        self._runs.labels(completed_by).inc()

    def published(self, traces: int, dead_letters: Iterable[str]) -> None:
        """Count the traces of a transaction, and its dead letters by reason."""
        self._traces.inc(traces)
        for reason in dead_letters:
            self._dead_letters.labels(reason).inc()

    def open_runs(self, partition: int, runs: int, size: int) -> None:
        """Set the number of a partition's open runs, and their bytes."""
        self._open_runs.labels(partition).set(runs)
        self._open_bytes.labels(partition).set(size)

    def partition_left(self, partition: int) -> None:
        """Remove the series of a partition that is no longer assigned."""
        for gauge in (self._open_runs, self._open_bytes):
            gauge.remove_by_labels({"partition": str(partition)})
