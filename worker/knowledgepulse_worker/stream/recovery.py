"""Recover the ledgers of the owned partitions from the changelog topic, and begin to read each."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from operator import attrgetter
from typing import TypeAlias

from knowledgepulse_kafka.errors import first_of_group
from knowledgepulse_kafka.group_member import CommittedPositions
from knowledgepulse_kafka.partition_starts import PartitionStarter
from knowledgepulse_kafka.topic_reader import Reader, Record
from knowledgepulse_worker.errors import LedgerError
from knowledgepulse_worker.kafka.foreign_records import skipping_foreign_records
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.stream.log_changes import LogChanges
from knowledgepulse_worker.stream.start_offset import Start, start_of
from knowledgepulse_worker.stream.unread_offsets import PassedOver, UnreadOffsets

logger = logging.getLogger(__name__)

PARALLEL_READERS = 4
"""Maximum number of changelog partitions read at a time."""

_REMEDY = "; let nobody but the workers write to this topic"

ReaderFactory: TypeAlias = Callable[[], AbstractAsyncContextManager[Reader]]
"""Returns a reader, which connects on entry."""


class Recovery:
    """Recovers the ledgers of an assignment's partitions; each is read once its own ledger is recovered.

    Args:
        log: knows the id of the raw topic.
        unread_offsets: counts the offsets that the group's position passes over.
        metrics: counts the ledgers that are lost.
        changelog: the changelog topic.
        connect: returns a changelog reader.
    """

    def __init__(
        self,
        log: LogChanges,
        unread_offsets: UnreadOffsets,
        metrics: Metrics,
        changelog: str,
        connect: ReaderFactory,
    ) -> None:
        self._log = log
        self._unread_offsets = unread_offsets
        self._metrics = metrics
        self._changelog = changelog
        self._connect = connect
        self._identified: Mapping[int, PartitionTask] = {}
        self._identifying = asyncio.Lock()

    async def recover(
        self, tasks: Mapping[int, PartitionTask], committed: CommittedPositions, begin: PartitionStarter
    ) -> None:
        """Recover the ledgers of some partitions, and begin to read them.

        The group's positions are known before a ledger is read, which then includes all entries up to there.

        Args:
            tasks: all tasks of the assignment; a partition without a task has no ledger, and is not read.
            committed: the group's positions in the partitions to recover.
            begin: begins to read a partition.

        Raises:
            WorkerError: a changelog cannot be read or holds an entry of a newer worker.
        """
        recovering = [tasks[at.partition] for at in committed if at.partition in tasks]
        if not recovering:
            return
        await self._identify(tasks)

        async def recovered(task: PartitionTask) -> None:
            start = start_of(task.place, committed[task.place], task.changelog, self._log.topic_id)
            if start.has_lost_ledger:
                self._metrics.lanes.cache_reset("lost")
            if start.passed_over is not None:
                start = await self._obeyed(task, start, start.passed_over)
            task.begin(start.offset, start.leader_epoch)
            await begin(task.place, start.offset)
            task.is_recovered = True

        await read_changelogs(recovering, self._changelog, self._connect, recovered)

    async def _obeyed(self, task: PartitionTask, start: Start, passed: PassedOver) -> Start:
        """Count what a position that no worker has committed passes over, and return where to read from.

        A position beyond the partition's end cannot be obeyed: the client would begin anew.
        """
        async with self._connect() as reader:
            held = (await reader.appended(task.place.topic, [task.partition]))[task.partition]
        if passed.stop <= held.stop:
            await self._unread_offsets.count_passed_over(passed)
            return start
        logger.error(
            "partition %d: an operator or another client, not a worker, has set the group's position in "
            "%s to %d, beyond the end, %d; continuing from %s",
            *(task.partition, task.place.topic, passed.stop, held.stop),
            "the beginning" if passed.start is None else f"offset {passed.start}, as the ledger says",
        )
        own = None if passed.start is None else task.changelog.position
        return Start(None) if own is None else Start(own.offset, own.leader_epoch)

    async def _identify(self, tasks: Mapping[int, PartitionTask]) -> None:
        """Look up the topic's id, once for each assignment: another id must be noticed where it is read."""
        async with self._identifying:
            if self._identified is not tasks:
                await self._log.identify(tasks)
                self._identified = tasks


async def read_changelogs(
    tasks: Collection[PartitionTask],
    topic: str,
    connect: ReaderFactory,
    recovered: Callable[[PartitionTask], Awaitable[None]],
) -> None:
    """Read the changelogs of partitions, up to :data:`PARALLEL_READERS` at a time.

    A changelog is read up to its end, however long the transactions at its end stay open. The group's
    position was fetched before, and it can only be that of a transaction whose entries end before.

    Args:
        tasks: the partitions' tasks, at least one.
        topic: the changelog topic.
        connect: returns a reader.
        recovered: called with each task once its changelog is read to the end.

    Raises:
        WorkerError: a changelog cannot be read or holds an entry of a newer worker.
    """
    async with connect() as reader:
        appended = await reader.appended(topic, [task.partition for task in tasks])
    waiting = deque[tuple[PartitionTask, range]]()
    for task in sorted(tasks, key=attrgetter("partition")):
        held = appended[task.partition]
        if task.changelog.has_lost(held):
            task.changelog = Changelog(task.partition)
        task.changelog.begin = held.start
        unread = task.changelog.unread(held)
        task.remaining = len(unread)
        waiting.append((task, unread))

    async def read_waiting() -> None:
        async with connect() as reader:
            while waiting:
                task, unread = waiting.popleft()
                await _read(task, reader, topic, unread)
                await recovered(task)
                task.remaining = None

    with first_of_group():
        async with asyncio.TaskGroup() as group:
            for _ in range(min(PARALLEL_READERS, len(waiting))):
                group.create_task(read_waiting())


async def _read(task: PartitionTask, reader: Reader, topic: str, unread: range) -> None:
    def apply(record: Record) -> None:
        try:
            task.changelog.apply(record.offset, record.key, record.value)
        except LedgerError as error:
            raise LedgerError(f"{topic}: {error}") from error

    with skipping_foreign_records(f"{topic}/{task.partition}", _REMEDY) as foreign:
        async for record in reader.read(topic, task.partition, unread):
            foreign.decoded(record, apply)
            task.remaining = unread.stop - record.offset - 1
    if unread:
        task.changelog.end = unread.stop  # the last offsets may not hold records
