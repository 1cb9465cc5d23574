"""Brokers as contracts use them: simulated ones, and real ones, with the same clients."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.group_member import GroupMember
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.testing import Clients, SimTopic, new_cluster
from knowledgepulse_kafka.topic_reader import TopicReader
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.settings import TopicSettings
from support.streams import Stream

PARTITIONS = 2


class Stage:
    """Two topics and a group.

    Attributes:
        source: a topic.
        target: another one.
        group: the group of members and sessions, which read the first.
        reader: reads both.
    """

    source, target, group = "source", "target", "a-group"

    async def values(self, topic):
        """Return the values that consumers see in a topic."""
        found = []
        for partition in range(PARTITIONS):
            offsets = await self.reader.bounds(topic, partition)
            found += [record.value async for record in self.reader.read(topic, partition, offsets)]
        return sorted(found)


class Simulated(Stage):
    """Simulated brokers."""

    def __init__(self) -> None:
        self._cluster = new_cluster()
        for name in (self.source, self.target):
            self._cluster.create(SimTopic.new(name, PARTITIONS))
        self._clients = Clients(self._cluster)
        self.reader = self._clients.reader()

    def new_member(self):
        return self._clients.member(Config(), [self.source], 10)

    def publisher(self, name):
        return self._clients.publisher(Config(), name)

    def session(self):
        return self._clients.session(Config(group=self.group), [self.source], uuid4().hex)

    async def committed(self):
        """Return the group's offsets in the source, by partition."""
        found = self._cluster.group.committed
        return [
            found[self.source, number].offset if (self.source, number) in found else 0
            for number in range(PARTITIONS)
        ]


class Kafka(Stage):
    """Real brokers."""

    def __init__(self, stream: Stream, reader: TopicReader) -> None:
        self.source, self.target = stream.settings.topics.raw, stream.settings.topics.contribute
        self.group = f"group-{uuid4().hex}"
        self.reader = reader
        self._kafka = stream.settings.kafka.model_copy(update={"group": self.group})
        self._config = replace(stream.settings.kafka.client_config(), group=self.group)

    def new_member(self):
        return GroupMember(self._config, 10**6, rebalance_timeout=10)

    def publisher(self, name):
        return TransactionalPublisher(self._config, name)

    def session(self):
        return Session(self._config, [self.source], uuid4().hex, decoded_bytes=10**6)

    async def committed(self):
        async with TopicAdmin(self._kafka, TopicSettings()) as admin:
            return await admin.committed((await admin.describe([self.source]))[self.source])
