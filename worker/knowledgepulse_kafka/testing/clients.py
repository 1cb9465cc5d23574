"""A client's connections to simulated brokers, readers, and a topic's identity.

The client library is modelled as far as its behaviour affects the package: it has one request in flight per
broker, resends whole batches, resets positions and calls back at rebalances. The contract tests compare the
models with the real clients on a real broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Self

from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.testing.brokers import Answer, Cluster, Stored
from knowledgepulse_kafka.testing.group import Place
from knowledgepulse_kafka.testing.network import Operation, Reply
from knowledgepulse_kafka.topic_id import TopicIds
from knowledgepulse_kafka.topic_reader import Record

BACKOFF = 0.1
REQUEST_TIMEOUT = 40.0


class Connection:
    """A client's connections."""

    def __init__(self, cluster: Cluster, host: str, client: str, timeout: float = REQUEST_TIMEOUT) -> None:
        self.cluster = cluster
        self.host = host
        self._client = client
        self._timeout = timeout
        self._known: dict[Place, int] = {}

    def call(self, broker: int, operation: Operation, channel: str = "data") -> Awaitable[Any]:
        """Send a broker a request, which it may answer later."""
        return self.cluster.network.call(
            self.host, f"{self._client} {channel}", broker, operation, self._timeout
        )

    def ask(self, broker: int, question: Callable[[], object]) -> Awaitable[Any]:
        """Send a broker a request that it answers at once."""

        def answer(reply: Reply) -> None:
            try:
                reply(question())
            except KafkaError as error:
                reply(error)

        return self.call(broker, answer)

    def coordinate(self, operation: Callable[..., None], *arguments: object) -> Awaitable[Any]:
        """Send a request to the group's coordinator."""
        broker = self.cluster.group.coordinator
        return self.call(broker, lambda reply: operation(broker, *arguments, reply), "group")

    def leader(self, at: Place) -> int:
        """Return the leader that the client last learned of."""
        return self._known.setdefault(at, self.cluster.leader(*at))

    def refresh(self) -> None:
        """Look up the leaders again before the next request."""
        self._known.clear()

    async def ask_leader(self, at: Place, question: Callable[[int], object]) -> Any:
        """Send a request to a partition's leader, and repeat it after each error."""
        while True:
            broker = self.leader(at)
            try:
                return await self.ask(broker, partial(question, broker))
            except KafkaError:
                await asyncio.sleep(BACKOFF)
                self.refresh()


def record(topic: str, partition: int, stored: Stored) -> Record:
    """Return a record as the client library does."""
    size = -1 if stored.value is None else len(stored.value)
    found = ConsumerRecord(
        topic,
        partition,
        stored.offset,
        stored.timestamp_ms,
        0,
        stored.key,
        stored.value,
        None,
        -1,
        size,
        stored.headers,
    )
    found.leader_epoch = stored.epoch
    return found


class SimTopicIds(TopicIds):
    """The look-up of a topic's id on simulated brokers, which asks the leader of each partition."""

    def __init__(self, cluster: Cluster, host: str, topic: str) -> None:
        super().__init__(Config(), topic)
        self._connection = Connection(cluster, host, "ids")
        self._cluster = cluster

    async def start(self) -> None:
        """Connect to nothing."""

    async def stop(self) -> None:
        """Close nothing."""

    def _leaders(self, partitions: list[int]) -> set[int | None]:
        return dict.fromkeys(sorted(partitions)).keys()  # type: ignore[return-value]  # in an order that no hash decides

    async def _look_up(self, number: int | None) -> bytes | None:
        at = (self._topic, number or 0)
        found: bytes = await self._connection.ask_leader(
            at, lambda broker: self._cluster.find(broker, *at).id
        )
        return found


class SimReader:
    """Implements :class:`~knowledgepulse_kafka.topic_reader.Reader`; connects on entry."""

    def __init__(self, cluster: Cluster, host: str, timeout: float = REQUEST_TIMEOUT) -> None:
        self._connection = Connection(cluster, host, "reader", timeout)
        self._cluster = cluster
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close nothing."""

    async def bounds(self, topic: str, partition: int) -> range:
        """Return the offsets that a partition holds now, up to the first open transaction."""
        return await self._connection.ask_leader(
            (topic, partition), lambda broker: self._cluster.bounds(broker, topic, partition)
        )

    async def appended(self, topic: str, partitions: Collection[int]) -> dict[int, range]:
        """Return the offsets that partitions hold now, with those of open transactions."""
        return {number: await self._appended((topic, number)) for number in partitions}

    async def _appended(self, at: Place) -> range:
        def held(broker: int) -> range:
            start = self._cluster.bounds(broker, *at).start
            return range(start, self._cluster.find(broker, *at).logs[at[1]].end)

        return await self._connection.ask_leader(at, held)

    async def first_since(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset with a record of that time or later, or None if there is none."""
        records = self._cluster.topics[topic].logs[partition].records
        return next((record.offset for record in records if record.timestamp_ms >= timestamp_ms), None)

    async def read(self, topic: str, partition: int, offsets: range) -> AsyncIterator[Record]:
        """Yield the records in a range of offsets.

        Raises:
            TopicError: the brokers return no more records.
        """
        position, at = offsets.start, (topic, partition)
        while position < offsets.stop:
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await self._fetch(at, position)
            except TimeoutError:
                raise TopicError(f"{topic}/{partition}: no records") from None
            for stored in answer.records:
                if stored.offset < offsets.stop:
                    yield record(topic, partition, stored)
            position = answer.next

    async def _fetch(self, at: Place, position: int) -> Answer:
        while True:
            broker = self._connection.leader(at)
            with suppress(KafkaError):
                answers = await self._connection.call(
                    broker,
                    partial(self._cluster.fetch, broker, {at: position}, 100),
                )
                if answers[at].error is OffsetOutOfRangeError:
                    position = (await self.bounds(*at)).start
                    continue
                if answers[at].error is None and answers[at].next > position:
                    return answers[at]
            await asyncio.sleep(BACKOFF)
            self._connection.refresh()
