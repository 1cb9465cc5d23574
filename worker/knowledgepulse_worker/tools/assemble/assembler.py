"""The partitions of a group member: opened when they are assigned, closed before they are reassigned."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.errors import LostPartitionsError, first_of_group
from knowledgepulse_kafka.group_member import CommittedPositions
from knowledgepulse_kafka.partition_starts import PartitionStarter
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_kafka.session import Rebalances, Session
from knowledgepulse_kafka.topic_reader import raw_record
from knowledgepulse_worker.settings import AssembleSettings
from knowledgepulse_worker.shutdown import close_within
from knowledgepulse_worker.tools.assemble.assembly_metrics import AssemblyMetrics
from knowledgepulse_worker.tools.assemble.open_runs import OpenRuns
from knowledgepulse_worker.tools.assemble.partition_assembler import PartitionAssembler
from knowledgepulse_worker.tools.assemble.run_conversion import CompleteRun, ConvertedRun
from knowledgepulse_worker.tools.assemble.run_outputs import RunOutputs
from knowledgepulse_worker.tools.assemble.transaction_log import AssemblyLog

logger = logging.getLogger(__name__)

POLL_LIMIT = 1.0
"""Seconds to wait for records."""
LONGEST_STEP = 5.0
"""Seconds that may pass at once for a partition without records: after longer ones, this process or the
brokers were away, and spans may be on their way."""

PARALLEL_READERS = 8
"""Number of partitions whose logs are read at the same time, each with a client of its own."""

SessionFactory: TypeAlias = Callable[[Rebalances], AbstractAsyncContextManager[Session]]
"""Joins the group, given what to do at its rebalances."""


@dataclass
class _Partition:
    assembler: PartitionAssembler
    seen: float  # the monotonic time when it last had records, or was asked for them


@dataclass
class Assembler(Rebalances):
    """Assembles the runs of the partitions that the group assigns to this process."""

    settings: AssembleSettings
    join: SessionFactory
    log: Callable[[int], AssemblyLog]  # makes the transactions of a partition
    convert: Callable[[CompleteRun], Awaitable[ConvertedRun]]
    outputs: RunOutputs
    metrics: AssemblyMetrics
    clock: Callable[[], float] = time.monotonic
    _session: Session = field(init=False)
    _partitions: dict[int, _Partition] = field(default_factory=dict)
    _reads: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, PARALLEL_READERS))
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # a rebalance waits for the turn's transactions

    async def work_until(self, stop: asyncio.Event, limit: float) -> None:
        """Read and publish until told to stop, and then end within so many seconds.

        Raises:
            WorkerError: a fatal error.
        """
        working = asyncio.create_task(self.work(stop.is_set))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if stop.is_set():
            logger.info("stopping")
        await close_within(limit, lambda: working, "the assembler")

    async def work(self, is_stopping: Callable[[], bool]) -> None:
        """Read and publish until told to stop.

        Raises:
            WorkerError: a fatal error.
        """
        try:
            async with self.join(self) as session:
                self._session = session
                while not is_stopping():
                    records = defaultdict[int, list[RawRecord]](list)
                    for record in await session.poll(POLL_LIMIT):
                        records[record.partition].append(raw_record(record))
                    async with self._turn:
                        await self._take_turn(session, records)
        finally:
            self._close_all()

    async def _take_turn(self, session: Session, records: Mapping[int, list[RawRecord]]) -> None:
        try:
            for number, batch in records.items():
                # One that is not open was reassigned after the poll, and is read from its restart offset.
                if partition := self._partitions.get(number):
                    await partition.assembler.process(batch)
                    partition.seen = self.clock()
            await self._let_time_pass(session, records)
        except LostPartitionsError as error:
            logger.warning("%s; its partitions are read again by their owners", error)
            self._close_all()

    async def recover(self, positions: CommittedPositions, begin: PartitionStarter) -> None:
        """Recover the open runs of partitions, each beside the others."""

        async def begin_at(place: Place, restart_offset: int | None) -> None:
            await begin(place, await self._start_of(place, restart_offset))

        with first_of_group():
            async with asyncio.TaskGroup() as group:
                for place, position in positions.items():
                    group.create_task(begin_at(place, None if position is None else position.offset))

    async def _start_of(self, place: Place, restart_offset: int | None) -> int:
        """Return where to read a partition from: after its last transaction, which may be its former owner's.

        An open transaction withholds its restart offset, and then its records: both are awaited.
        """
        number, session = place.partition, self._session
        log = self.log(number)
        async with self._reads:
            state = await log.read()
        offsets = await session.bounds(place)
        start, resume = offsets.start if restart_offset is None else restart_offset, state.position
        if max(start, resume) > offsets.stop:
            logger.warning("partition %d has less than was read before; reading all of it", number)
            start = resume = offsets.start
        elif start < offsets.start:
            logger.warning(
                "partition %d: offsets %d to %d were deleted before their runs were complete",
                *(number, start, offsets.start - 1),
            )
            start = offsets.start
        logger.info("partition %d: reading from offset %d", number, start)
        runs = OpenRuns(self.settings, start, resume, state.published)
        publish = partial(log.publish, session)
        assembler = PartitionAssembler(number, runs, self.convert, self.outputs, publish, self.metrics)
        self._partitions[number] = _Partition(assembler, self.clock())
        self.metrics.partitions.set(len(self._partitions))
        return start

    async def _let_time_pass(self, session: Session, records: Mapping[int, list[RawRecord]]) -> None:
        """Let time pass for open runs of partitions that have nothing left to read."""
        quiet = {
            number: partition
            for number, partition in self._partitions.items()
            if number not in records and partition.assembler.has_open_runs
        }
        places = [Place(self.settings.spans, number) for number in quiet]
        at_end = {place.partition for place in await session.at_end(places)} if quiet else set()
        for number, partition in quiet.items():
            now = self.clock()
            if number in at_end:
                await partition.assembler.wait(min(now - partition.seen, LONGEST_STEP))
            partition.seen = now

    async def revoked(self) -> None:
        """Close the partitions after the transactions of this turn."""
        async with self._turn:
            self._close_all()

    def _close_all(self) -> None:
        for number in self._partitions:
            self.metrics.partition_left(number)
        self._partitions.clear()
        self.metrics.partitions.set(0)
