"""A member of a group on brokers in memory, whose partitions a test assigns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiokafka.errors import KafkaError

from knowledgepulse_kafka.testing import Cluster, new_cluster
from knowledgepulse_kafka.testing.member import SimMember


def swift_cluster() -> Cluster:
    """Return brokers whose answers take no time."""
    cluster = new_cluster(first_delay=0.0)
    cluster.network.latencies = (0.0,)
    cluster.fetch_wait = 0.01
    return cluster


class AssignedMember(SimMember):
    """Joins the group, and joins anew, when a test assigns its partitions.

    Attributes:
        fetches: the number of fetches that have begun.
        error: if set, the group membership has ended and every fetch raises this error.
        look_up_error: an error that the next look-up of beginning offsets raises.
        unstable: the numbers of partitions whose positions an open transaction may still replace.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(cluster, "host", (topic,), session=10, rebalance=10, patience=1)
        self.fetches = 0
        self.error: KafkaError | None = None
        self.look_up_error: KafkaError | None = None
        self.unstable: set[int] = set()
        self._topic = topic
        self._subscription = None
        self._numbers: list[int] = []
        is_pending = cluster.group.is_pending
        cluster.group.is_pending = lambda places: places[0][1] in self.unstable or is_pending(places)

    def subscribe(self, topics, listener=None):
        """Wait for the first assignment."""
        self._subscription = (topics, listener)

    async def rebalance(self, numbers: Iterable[int]) -> None:
        """Revoke all partitions, then assign those of these numbers."""
        while not (self._tasks or self._subscription):
            await asyncio.sleep(0.001)
        self._numbers = [*numbers]
        before = self._heartbeat
        if self._tasks:
            self._rejoin.set()
        else:
            super().subscribe(*self._subscription)
        while self._heartbeat is before or self._heartbeat is None:
            super().check_membership()
            await asyncio.sleep(0.001)

    def _assign(self, members):
        return {self._member: tuple((self._topic, number) for number in self._numbers)}

    def expel(self) -> None:
        """End the membership, as an expired session does; the listener is called at the next rebalance."""
        self._cluster.group.leave(self._cluster.group.coordinator, self._member, lambda _: None)
        self._member, self._generation = "", -1

    def check_membership(self):
        """Raise :attr:`error`, if there is one."""
        super().check_membership()
        if self.error is not None:
            raise self.error

    async def getmany(self, *, timeout_ms):
        """Fetch, and wait for little longer than nothing."""
        self.fetches += 1
        return await super().getmany(timeout_ms=min(timeout_ms, 1))

    async def beginning_offsets(self, partitions):
        """Return the first remaining offsets."""
        error, self.look_up_error = self.look_up_error, None
        if error is not None:
            raise error
        return await super().beginning_offsets(partitions)

    async def fetched(self) -> None:
        """Wait until another fetch has begun."""
        before = self.fetches
        while self.fetches == before:
            await asyncio.sleep(0.001)
