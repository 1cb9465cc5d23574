"""A whole worker without a broker: Faust's app over an in-memory group member, topic and publisher."""

import asyncio
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry

from schemas import ReasoningTrace
from worker.errors import TopicError
from worker.kafka.topic_reader import Record
from worker.kafka.topics import Topic, changelog_topic_name
from worker.observe.metrics import Metrics
from worker.policy import PolicyInForce
from worker.settings import Settings
from worker.stream.app import Clients, WorkerApp
from worker.testing.memory_group import MemoryGroupMember, MemoryTopic, MemoryTopicIds
from worker.testing.memory_publisher import MemoryPublisher

RAW = "raw-traces"
TRACE = ReasoningTrace.new(
    objective="Fix the failing build",
    steps=[{"type": "thought"}, {"type": "observation"}],
    result_summary="",
    confidence=0.5,
    success=True,
    task_domain="code",
).to_json()


class MemoryReader:
    """Reads the changelog from the in-memory publisher.

    Attributes:
        gates: by partition, an event that blocks reading its changelog until set.
        truncated: partitions with a changelog that cannot be read to its end.
        reading: partitions being read.
        max_parallel: the highest number of partitions read at once.
    """

    def __init__(self, publisher):
        self._publisher = publisher
        self.gates = {}
        self.truncated = set()
        self.reading = set()
        self.max_parallel = 0

    @asynccontextmanager
    async def connect(self):
        yield self

    def _records(self, topic, partition):
        return [record for record in self._publisher.records(topic) if record.partition == partition]

    async def bounds(self, topic, partition):
        return range(len(self._records(topic, partition)))

    async def read(self, topic, partition, offsets):
        self.reading.add(partition)
        self.max_parallel = max(self.max_parallel, len(self.reading))
        if partition in self.gates:
            await self.gates[partition].wait()
        for offset in offsets:
            if partition in self.truncated and offset == offsets[-1]:
                raise TopicError("the broker returns no more records")
            one = self._records(topic, partition)[offset]
            size = -1 if one.value is None else len(one.value)
            yield Record(topic, partition, offset, 0, 0, one.key, one.value, None, -1, size, ())
        self.reading.discard(partition)


class World:
    """One worker, on a topic that outlives it."""

    def __init__(self, topic, publisher, **limits):
        self.topic = topic
        self.publisher = publisher
        self.reader = MemoryReader(publisher)
        self.member = MemoryGroupMember(topic)
        self.failures = []
        self.registry = CollectorRegistry()
        self.settings = Settings(embedding={"backend": "none"}, limits=limits, log={})
        self.socket = f"@kp-test-{uuid4()}"
        self.changelog = changelog_topic_name(self.settings.kafka.group)
        count = len(topic.records)
        names = (RAW, "contribute", "rejected", "dead-letter")
        self.app = WorkerApp(
            self.settings,
            self.socket,
            {name: Topic(name, count, 1_000_000) for name in names},
            None,
            Clients(
                group=lambda: self.member,
                topic_ids=MemoryTopicIds(topic),
                reader=self.reader.connect,
                publisher=publisher,
            ),
            Metrics(self.settings.policy, 0.1, self.registry),
            PolicyInForce(self.settings.policy),
            self.failures.append,
        )

    async def start(self):
        """Start the app; Faust has fully started after the first rebalance."""
        self._starting = asyncio.create_task(self.app.faust.start())

    async def stop(self):
        self.publisher.release("contribute", "rejected", "dead-letter", self.changelog)
        await self.app.faust.stop()
        self._starting.cancel()
        await asyncio.wait([self._starting])

    def publish(self, partition, *numbers):
        for number in numbers:
            self.topic.publish(partition, TRACE, b"%d" % number)

    def outputs(self, partition=None):
        """Return the keys of the confirmed outputs, in order of confirmation."""
        records = self.publisher.records("contribute", "rejected", "dead-letter")
        return [int(one.key) for one in records if partition in (None, one.partition)]

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)

    async def settle(self):
        """Wait until the source has fetched several times and is otherwise idle."""
        for _ in range(10):
            await self.member.fetched()

    def metric(self, name, **labels):
        self.app.metrics.render("", content=False)
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
async def start():
    """Start a worker on a topic: `await start(topic, publisher)`. All workers are stopped at the end."""
    worlds = []

    async def new(topic=None, publisher=None, partitions=2, **limits):
        topic = topic or MemoryTopic.empty(RAW, partitions, b"first")
        world = World(topic, publisher or MemoryPublisher(len(topic.records)), **limits)
        worlds.append(world)
        await world.start()
        return world

    yield new
    for world in worlds:
        world.reader.gates.clear()
        await world.stop()
