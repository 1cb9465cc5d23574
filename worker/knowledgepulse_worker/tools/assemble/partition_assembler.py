"""Assemble the runs of one partition: records in, transactions out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from knowledgepulse_convert import ConversionError
from knowledgepulse_kafka.records import OutputRecord, RawRecord
from knowledgepulse_worker.errors import EXPECTED, InvalidRecordError
from knowledgepulse_worker.tools.assemble.assembly_metrics import AssemblyMetrics
from knowledgepulse_worker.tools.assemble.collector_exports import SpanExport, split
from knowledgepulse_worker.tools.assemble.open_runs import OpenRuns
from knowledgepulse_worker.tools.assemble.run_conversion import CompleteRun, ConvertedRun
from knowledgepulse_worker.tools.assemble.run_outputs import RunOutputs
from knowledgepulse_worker.tools.assemble.transaction_log import AssemblyStep

logger = logging.getLogger(__name__)


@dataclass
class PartitionAssembler:
    """Assembles the runs of a partition."""

    partition: int
    runs: OpenRuns
    convert: Callable[[CompleteRun], Awaitable[ConvertedRun]]
    outputs: RunOutputs
    publish: Callable[[AssemblyStep], Awaitable[None]]  # in one transaction
    metrics: AssemblyMetrics
    # Records' timestamps later than now count as now: one wrong clock must neither end every run nor stop the
    # partition's time.
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._pending = AssemblyStep()
        self._committed = self.runs.restart_offset

    @property
    def has_open_runs(self) -> bool:
        """Whether any run is open."""
        return len(self.runs) > 0

    async def process(self, records: Iterable[RawRecord]) -> None:
        """Read records, and publish what they complete.

        Raises:
            DeliveryError: a transaction was not confirmed.
        """
        for record in records:
            self.runs.arrive(record.offset, min(record.timestamp_ms, round(self.now() * 1000)))
            await self._complete()
            await self._read(record)
            await self._complete()
        await self._finish()

    async def wait(self, seconds: float) -> None:
        """Let time pass without records, and publish the runs that it completes.

        Raises:
            DeliveryError: a transaction was not confirmed.
        """
        self.runs.wait(round(seconds * 1000))
        await self._complete()
        await self._finish()

    async def _read(self, record: RawRecord) -> None:
        is_replayed = self.runs.is_replaying
        try:
            # In a thread, as a large record takes long enough to miss heartbeats.
            spans = await asyncio.to_thread(_spans, record, self.runs.limit)
        except InvalidRecordError as error:
            self.runs.add([])
            if not is_replayed:
                self._pending.add(self.outputs.of_unreadable(record, error))
            return
        late, duplicates = self.runs.add(spans)
        for span in late:
            self._pending.add(self.outputs.of_late_span(span, record))
        if not is_replayed:
            self.metrics.read(len(spans) - duplicates - len(late), duplicates, len(late))

    async def _complete(self) -> None:
        if self._pending.is_full:
            await self._commit()
        for run in self.runs.completed():
            converted = await self.convert(CompleteRun.of(run))
            outputs = self.outputs.of_run(run, converted, self.partition)
            self.metrics.completed(run.completed_by)
            self._pending.published[run.trace_id] = run.last_offset
            self._pending.traces += sum(isinstance(record, OutputRecord) for record in outputs)
            for output in outputs:
                self._pending.add(output)
            if self._pending.is_full:
                await self._commit()

    async def _finish(self) -> None:
        """Commit what is pending, or a restart offset that has moved."""
        moved = self.runs.restart_offset > self._committed and not self.runs.is_replaying
        if self._pending.outputs or self._pending.published or moved:
            await self._commit()
        self.metrics.open_runs(self.partition, len(self.runs), self.runs.size)

    async def _commit(self) -> None:
        step, self._pending = self._pending, AssemblyStep()
        step.forgotten = self.runs.forget()
        step.position, step.restart_offset = self.runs.position, self.runs.restart_offset
        await self.publish(step)
        self._committed = step.restart_offset
        self.metrics.published(step.traces, step.reasons)


def _spans(record: RawRecord, max_bytes: int) -> list[SpanExport]:
    """Return the spans of a record.

    Raises:
        InvalidRecordError: it is no export of spans, or its spans are too large.
        MissingExtraError: the protobuf packages are not installed.
    """
    if record.fault is not None:
        raise InvalidRecordError(record.fault.reason, record.fault.message)
    if not record.value:
        raise InvalidRecordError("empty", "the record has no value")
    try:
        return split(record.value, max_bytes)
    except ConversionError as error:
        raise InvalidRecordError("undecodable", str(error)) from error
    except EXPECTED:
        raise
    except Exception as error:  # one record must not stop the others, whatever is wrong with it
        logger.warning("cannot read a record of spans", exc_info=error)
        raise InvalidRecordError("undecodable", f"{type(error).__name__}: {error}") from error
