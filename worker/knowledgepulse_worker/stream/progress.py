"""The source's progress, for the monitor and the gauges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress

from aiokafka.errors import IllegalStateError

from knowledgepulse_worker.lane.lanes import Lanes
from knowledgepulse_worker.stream.client import Client
from knowledgepulse_worker.stream.partition import Partition
from knowledgepulse_worker.stream.refusal import explained

# Milliseconds without a response to a fetch after which the broker counts as silent.
_SILENCE_MS = 10_000


class Progress:
    """The progress in every owned partition.

    Args:
        topic: the raw topic's name.
        client: the group member.
        lanes: know the finished records.
        owned: returns the owned partitions.
    """

    def __init__(
        self, topic: str, client: Client, lanes: Lanes, owned: Callable[[], Mapping[int, Partition]]
    ) -> None:
        self._topic = topic
        self._client = client
        self._lanes = lanes
        self._owned = owned
        self._transaction_began: float | None = None

    async def refresh_positions(self) -> None:
        """Refresh the client's position in every partition that is being consumed."""
        for partition in list(self._owned().values()):
            with suppress(IllegalStateError, TimeoutError):
                async with asyncio.timeout(0.1):  # a position that is being reset is not worth waiting for
                    partition.position = await self._client.position(partition.at)

    def check_membership(self) -> None:
        """Raise the error that ended the group membership, even before the first fetch.

        Raises:
            WorkerError: the group rejected this member, or the client failed permanently.
        """
        try:
            self._client.check_membership()
        except Exception as error:
            raise explained(error, self._client.group.group) from error

    def waiting(self) -> dict[int, Hashable]:
        """Return the progress of each partition where records wait or the broker is silent."""
        marks, progress = self._lanes.positions(), dict[int, Hashable]()
        generation = self._client.group.generation  # each assignment begins anew, wherever the former one was
        for number, partition in self._owned().items():
            if not partition.is_recovered:
                continue
            mark = marks.get(number)
            stable = self._client.last_stable_offset(partition.at)
            answered = self._client.last_poll_timestamp(partition.at) or 0
            if partition.has_unfinished(mark):
                progress[number] = (generation, "finished", mark)
            elif stable is not None and partition.position < stable:
                progress[number] = (generation, "fetched", partition.position)
            elif time.time() * 1000 - answered > _SILENCE_MS:
                progress[number] = (generation, "answered", answered)
        return progress

    @property
    def is_member(self) -> bool:
        """Whether the client is a member of the group, as far as it knows."""
        return self._client.is_member

    @property
    def recovering(self) -> int:
        """The number of owned partitions that are not consumed yet; a position or a ledger is awaited."""
        return sum(not partition.is_recovered for partition in self._owned().values())

    @property
    def coordinator_age(self) -> float:
        """Seconds since the group's coordinator last answered."""
        return time.monotonic() - self._client.answered_at

    def silence(self) -> float:
        """Return the longest time in seconds that a fetch has waited for a partition leader's answer.

        Nothing is fetched from a partition whose lane still holds unfinished records.
        """
        marks = self._lanes.positions()
        asked = [
            self._client.last_poll_timestamp(partition.at)
            for number, partition in self._owned().items()
            if partition.is_recovered
            and not partition.is_full
            and not partition.has_unfinished(marks.get(number))
        ]
        return max((time.time() - answered / 1000 for answered in asked if answered), default=0.0)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Measure the time that a transaction takes."""
        self._transaction_began = time.monotonic()
        try:
            yield
        finally:
            self._transaction_began = None

    @property
    def transaction_age(self) -> float:
        """Seconds for which a transaction has been in progress; 0 without one."""
        return 0.0 if self._transaction_began is None else time.monotonic() - self._transaction_began

    @property
    def has_unfinished(self) -> bool:
        """Whether a lane holds records that are not finished."""
        marks = self._lanes.positions()
        return any(one.has_unfinished(marks.get(number)) for number, one in self._owned().items())

    def lag(self) -> dict[int, int]:
        """Return each partition's lag in offsets, including offsets held back by open transactions."""
        marks, lags = self._lanes.positions(), dict[int, int]()
        for number, partition in self._owned().items():
            end = self._client.highwater(partition.at) if partition.is_recovered else None
            if end is not None:
                mark = marks.get(number)
                unfinished = mark is not None and partition.has_unfinished(mark)
                done = mark if unfinished else max(partition.position, partition.fetched + 1)
                lags[number] = max(0, end - (done or 0))
        return lags

    def held_back(self) -> dict[int, int]:
        """Return the number of offsets held back by open transactions, by partition."""
        held = {}
        for number, partition in self._owned().items():
            end = self._client.highwater(partition.at)
            stable = self._client.last_stable_offset(partition.at)
            if end is not None and stable is not None:
                held[number] = max(0, end - stable)
        return held

    def partition_count(self) -> int:
        """Return the raw topic's partition count in the client's latest metadata; 0 if there is no topic."""
        return len(self._client.partitions_for_topic(self._topic) or ())
