"""Recover the ledgers of the owned partitions from the changelog topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager

from knowledgepulse_worker.errors import LedgerError, first_of_group
from knowledgepulse_worker.kafka.topic_reader import Reader
from knowledgepulse_worker.lane.ledger import Changelog

PARALLEL_READERS = 4
"""Maximum number of changelog partitions read at a time."""


class Ledgers:
    """The changelogs of the owned partitions.

    Args:
        topic: the changelog topic.
        connect: returns a reader that connects on entry.

    Attributes:
        remaining: the number of changelog offsets still to be read, by partition in recovery.
    """

    def __init__(
        self,
        topic: str,
        connect: Callable[[], AbstractAsyncContextManager[Reader]],
    ) -> None:
        self.remaining: dict[int, int] = {}
        self._topic = topic
        self._connect = connect
        self._changelogs: dict[int, Changelog] = {}

    def changelog(self, partition: int) -> Changelog:
        """Return a partition's changelog; empty unless recovered."""
        if partition not in self._changelogs:
            self._changelogs[partition] = Changelog(partition)
        return self._changelogs[partition]

    def retain(self, partitions: Collection[int]) -> None:
        """Drop the changelogs of all other partitions, to which other workers write now."""
        for partition in self._changelogs.keys() - set(partitions):
            del self._changelogs[partition]

    async def recover(self, partitions: Collection[int], recovered: Callable[[int], Awaitable[None]]) -> None:
        """Read the changelogs of partitions, up to :data:`PARALLEL_READERS` at a time.

        A changelog is read up to its end, however long the transactions at its end stay open. The group's
        position was fetched before, and it can only be that of a transaction whose entries end before.

        Args:
            partitions: the partition numbers.
            recovered: called with each partition once its changelog is read to the end.

        Raises:
            WorkerError: a changelog cannot be read or holds an invalid entry.
        """
        if not partitions:
            return
        async with self._connect() as reader:
            appended = await reader.appended(self._topic, partitions)
        unread = {number: self._unread(number, held) for number, held in sorted(appended.items())}
        self.remaining = {number: len(offsets) for number, offsets in unread.items()}
        waiting = deque(unread.items())
        with first_of_group():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(PARALLEL_READERS, len(waiting))):
                    group.create_task(self._recover_from(waiting, recovered))

    def _unread(self, partition: int, held: range) -> range:
        """Return the offsets of the records written since the last read, or of all records at the first."""
        position = self.changelog(partition).position
        if position is not None and position >= held.stop:
            # The topic was created again, or an unclean leader election lost its end.
            del self._changelogs[partition]
            position = None
        return held if position is None else range(max(position + 1, held.start), held.stop)

    async def _recover_from(
        self, waiting: deque[tuple[int, range]], recovered: Callable[[int], Awaitable[None]]
    ) -> None:
        async with self._connect() as reader:
            while waiting:
                partition, unread = waiting.popleft()
                await self._read(reader, partition, unread)
                await recovered(partition)
                del self.remaining[partition]

    async def _read(self, reader: Reader, partition: int, unread: range) -> None:
        changelog = self.changelog(partition)
        async for record in reader.read(self._topic, partition, unread):
            try:
                changelog.apply(record.offset, record.key, record.value)
            except LedgerError as error:
                raise LedgerError(f"{self._topic}: {error}") from error
            self.remaining[partition] = unread.stop - record.offset - 1
        if unread:
            changelog.position = unread.stop - 1  # the last offsets may not hold records
