"""A cluster's topics in memory, with brokers that learn of changes one by one and an admin client."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.settings import KafkaSettings, TopicSettings

NAMES = TopicSettings()
CHANGELOG = "knowledgepulse-worker-ledger-changelog"
POLICIES = "knowledgepulse-worker-policies"
DAY_MS = 86_400_000
DEFAULTS = {
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
    "min.insync.replicas": "2",
    "retention.ms": str(7 * DAY_MS),
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
}


class Response(NamedTuple):
    resources: Any = ()
    topic_errors: Any = ()


class Brokers:
    """A fake admin client that asks several brokers in turn; only the first knows of recent changes.

    Another broker learns of a topic only after it was asked for its topics and did not know it yet.

    Attributes:
        replicas: the number of replicas and of those in sync, where these are more than one, by topic.
    """

    def __init__(self, count=3):
        self.configs = {}
        self.partitions = {}
        self.replicas = {}
        self._known = [set() for _ in range(count)]
        self._asked = -1
        self.coordinators = []
        self.refusal = None

    @property
    def _client(self):
        """A client for single requests, to which clients from the factory may be bound again and again."""
        return SimpleNamespace(
            _get_conn=self._unconnected,
            _bootstrap_servers="broker:9092",
            _metadata_update=None,
            bootstrap=None,
            close=None,
            cluster=SimpleNamespace(),
        )

    async def _unconnected(self, _node): ...

    async def start(self): ...

    async def close(self): ...

    def add(self, name, partitions, **config):
        self.partitions[name] = partitions
        self.configs[name] = DEFAULTS | config
        for known in self._known:
            known.add(name)

    async def create_topics(self, topics):
        for topic in topics:
            self.partitions[topic.name] = topic.num_partitions
            self.configs[topic.name] = DEFAULTS | topic.topic_configs
            self._asked = -1
            self._known[0].add(topic.name)
        return Response(topic_errors=[(topic.name, 0, None) for topic in topics])

    async def create_partitions(self, counts):
        if self.refusal is not None:
            raise self.refusal
        for name, new in counts.items():
            self.partitions[name] = new.total_count

    async def list_topics(self):
        self._asked = (self._asked + 1) % len(self._known)
        known = set(self._known[self._asked])
        self._known[self._asked] |= self.partitions.keys()
        return known

    async def describe_topics(self, names):
        return [self._described(name) for name in names]

    def _described(self, name):
        if name not in self.partitions:
            return {"topic": name, "error_code": UnknownTopicOrPartitionError.errno, "partitions": []}
        replicas, in_sync = self.replicas.get(name, (1, 1))
        partitions = [
            {"partition": number, "replicas": [*range(replicas)], "isr": [*range(in_sync)]}
            for number in range(self.partitions[name])
        ]
        return {"topic": name, "error_code": 0, "partitions": partitions}

    async def list_consumer_group_offsets(self, group, partitions):
        answer = self.coordinators.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {at: OffsetAndMetadata(offset, "") for at, offset in zip(partitions, answer, strict=False)}

    async def describe_configs(self, resources):
        return [
            Response(
                [
                    (
                        0,
                        None,
                        2,
                        resource.name,
                        [(key, value) for key, value in self.configs[resource.name].items()],
                    )
                ]
            )
            for resource in resources
        ]


@pytest.fixture
def brokers():
    return Brokers()


@pytest.fixture
def admin(brokers, monkeypatch):
    monkeypatch.setattr("knowledgepulse_kafka.client_factory.AIOKafkaAdminClient", lambda **_: brokers)
    return TopicAdmin(KafkaSettings(), NAMES)


@pytest.fixture
def fit(brokers):
    """Add topics like `kp-worker topics`, with changed settings for one of them."""

    def add(changed="", **config):
        for name in (NAMES.raw, NAMES.contribute, NAMES.rejected, NAMES.dead_letter, CHANGELOG, POLICIES):
            own = {"cleanup.policy": "compact"} if name in (CHANGELOG, POLICIES) else {}
            brokers.add(name, 4, **(own | (config if name == changed else {})))

    return add
