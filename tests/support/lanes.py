"""Traces, and lanes with an in-memory publisher and an embedder that tests can stall, break and count."""

import asyncio
import json
import threading
from typing import Any

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.commit_outcome import Committed
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import Fault, RawRecord
from knowledgepulse_worker.embedding.base import Embeddings
from knowledgepulse_worker.embedding.batcher import Batcher
from knowledgepulse_worker.lane.assignment import Assignment
from knowledgepulse_worker.lane.commit import prepare, settle
from knowledgepulse_worker.lane.fair_scheduler import FairScheduler
from knowledgepulse_worker.lane.lane import Lane, Services
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.lane.replacements import Replacements
from knowledgepulse_worker.lane.reporter import Reporter
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.policy import Policy, PolicyInForce
from knowledgepulse_worker.process.quarantine import Quarantine
from knowledgepulse_worker.records.ledger_records import Entry
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.redaction.copies import Redaction
from knowledgepulse_worker.settings import CacheSettings, LimitSettings, Settings, TopicSettings
from support import waits
from support.memory_publisher import MemoryPublisher
from support.traces import made

DIMENSIONS = 8

# The dot products of these unit vectors are exact in single precision, so that scores agree to the last bit.
VECTORS = [
    *(
        tuple(sign if index == axis else 0.0 for index in range(4))
        for axis in range(4)
        for sign in (1.0, -1.0)
    ),
    *((a, b, c, d) for a in (0.5, -0.5) for b in (0.5, -0.5) for c in (0.5, -0.5) for d in (0.5, -0.5)),
]


def trace_of(
    number: int, objective: str, confidence: float, agent_id: str | None = None, **metadata: Any
) -> bytes:
    """Return a trace of the domain `code` with this objective."""
    trace = made(
        objective,
        [{"type": "thought"}, {"type": "observation"}],
        confidence=confidence,
        created_at="2026-01-31T12:00:00Z",
        agent_id=agent_id,
        **metadata,
    )
    return trace.model_copy(update={"id": f"kp:trace:{number}"}).to_json()


@pytest.fixture(scope="session")
def document():
    """Return a factory of valid traces as dicts, with members replaced or added."""

    def new(**members):
        return {
            "@context": "https://openknowledgepulse.org/schema/v1",
            "@type": "ReasoningTrace",
            "id": "kp:trace:1",
            "metadata": {
                "created_at": "2026-01-31T12:00:00Z",
                "task_domain": "code",
                "success": True,
                "visibility": "network",
                "privacy_level": "aggregated",
            },
            "task": {"objective": "Fix the failing build"},
            "steps": [{"step_id": 0, "type": "thought"}, {"step_id": 1, "type": "observation"}],
            "outcome": {"result_summary": "", "confidence": 0.5},
        } | members

    return new


@pytest.fixture(scope="session")
def raw(document):
    """Return a factory of raw records, each with a distinct trace unless a value is given."""

    def new(offset, value=b"a trace", *, partition=0, padding=0):
        if value == b"a trace":
            trace = document(id=f"kp:trace:{partition}/{offset}", free="x" * padding)
            value = json.dumps(trace).encode()
        return RawRecord(
            "raw-traces", partition, offset, 1_700_000_000_000 + offset % 1000, b"key", value, (("h", b"1"),)
        )

    return new


def headers(output):
    """Return an output's headers by name."""
    return dict(output.headers)


def score(output):
    """Return an output's kp-score."""
    return json.loads(headers(output)["kp-score"])


def unread(offset, reason="too_large"):
    """Return the placeholder for a record in a batch that could not be decoded."""
    return RawRecord("raw-traces", 0, offset, 0, None, None, (), fault=Fault(reason, "the batch up to 1"))


async def commit(assignment, publish):
    """Commit what an assignment has completed; return its new positions, an empty dict if there are none."""
    prepared, positions = assignment.prepare(), {}
    while prepared is not None:
        outcome = await publish(prepared.records, prepared.positions, prepared.alone)
        if isinstance(outcome, Committed):
            positions = {number: position.offset for number, position in prepared.positions.items()}
        prepared = assignment.settle(prepared, outcome)
    return positions


async def feed(lane, *records):
    for record in records:
        await lane.take(record)


def idle_task() -> PartitionTask:
    """Return a task of partition 0 that takes nothing."""
    turns = FairScheduler(Quarantine(), stall=1)
    nothing = lambda *_: None  # noqa: E731
    return PartitionTask(
        Place("raw", 0), Changelog(0), turns, new_lane=nothing, on_failure=nothing, on_room=nothing
    )


class FakeEmbedder:
    """Returns a new random vector for every text, so that a repeated embedding shows."""

    dimensions = DIMENSIONS
    identity = "fake"
    precision = "float32"
    device = "cpu"
    parallel = 1
    description = "fake"

    def __init__(self):
        self.requested = 0
        self.texts = []
        self.error = None
        self.free = threading.Event()
        self.free.set()
        self._random = np.random.default_rng(0)

    def embed(self, texts):
        self.requested += len(texts)
        self.free.wait()
        if self.error is not None:
            raise self.error
        self.texts += texts
        vectors = self._random.normal(size=(len(texts), self.dimensions)).astype(np.float32)
        return Embeddings(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 0)


class Harness:
    """The dependencies of lanes, and what the lanes did with them."""

    until = staticmethod(waits.until)
    ledger = "ledger"
    scored = ("contribute", "rejected")
    dead_letter = "dead-letter"
    redacted = "redacted"

    def __init__(self, policy, embedding, admitted, limits, redact):
        self.embedder = FakeEmbedder()
        self.embedder.batch = admitted
        self.batcher = Batcher(self.embedder)
        self.publisher = MemoryPublisher()
        self.failures = []
        self.commit_requested = False
        self.registry = CollectorRegistry()
        self.limits = LimitSettings(**limits)
        topics = ("raw-traces", *self.scored, self.dead_letter, self.redacted)
        outputs = Outputs(TopicSettings(), dict.fromkeys(topics, 3))
        policy = policy or Policy()
        in_force = PolicyInForce(policy)
        metrics = Metrics(policy, 0.1, self.registry)
        shadow = ShadowComparison(in_force)
        redaction = Redaction(redact, self.redacted, outputs, metrics) if redact else None
        self.services = Services(
            settings=Settings(cache=CacheSettings(max_elements=4, dimensions=DIMENSIONS), limits=self.limits),
            policy=in_force,
            batcher=self.batcher if embedding else None,
            replacements=Replacements(outputs, lambda _: None, redaction),
            changelog_topic=self.ledger,
            metrics=metrics,
            shadow=shadow,
            reporter=Reporter(metrics, shadow),
        )
        self._lanes = []

    async def lane(self, next_offset=0, changelog=None) -> Lane:
        """Return an open lane of partition 0."""
        first = RawRecord("raw-traces", 0, next_offset, 0, None, None, ())
        lane = Lane(
            first,
            changelog or Changelog(0),
            self.services,
            self.failures.append,
            self._request_commit,
            lambda: None,
        )
        self._lanes.append(lane)
        await lane.ledger.open()
        return lane

    def assignment(self, changelogs=None) -> Assignment:
        """Return an assignment of three partitions, or of those with these changelogs."""
        assignment = Assignment(
            changelogs or {number: Changelog(number) for number in range(3)},
            GroupMetadata("a-group"),
            self.services,
            on_failure=self.failures.append,
            request_commit=self._request_commit,
            on_complete=lambda: None,
            on_room=lambda _: None,
        )
        self._lanes.append(assignment)
        return assignment

    def changelog(self, partition=0) -> Changelog:
        """Return the changelog as recovery would read it now."""
        changelog = Changelog(partition)
        written = [record for record in self.publisher.records(self.ledger) if record.partition == partition]
        for number, record in enumerate(written):
            changelog.apply(number, record.key, record.value)
        return changelog

    def entries(self) -> dict[int, Entry]:
        """Return the entries of partition 0 that a successor would find, by source offset."""
        found = [msgspec.msgpack.decode(value, type=Entry) for value in self.changelog().entries.values()]
        return {entry.offset: entry for entry in sorted(found, key=lambda entry: entry.offset)}

    @property
    def position(self) -> int:
        """The committed position of partition 0."""
        return self.publisher.positions[0].offset if 0 in self.publisher.positions else 0

    def outputs(self):
        """Return the committed outputs."""
        return self.publisher.records(*self.scored, self.dead_letter)

    def metric(self, name, **labels):
        return self.registry.get_sample_value(name, labels)

    async def commit(self, *lanes: Lane) -> None:
        """Commit what lanes have completed."""
        services, prepared = self.services, prepare(lanes)
        while prepared is not None:
            outcome = await self.publisher.commit(prepared)
            prepared = settle(prepared, outcome, services.replacements, services.metrics)

    async def processed(self, lane: Lane, *records: RawRecord) -> None:
        """Take records and commit their outcomes."""
        for record in records:
            await lane.take(record)
        await self.committed(lane, records[-1].offset + 1)

    async def committed(self, lane: Lane, position: int) -> None:
        """Commit until a lane has reached a position."""

        spin = waits.Spin()
        while self.position != position:
            await self.commit(lane)
            await spin.turn()

    async def settle(self) -> None:
        """Run until nothing more can happen, in the embedder's threads too unless they are blocked."""
        for _ in range(100):
            await asyncio.sleep(0)
            await self.until(lambda: not (self.embedder.free.is_set() and self.batcher._results))

    async def close(self) -> None:
        for lanes in self._lanes:
            lanes.close()
        self.embedder.free.set()
        await self.batcher.close()

    def forget(self) -> None:
        """Drop references to closed lanes."""
        self._lanes.clear()
        self.failures.clear()

    def _request_commit(self) -> None:
        self.commit_requested = True


@pytest.fixture
async def no_leaks():
    """Fail a test that leaks a task or an embedder's thread."""
    yield
    for _ in range(10):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    for thread in threading.enumerate():
        if thread.name.startswith("embedder"):
            thread.join(timeout=10)
            assert not thread.is_alive(), thread.name


@pytest.fixture
async def make_harness(no_leaks):
    """Return a factory of harnesses, which are closed at the end of the test."""
    harnesses = []

    def new(*, policy=None, embedding=True, admitted=64, redact=None, **limits):
        harnesses.append(Harness(policy, embedding, admitted, limits, redact))
        return harnesses[-1]

    yield new
    for harness in harnesses:
        await harness.close()
