"""A client's connections to simulated brokers, readers, and a topic's identity.

The client library is modelled as far as its behaviour affects the worker: it has one request in flight per
broker, resends whole batches, resets positions and calls back at rebalances. The contract tests compare the
models with the real clients on a real broker.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.topic_id import TopicIds

BACKOFF = 0.1
REQUEST_TIMEOUT = 40.0


class Connection:
    """A client's connections."""

    def __init__(self, cluster, host, client, timeout=REQUEST_TIMEOUT):
        self.cluster = cluster
        self.host = host
        self._client = client
        self._timeout = timeout
        self._known = {}

    def call(self, broker, operation, channel="data"):
        return self.cluster.network.call(
            self.host, f"{self._client} {channel}", broker, operation, self._timeout
        )

    def ask(self, broker, question):
        """Send a broker a request that it answers at once."""

        def answer(reply):
            try:
                reply(question())
            except KafkaError as error:
                reply(error)

        return self.call(broker, answer)

    def coordinate(self, operation, *arguments):
        """Send a request to the group's coordinator."""
        broker = self.cluster.group.coordinator
        return self.call(broker, lambda reply: operation(broker, *arguments, reply), "group")

    def leader(self, at):
        """Return the leader that the client last learned of."""
        return self._known.setdefault(at, self.cluster.leader(*at))

    def refresh(self):
        """Look up the leaders again before the next request."""
        self._known.clear()

    async def ask_leader(self, at, question):
        """Send a request to a partition's leader, and repeat it after each error."""
        while True:
            broker = self.leader(at)
            try:
                return await self.ask(broker, lambda broker=broker: question(broker))
            except KafkaError:
                await asyncio.sleep(BACKOFF)
                self.refresh()


def record(topic, partition, stored):
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

    def __init__(self, cluster, host, topic):
        super().__init__(Config(), topic)
        self._connection = Connection(cluster, host, "ids")
        self._cluster = cluster

    async def start(self):
        """Connect to nothing."""

    async def stop(self):
        """Close nothing."""

    def _leaders(self, partitions):
        return sorted(partitions)

    async def _look_up(self, number):
        at = (self._topic, number)
        return await self._connection.ask_leader(at, lambda broker: self._cluster.find(broker, *at).id)


class SimReader:
    """Implements :class:`~knowledgepulse_kafka.topic_reader.Reader`; connects on entry."""

    def __init__(self, cluster, host, timeout=REQUEST_TIMEOUT):
        self._connection = Connection(cluster, host, "reader", timeout)
        self._cluster = cluster
        self._timeout = timeout

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        """Close nothing."""

    async def bounds(self, topic, partition):
        return await self._connection.ask_leader(
            (topic, partition), lambda broker: self._cluster.bounds(broker, topic, partition)
        )

    async def appended(self, topic, partitions):
        return {number: await self._appended((topic, number)) for number in partitions}

    async def _appended(self, at):
        def held(broker):
            start = self._cluster.bounds(broker, *at).start
            return range(start, self._cluster.find(broker, *at).logs[at[1]].end)

        return await self._connection.ask_leader(at, held)

    async def first_since(self, topic, partition, timestamp_ms):
        records = self._cluster.topics[topic].logs[partition].records
        return next((record.offset for record in records if record.timestamp_ms >= timestamp_ms), None)

    async def read(self, topic, partition, offsets):
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

    async def _fetch(self, at, position):
        while True:
            broker = self._connection.leader(at)
            with suppress(KafkaError):
                answers = await self._connection.call(
                    broker,
                    lambda reply, broker=broker, position=position: self._cluster.fetch(
                        broker, {at: position}, 100, reply
                    ),
                )
                if answers[at].error is OffsetOutOfRangeError:
                    position = (await self.bounds(*at)).start
                    continue
                if answers[at].error is None and answers[at].next > position:
                    return answers[at]
            await asyncio.sleep(BACKOFF)
            self._connection.refresh()
