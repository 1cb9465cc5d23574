"""A whole worker without a broker and without Faust: in-memory group, topic and publisher."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest
from prometheus_client import CollectorRegistry

from fakes.memory_group import MemoryGroupMember, MemoryTopic, MemoryTopicIds
from fakes.memory_publisher import MemoryPublisher
from knowledgepulse_kafka.commit_outcome import Committed, Rebalanced
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.request_waits import Waits
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_kafka.transactional_publisher import metadata_of
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import PolicyInForce
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.stream.app import WorkerApp, services_of
from support.program import Program

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
    """Reads the changelog from the in-memory publisher, and knows the end of the raw topic.

    Attributes:
        gates: by partition, an event that blocks reading its changelog until set.
        truncated: partitions with a changelog that cannot be read to its end.
        reading: partitions being read.
        max_parallel: the highest number of partitions read at once.
    """

    def __init__(self, publisher, raw):
        self._publisher = publisher
        self._raw = raw
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

    async def appended(self, topic, partitions):
        if topic == RAW:
            return {number: range(self._raw.end(number)) for number in partitions}
        return {number: await self.bounds(topic, number) for number in partitions}

    async def read(self, topic, partition, offsets):
        self.reading.add(partition)
        self.max_parallel = max(self.max_parallel, len(self.reading))
        if partition in self.gates:
            await self.gates[partition].wait()
        for offset in offsets:
            if partition in self.truncated and offset == offsets[-1]:
                raise TopicError("the broker returns no more records")
            message = self._records(topic, partition)[offset]
            size = -1 if message.value is None else len(message.value)
            yield Record(topic, partition, offset, 0, 0, message.key, message.value, None, -1, size, ())
        self.reading.discard(partition)


class GroupPublisher:
    """Publishes in memory, and commits a group's positions, in place of a ``TransactionalPublisher``."""

    start_age = 0.0

    def __init__(self, member, topic, publisher):
        self.waits = Waits()
        self._member = member
        self._topic = topic
        self._publisher = publisher

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        """Close nothing."""

    async def commit(self, records, positions, group, alone=()):
        await self._publisher.gate.wait()
        if group != self._member.group or not self._member.is_member:
            return Rebalanced()
        by_number = {number: position for (_, number), position in positions.items()}
        outcome = await self._publisher.publish(records, by_number, alone)
        if not isinstance(outcome, Committed):
            return outcome
        for number, position in by_number.items():
            self._topic.committed[number] = position.offset
            self._topic.metadata[number] = metadata_of(position)
        return outcome


class World:
    """One worker, on a topic that outlives it.

    Args:
        program: makes the program to run it in of the worker.
        ledgers: the changelog's partition count; by default, that of the topic.
    """

    def __init__(self, program, topic, publisher, ledgers=None, **limits):
        self.topic = topic
        self.publisher = publisher
        self.reader = MemoryReader(publisher, topic)
        self.member = MemoryGroupMember(topic)
        self.topic_ids = MemoryTopicIds(topic)
        self.failures = []
        self.registry = CollectorRegistry()
        self.settings = Settings(embedding={"backend": "none"}, limits=limits, log={})
        self.changelog = changelog_topic_name(self.settings.kafka.group)
        count = len(topic.records)
        names = (RAW, "contribute", "rejected", "dead-letter", self.changelog)
        topics = {name: Topic(name, count, 1_000_000) for name in names}
        self.app = WorkerApp(
            services_of(
                self.settings,
                topics,
                batcher=None,
                metrics=Metrics(self.settings.policy, 0.1, self.registry),
                policy=PolicyInForce(self.settings.policy),
            ),
            topics[RAW],
            Topic(self.changelog, count if ledgers is None else ledgers, 1_000_000),
            join=self._join,
            topic_ids=self.topic_ids,
            reader=self.reader.connect,
            on_failure=self.failures.append,
        )
        self.program = program(self.app)

    @property
    def source(self):
        return self.program.source

    def _join(self, rebalances):
        config = self.settings.kafka.client_config()
        made = {"new_member": lambda *_: self.member, "new_producer": lambda **_: None}
        session = Session(config, [RAW], "an-id", decoded_bytes=10**6, rebalances=rebalances, **made)
        session.publisher = GroupPublisher(self.member, self.topic, self.publisher)
        return session

    async def start(self):
        await self.source.__aenter__()
        await self.program.start()

    async def check(self):
        """Check as the worker does every second."""
        await self.app.checks.check()

    async def stop(self):
        self.publisher.gate.set()
        await self.program.stop()
        await self.source.__aexit__()

    def publish(self, partition, *numbers):
        for number in numbers:
            self.topic.publish(partition, TRACE, b"%d" % number)

    def outputs(self, partition=None):
        """Return the keys of the committed outputs, in order."""
        records = self.publisher.records("contribute", "rejected", "dead-letter")
        return [int(record.key) for record in records if partition in (None, record.partition)]

    async def committed(self, positions):
        await self.until(lambda: self.topic.committed == positions)

    async def finished(self, *keys):
        await self.until(lambda: sorted(self.outputs()) == sorted(keys))

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
async def start_in():
    """Start a worker: `await start_in(Program, topic, publisher)`; all are stopped at the end."""
    worlds = []

    async def new(program, topic=None, publisher=None, partitions=2, **limits):
        topic = topic or MemoryTopic.empty(RAW, partitions, b"first")
        world = World(program, topic, publisher or MemoryPublisher(len(topic.records)), **limits)
        worlds.append(world)
        await world.start()
        return world

    yield new
    for world in worlds:
        world.reader.gates.clear()
        await world.stop()


@pytest.fixture
def start(start_in):
    """Start a worker: `await start(topic, publisher)`."""
    return partial(start_in, Program)
