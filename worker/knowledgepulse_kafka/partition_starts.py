"""Starts to read the assigned partitions side by side: one that has to wait holds up none of the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeAlias

from aiokafka import TopicPartition

from knowledgepulse_kafka.errors import first_of_group
from knowledgepulse_kafka.group_member import CommittedPositions, GroupMember
from knowledgepulse_kafka.request_waits import MEMBERSHIP
from knowledgepulse_kafka.wait import Wait

logger = logging.getLogger(__name__)

PartitionStarter: TypeAlias = Callable[[TopicPartition, int | None], Awaitable[None]]
"""Begins to read a partition at an offset, or at its first one if that is None."""

PartitionRecovery: TypeAlias = Callable[[CommittedPositions, PartitionStarter], Coroutine[Any, Any, None]]
"""Recovers what a program keeps of partitions, given the group's positions in them, and begins each."""

_TOLD_LIMIT = 5.0
"""Seconds after which a partition that is not read yet is logged."""
_MAX_NAMED = 5
"""Number of partitions that are named."""


class PartitionStarts:
    """The partitions of an assignment, each of which is read as soon as it is known where to start.

    Args:
        member: the client.
        recover: recovers partitions as soon as the group's positions in them are known, which for some may
            be later than for others.

    Attributes:
        reading: the partitions that are read. Between an assignment and its :meth:`begin`, the client may
            read others, too, from offsets that a transaction in progress replaces.
    """

    def __init__(self, member: GroupMember, recover: PartitionRecovery) -> None:
        self._member = member
        self._recover = recover
        self.reading = set[TopicPartition]()
        self._assigned: Collection[TopicPartition] = ()
        self._awaited = set[TopicPartition]()  # those whose positions are not known yet
        self._began = 0.0
        self._starting: asyncio.Task[None] | None = None
        self._telling: asyncio.TimerHandle | None = None

    def begin(self, assigned: Collection[TopicPartition]) -> None:
        """Start to read the partitions of a new assignment; none is read when this returns."""
        self._member.pause(*assigned)
        for place in assigned:  # otherwise, the client awaits all committed offsets before it reads
            self._member.seek(place, 0)
        loop = asyncio.get_running_loop()
        self._assigned, self._awaited, self._began = assigned, set(assigned), loop.time()
        self._starting = asyncio.create_task(self._start_all(assigned), name="starts of partitions")
        self._telling = loop.call_later(_TOLD_LIMIT, self._tell)

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
            reason = _not_read(unread)
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
        if self._awaited:
            logger.warning("%s", "; ".join((_not_read(self._awaited), *map(str, self._waits()))))

    async def _start_all(self, assigned: Collection[TopicPartition]) -> None:
        with first_of_group():
            async with asyncio.TaskGroup() as group:
                async for positions in self._member.stable_positions(assigned):
                    self._awaited -= positions.keys()
                    group.create_task(self._recover(positions, self._begin))

    async def _begin(self, place: TopicPartition, offset: int | None) -> None:
        if offset is None:
            await self._member.seek_to_beginning(place)
        else:
            self._member.seek(place, offset)  # the client may have fetched before it was paused
        self._member.resume(place)
        self.reading.add(place)


def _not_read(places: Collection[TopicPartition]) -> str:
    names = [f"{place.topic}/{place.partition}" for place in sorted(places)]
    more = [f"{len(names) - _MAX_NAMED} more"] if len(names) > _MAX_NAMED else []
    return f"not read yet: {', '.join(names[:_MAX_NAMED] + more)}"
