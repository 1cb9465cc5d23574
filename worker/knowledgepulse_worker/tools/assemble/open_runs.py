"""The open agent runs of a partition, without input or output, measured on record time.

A run consists of all spans with the same trace id. Nothing marks its end, so it is complete when one of the
conditions in :data:`CompletedBy` holds.

The time is the newest timestamp of the partition's records so far. It does not advance while nothing arrives;
a caller that has read the partition to its end may advance it with :meth:`OpenRuns.wait`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Literal, get_args

from knowledgepulse_worker.settings import AssembleSettings
from knowledgepulse_worker.tools.assemble.collector_exports import SpanExport

CompletedBy = Literal["root", "idle", "wait", "spans", "bytes", "memory"]
"""The reason why a run is complete.

- ``root``: its root span arrived ``assemble.grace`` ago.
- ``idle``: no span has arrived for ``assemble.idle``.
- ``wait``: its first span arrived ``assemble.longest_wait`` ago.
- ``spans``, ``bytes``: it exceeds ``assemble.run_spans`` or ``assemble.run_bytes``.
- ``memory``: it is the oldest open run while all open runs exceed ``assemble.open_bytes``.
"""

PUBLISHED_RUNS = 100_000
"""Number of published runs that a partition remembers; a span of an older run starts a new run."""

RUN_MEMORY, SPAN_MEMORY = 650, 160
"""Measured bytes of memory that a run takes in addition to its spans, and a span to its content."""

_MAX_STALE = 1000
"""Number of deadlines of closed runs that may be kept, in addition to one for each open run."""

COMPLETED_BY: tuple[CompletedBy, ...] = get_args(CompletedBy)


@dataclass(slots=True)
class SpanRun:
    """A run; its times are record timestamps in milliseconds since the epoch.

    Attributes:
        first_offset: the offset of its first span.
        root_time: the time of its root span; None if it has not arrived.
        size: the size of its spans in bytes.
        spans: the exports by span id.
    """

    trace_id: str
    first_offset: int
    last_offset: int
    first_time: int
    last_time: int
    root_time: int | None = None
    size: int = 0
    spans: dict[str, bytes] = field(default_factory=dict)
    completed_by: CompletedBy = "idle"


class OpenRuns:
    """The open runs of a partition, and the ids of those published.

    After a crash, the records from :attr:`restart_offset` on are read again. Up to ``resume``, where the last
    transaction ended, their outputs are published already, so nothing is completed and nothing is late there:
    the spans of published runs are dropped, and the others are the open runs.

    Args:
        settings: the times and limits.
        position: the offset to begin with, the restart offset of the last transaction.
        resume: the position of the last transaction.
        published: the last known offset of each published run, by trace id, oldest first.
    """

    def __init__(
        self,
        settings: AssembleSettings,
        position: int = 0,
        resume: int = 0,
        published: Mapping[str, int] | None = None,
    ) -> None:
        self.position = position  # the next offset
        self.size = 0  # the bytes of all open spans
        self.memory = 0  # the bytes that they and their runs take
        self.limit = settings.open_bytes  # the bytes that these may take
        self._settings = settings
        self._resume = resume
        self._published = OrderedDict(published or {})
        self._open: OrderedDict[str, SpanRun] = OrderedDict()
        self._deadlines: list[tuple[int, int, str]] = []
        self._oversized: dict[str, CompletedBy] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_replaying(self) -> bool:
        """Whether the outputs of the records at :attr:`position` are already published."""
        return self.position < self._resume

    @property
    def restart_offset(self) -> int:
        """The offset of the first span of an open run; the position if none is open."""
        return next(iter(self._open.values())).first_offset if self._open else self.position

    def arrive(self, offset: int, time: int) -> None:
        """Set the position to a record's offset, and the clock to its time unless it is later already."""
        self.position = offset
        self._clock = max(self._clock, time)

    def wait(self, milliseconds: int) -> None:
        """Advance the time although nothing arrives."""
        self._clock += milliseconds

    def add(self, spans: Iterable[SpanExport]) -> tuple[list[SpanExport], int]:
        """Add the spans of the record at the position, and move past it.

        Returns:
            The late spans, of runs published before, and the number of spans that open runs already had.
        """
        offset = self.position
        late: list[SpanExport] = []
        duplicates = 0
        for span in spans:
            if span.trace_id in self._published:
                self._published[span.trace_id] = offset
                if not self.is_replaying:
                    late.append(span)
                continue
            run = self._open.get(span.trace_id)
            if run is None:
                run = SpanRun(span.trace_id, offset, offset, self._clock, self._clock)
                self._open[run.trace_id] = run
                heappush(self._deadlines, (self._deadline(run)[0], offset, run.trace_id))
                self.memory += RUN_MEMORY
            run.last_offset, run.last_time = offset, self._clock
            if span.span_id in run.spans:
                duplicates += not self.is_replaying
            else:
                self._add_span(run, span)
        self.position = offset + 1
        return late, duplicates

    def completed(self) -> Iterator[SpanRun]:
        """Yield the runs that are complete now, and close each when it is yielded."""
        if self.is_replaying:
            return
        while self._oversized:
            yield self._close(*self._oversized.popitem())
        while self.memory > self.limit:
            yield self._close(next(iter(self._open)), "memory")
        while self._deadlines and self._deadlines[0][0] <= self._clock:
            _, _, trace_id = heappop(self._deadlines)
            run = self._open.get(trace_id)
            if run is None:
                continue
            deadline, completed_by = self._deadline(run)
            if deadline <= self._clock:
                yield self._close(trace_id, completed_by)
            else:
                heappush(self._deadlines, (deadline, run.first_offset, trace_id))

    def forget(self) -> list[str]:
        """Return the ids of the oldest published runs beyond :data:`PUBLISHED_RUNS`, and forget them.

        A run is not forgotten while one of its spans may be read again.
        """
        restart_offset, forgotten = self.restart_offset, []
        while len(self._published) > PUBLISHED_RUNS:
            trace_id, last_offset = next(iter(self._published.items()))
            if last_offset >= restart_offset:
                break
            del self._published[trace_id]
            forgotten.append(trace_id)
        return forgotten

    def _add_span(self, run: SpanRun, span: SpanExport) -> None:
        run.spans[span.span_id] = span.value
        run.size += len(span.value)
        self.size += len(span.value)
        self.memory += len(span.value) + SPAN_MEMORY
        if span.is_root and run.root_time is None:
            run.root_time = self._clock
            heappush(self._deadlines, (self._deadline(run)[0], run.first_offset, run.trace_id))
        if len(run.spans) > self._settings.run_spans:
            self._oversized[run.trace_id] = "spans"
        elif run.size > self._settings.run_bytes:
            self._oversized[run.trace_id] = "bytes"

    def _deadline(self, run: SpanRun) -> tuple[int, CompletedBy]:
        settings = self._settings
        deadlines: list[tuple[int, CompletedBy]] = [
            (run.last_time + _milliseconds(settings.idle), "idle"),
            (run.first_time + _milliseconds(settings.longest_wait), "wait"),
        ]
        if run.root_time is not None:
            deadlines.insert(0, (run.root_time + _milliseconds(settings.grace), "root"))
        return min(deadlines, key=lambda deadline: deadline[0])

    def _close(self, trace_id: str, completed_by: CompletedBy) -> SpanRun:
        run = self._open.pop(trace_id)
        run.completed_by = completed_by
        self.size -= run.size
        self.memory -= run.size + RUN_MEMORY + len(run.spans) * SPAN_MEMORY
        self._published[trace_id] = run.last_offset
        if len(self._deadlines) > 2 * len(self._open) + _MAX_STALE:
            self._deadlines = [deadline for deadline in self._deadlines if deadline[2] in self._open]
            heapify(self._deadlines)
        return run


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
