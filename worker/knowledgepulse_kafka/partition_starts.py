"""Starts to read the assigned partitions side by side: one that has to wait holds up none of the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from aiokafka import TopicPartition

from knowledgepulse_kafka.errors import first_of_group
from knowledgepulse_kafka.group_member import GroupMember
from knowledgepulse_kafka.request_waits import MEMBERSHIP
from knowledgepulse_kafka.wait import Wait

logger = logging.getLogger(__name__)

StartOf: TypeAlias = Callable[[TopicPartition, int | None], Awaitable[int | None]]
"""Returns the offset at which to start, given a partition and the offset that its group has committed.

None stands for no committed offset, and for the first offset of the partition.
"""

_TOLD_AFTER = 5.0
"""Seconds after which a partition that is not read yet is logged."""
_TOLD = 5
"""Number of partitions that are named."""


async def start_at_committed(_: TopicPartition, committed: int | None) -> int | None:
    """Start where the group has committed; a :data:`StartOf`."""
    return committed


class PartitionStarts:
    """The partitions of an assignment, each of which is read as soon as it is known where to start.

    Args:
        member: the client.
        start_of: returns where to start a partition. All partitions whose committed offsets are known are
            asked for at the same time.

    Attributes:
        reading: the partitions that are read. Between an assignment and its :meth:`begin`, the client may
            read others, too, from offsets that a transaction in progress replaces.
    """

    def __init__(self, member: GroupMember, start_of: StartOf) -> None:
        self._member = member
        self._start_of = start_of
        self.reading = set[TopicPartition]()
        self._assigned: Collection[TopicPartition] = ()
        self._began = 0.0
        self._starting: asyncio.Task[None] | None = None
        self._telling: asyncio.TimerHandle | None = None

    def begin(self, assigned: Collection[TopicPartition]) -> None:
        """Start to read the partitions of a new assignment; none is read when this returns."""
        self._member.pause(*assigned)
        for place in assigned:  # otherwise, the client awaits all committed offsets before it reads
            self._member.seek(place, 0)
        loop = asyncio.get_running_loop()
        self._assigned, self._began = assigned, loop.time()
        self._starting = asyncio.create_task(self._start_all(assigned), name="starts of partitions")
        self._telling = loop.call_later(_TOLD_AFTER, self._tell)

    async def end(self) -> None:
        """Give up the partitions."""
        self._assigned = ()
        self.reading.clear()
        if self._starting is not None and self._telling is not None:
            self._telling.cancel()
            self._starting.cancel()
            await asyncio.wait([self._starting])

    def check(self) -> None:
        """Raise the error of a partition that cannot be read."""
        if self._starting is not None and self._starting.done() and not self._starting.cancelled():
            self._starting.result()

    @property
    def not_ready(self) -> list[str]:
        """The reasons why partitions are not read; empty if all of those that are assigned are."""
        if not self._member.assignment():
            reason = "partitions are not assigned yet"
        elif unread := self._unread():
            reason = f"not read yet: {_names(unread)}"
        else:
            return []
        return ["; ".join((reason, *map(str, self._waits())))]

    @property
    def waits(self) -> dict[Wait, float]:
        """What partitions that are not read wait for, and for how many seconds they have been waiting."""
        seconds = asyncio.get_running_loop().time() - self._began
        return dict.fromkeys(self._waits(), seconds) if self._unread() else {}

    def _waits(self) -> list[Wait]:
        return self._member.waits.current(MEMBERSHIP)

    def _unread(self) -> set[TopicPartition]:
        return set(self._assigned) - self.reading

    def _tell(self) -> None:
        if self._unread():
            logger.warning("%s", *self.not_ready)

    async def _start_all(self, assigned: Collection[TopicPartition]) -> None:
        with first_of_group():
            async with asyncio.TaskGroup() as group:
                async for positions in self._member.stable_positions(assigned):
                    for place, position in positions.items():
                        group.create_task(self._start(place, None if position is None else position.offset))

    async def _start(self, place: TopicPartition, committed: int | None) -> None:
        start = await self._start_of(place, committed)
        if start is None:
            await self._member.seek_to_beginning(place)
        else:
            self._member.seek(place, start)
        self._member.resume(place)
        self.reading.add(place)


def _names(places: Collection[TopicPartition]) -> str:
    names = [f"{place.topic}/{place.partition}" for place in sorted(places)]
    more = [f"{len(names) - _TOLD} more"] if len(names) > _TOLD else []
    return ", ".join(names[:_TOLD] + more)
