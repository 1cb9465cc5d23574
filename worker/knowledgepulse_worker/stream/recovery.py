"""Recover the ledgers of the owned partitions from the changelog topic, and begin to consume each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from operator import attrgetter
from typing import TypeAlias

from knowledgepulse_kafka.errors import first_of_group
from knowledgepulse_kafka.group_member import CommittedPositions
from knowledgepulse_kafka.topic_reader import Reader, Record
from knowledgepulse_worker.errors import LedgerError
from knowledgepulse_worker.kafka.foreign_records import skipping_foreign_records
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.stream.fetch_positions import FetchPositions
from knowledgepulse_worker.stream.kafka_interfaces import Client
from knowledgepulse_worker.stream.log_changes import LogChanges
from knowledgepulse_worker.stream.start_offset import start_of
from knowledgepulse_worker.stream.unread_offsets import UnreadOffsets

PARALLEL_READERS = 4
"""Maximum number of changelog partitions read at a time."""

_REMEDY = "; let nobody but the workers write to this topic"

ReaderFactory: TypeAlias = Callable[[], AbstractAsyncContextManager[Reader]]
"""Returns a reader, which connects on entry."""


class Recovery:
    """Recovers the ledgers of an assignment's partitions; each is consumed once its own ledger is recovered.

    Args:
        client: fetches the group's positions.
        positions: the client's positions.
        log: knows the id of the raw topic.
        unread_offsets: counts the offsets that the group's position passes over.
        changelog: the changelog topic.
        connect: returns a changelog reader.
    """

    def __init__(
        self,
        client: Client,
        positions: FetchPositions,
        log: LogChanges,
        unread_offsets: UnreadOffsets,
        changelog: str,
        connect: ReaderFactory,
    ) -> None:
        self._client = client
        self._positions = positions
        self._log = log
        self._unread_offsets = unread_offsets
        self._changelog = changelog
        self._connect = connect

    async def recover(self, tasks: Mapping[int, PartitionTask]) -> None:
        """Recover the ledgers of these tasks, and begin to consume.

        Raises:
            WorkerError: a changelog cannot be read or holds an entry of a newer worker.
        """
        if not tasks:
            return
        await self._log.identify(tasks)
        with first_of_group():
            async with asyncio.TaskGroup() as group:
                # Each is fetched before its ledger, which then includes all entries up to there.
                async for committed in self._client.stable_positions(map(self._positions.at, tasks.values())):
                    ready = [tasks[at.partition] for at in committed]
                    begin = partial(self._begin, committed)
                    group.create_task(read_changelogs(ready, self._changelog, self._connect, begin))

    async def _begin(self, committed: CommittedPositions, task: PartitionTask) -> None:
        """Start consuming a partition after its ledger's recovery, given the group's positions."""
        at = self._positions.at(task)
        start = start_of(at, committed[at], task.changelog, self._log.topic_id)
        task.begin(start.offset, start.leader_epoch)
        if start.passed_over is not None:
            await self._unread_offsets.count_passed_over(start.passed_over)
        await self._positions.seek_to_next(task)  # the client may have fetched before it was paused
        task.is_recovered = True
        self._positions.resume(task)


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
