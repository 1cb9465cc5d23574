"""A whole worker without Faust, on brokers in memory."""

import asyncio
import time
from functools import partial

import pytest
from aiokafka.errors import IllegalGenerationError
from aiokafka.structs import OffsetAndMetadata
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.testing import Clients, SimTopic
from knowledgepulse_kafka.testing.clients import SimReader
from knowledgepulse_kafka.testing.virtual_time import VirtualLoop
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import PolicyInForce
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.stream.app import WorkerApp, services_of
from support.assigned_member import AssignedMember, swift_cluster
from support.program import Program
from support.traces import made

RAW, OUTPUTS = "raw-traces", ("contribute", "rejected", "dead-letter")
TRACE = made(steps=[{"type": "thought"}, {"type": "observation"}]).to_json()


class GatedReader(SimReader):
    """A reader that tests stop.

    Attributes:
        gates: by partition, an event that blocks reading its changelog until set.
        truncated: partitions with a changelog that cannot be read to its end.
        reading: partitions being read.
        max_parallel: the highest number of partitions read at once.
    """

    def __init__(self, cluster):
        super().__init__(cluster, "host")
        self.gates = {}
        self.truncated = set()
        self.reading = set()
        self.max_parallel = 0

    async def read(self, topic, partition, offsets):
        self.reading.add(partition)
        self.max_parallel = max(self.max_parallel, len(self.reading))
        if partition in self.gates:
            await self.gates[partition].wait()
        if partition in self.truncated:
            raise TopicError("the broker returns no more records")
        async for record in super().read(topic, partition, offsets):
            yield record
        self.reading.discard(partition)


class World:
    """One worker, on brokers that outlive it.

    Args:
        program: makes the program to run it in of the worker.
        cluster: the brokers; by default, new ones with these partitions.
        ledgers: the changelog's partition count; by default, that of the topic.
    """

    def __init__(self, program, cluster=None, partitions=2, ledgers=None, **limits):
        self.settings = Settings(embedding={"backend": "none"}, limits=limits, log={})
        self.changelog = changelog_topic_name(self.settings.kafka.group)
        self.cluster = cluster or self._new_cluster(partitions, ledgers or partitions)
        self.member = AssignedMember(self.cluster, RAW)
        self.reader = GatedReader(self.cluster)
        clients = Clients(self.cluster)
        self.topic_ids = clients.topic_ids(RAW)
        self._new_producer = clients.new_producer
        self.failures = []
        self.registry = CollectorRegistry()
        topics = {
            name: Topic(name, len(topic.logs), 1_000_000) for name, topic in self.cluster.topics.items()
        }
        self.app = WorkerApp(
            services_of(
                self.settings,
                topics,
                batcher=None,
                metrics=Metrics(self.settings.policy, 0.1, self.registry),
                policy=PolicyInForce(self.settings.policy),
            ),
            topics[RAW],
            topics[self.changelog],
            join=self._join,
            topic_ids=self.topic_ids,
            reader=lambda: self.reader,
            on_failure=self.failures.append,
        )
        self.program = program(self.app)

    def _new_cluster(self, partitions, ledgers):
        cluster = swift_cluster()
        cluster.epoch = time.time() - cluster.loop.time()
        for name in (RAW, *OUTPUTS):
            cluster.create(SimTopic.new(name, partitions, b"first"))
        cluster.create(SimTopic.new(self.changelog, ledgers))
        return cluster

    @property
    def source(self):
        return self.program.source

    def _join(self, rebalances):
        made = {"new_member": lambda *_: self.member, "new_producer": self._new_producer}
        config = self.settings.kafka.client_config()
        return Session(config, [RAW], "an-id", decoded_bytes=10**6, rebalances=rebalances, **made)

    async def start(self):
        await self.source.__aenter__()
        await self.program.start()

    async def check(self):
        """Check as the worker does every second."""
        await self.app.checks.check()

    async def stop(self):
        self.hold(False)
        await self.program.stop()
        await self.source.__aexit__()

    # --- the brokers

    def hold(self, is_held=True):
        """Let no transaction go on."""
        self.cluster.transactions.loading_until = float("inf") if is_held else 0.0

    def lose(self, is_lost=True):
        """Refuse the positions of the member, as of a former generation."""
        self.cluster.group.refusing = IllegalGenerationError if is_lost else None

    def log(self, partition, topic=RAW):
        return self.cluster.topics[topic].logs[partition]

    def append(self, topic, partition, key, value):
        self.log(partition, topic).append([OutputRecord(topic, partition, 0, key, value, ())], 0)

    def publish(self, partition, *numbers):
        for number in numbers:
            self.append(RAW, partition, b"%d" % number, TRACE)

    def create_again(self, topic, topic_id=b"second"):
        """Delete a topic, which is there again at once, and empty."""
        count = len(self.cluster.topics[topic].logs)
        self.cluster.create(SimTopic.new(topic, count, topic_id))

    def move_to(self, partition, offset, metadata=""):
        """Commit a position of the group."""
        self.cluster.group.committed[RAW, partition] = OffsetAndMetadata(offset, metadata)

    @property
    def positions(self):
        return {at[1]: position.offset for at, position in self.cluster.group.committed.items()}

    def outputs(self, partition=None):
        """Return the keys of the committed outputs, in order."""
        found = [
            (number, record.offset, int(record.key))
            for topic in OUTPUTS
            for number, records in self.cluster.committed_records(topic).items()
            for record in records
            if partition in (None, number)
        ]
        return [key for *_, key in sorted(found)]

    # --- waits

    async def committed(self, positions):
        """Wait for positions, and for the markers without which nobody sees the outputs."""
        await self.until(lambda: self.positions == positions and self.cluster.transactions.have_ended)

    async def take_over(self, position):
        """Get partition 0, and read it up to this position."""
        await self.member.rebalance([0])
        await self.committed({0: position})

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
    """Start a worker: `await start_in(Program, cluster)`; all are stopped at the end."""
    worlds = []

    async def new(program, cluster=None, **given):
        world = World(program, cluster, **given)
        worlds.append(world)
        await world.start()
        return world

    yield new
    for world in worlds:
        world.reader.gates.clear()
        await world.stop()


@pytest.fixture
def start(start_in):
    """Start a worker: `await start(cluster)`."""
    return partial(start_in, Program)


@pytest.fixture
def _asyncio_loop_factory(request):
    """On brokers in memory, waits take no time; the hook of pytest-asyncio for loops knows no fixtures."""
    return VirtualLoop if "start_in" in request.fixturenames else None
