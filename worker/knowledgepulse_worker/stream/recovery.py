"""Recover the ledgers of the owned partitions from the changelog topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from operator import attrgetter
from typing import TypeAlias

from knowledgepulse_kafka.errors import first_of_group
from knowledgepulse_kafka.topic_reader import Reader, Record
from knowledgepulse_worker.errors import LedgerError
from knowledgepulse_worker.kafka.foreign_records import skipping_foreign_records
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.partition_task import PartitionTask

PARALLEL_READERS = 4
"""Maximum number of changelog partitions read at a time."""

_REMEDY = "; let nobody but the workers write to this topic"

ReaderFactory: TypeAlias = Callable[[], AbstractAsyncContextManager[Reader]]
"""Returns a reader, which connects on entry."""


async def recover(
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
