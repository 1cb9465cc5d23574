"""Records that kill the process that works on them, over many lives of a worker under one parent."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

import knowledgepulse_worker.lane.lane
from knowledgepulse_worker.embedding.batcher import Embedded
from knowledgepulse_worker.lane.lane import LaneServices
from knowledgepulse_worker.lane.lanes import Lanes
from knowledgepulse_worker.lane.ring import Changelog
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy, PolicyInForce
from knowledgepulse_worker.process.poison import after_death
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.records.journal import Journal, Phase, shared_memory
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.record import Location, RawRecord
from knowledgepulse_worker.settings import CacheSettings, LimitSettings, TopicSettings
from knowledgepulse_worker.testing.memory_publisher import MemoryPublisher
from support.lanes import trace_of

OUTPUTS = ("contribute", "rejected", "dead-letter")
PARTITIONS = 2
MAX_LIVES = 60


class DeathError(Exception):
    """Ends a life at once."""


class Batcher:
    """Embeds waiting texts, a few at a time; a vector depends on its text alone."""

    embedder = SimpleNamespace(identity="fake", precision="float32")

    def __init__(self, world):
        self._world = world
        self._waiting = []

    async def submit(self, text):
        self._waiting.append((text, asyncio.get_running_loop().create_future()))
        return self._waiting[-1][1]

    def embed(self):
        batch, self._waiting = self._waiting[:4], self._waiting[4:]
        locations = [Location(*map(int, text.split()[:2])) for text, _ in batch]
        if any(self._world.deadly.get(location) == "embed" for location in locations):
            self._world.die()
            return
        for location, (_, result) in zip(locations, batch, strict=True):
            vector = np.random.default_rng(location).normal(size=4).astype(np.float32)
            if not result.done():
                result.set_result(Embedded(vector / np.linalg.norm(vector), 0.0, 0.0, 0.0))


class Publisher(MemoryPublisher):
    """Dies when it gets the output of a record that is deadly to send."""

    def __init__(self, world):
        super().__init__()
        self._world = world

    async def send(self, record):
        location = _location(record)
        how = self._world.deadly.get(location)
        if how == "send anything" or (how == "send scored" and record.topic != "dead-letter"):
            self._world.die()
            raise DeathError
        return await super().send(record)


@dataclass
class World:
    """The broker and the parent, which outlive a worker process."""

    records: list
    deadly: dict
    attempts: int = 3
    skip: bool = False

    def __post_init__(self):
        self.publisher = Publisher(self)
        self.memory = shared_memory()
        self.journal = Journal()
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.metrics = Metrics(Policy(), 0.1, CollectorRegistry())
        self.died = False
        self.lives = 0

    def die(self):
        """End the process: from here on it writes nothing."""
        self.died = True
        self.journal.close(frozenset(Phase))

    def decode(self, value, limit):
        trace = decode_trace(value, limit)
        if self.deadly.get(Location(*map(int, trace.task.objective.split()[:2]))) == "decode":
            self.die()
            raise DeathError
        return trace

    async def live(self, kill_after=None):
        """Run one process from start to end; return whether it reached the end of the records."""
        self.journal, self.died = Journal(self.memory), False
        self.lives += 1
        batcher = Batcher(self)
        services = LaneServices(
            policy=PolicyInForce(Policy()),
            cache=CacheSettings(max_elements=50, dimensions=4),
            limits=LimitSettings(in_flight_records=6, uncommitted_records=16, poison_attempts=self.attempts),
            batcher=batcher,
            outputs=Outputs(TopicSettings(), dict.fromkeys(("raw-traces", *OUTPUTS), PARTITIONS)),
            publisher=self.publisher,
            changelog_topic="ledger",
            metrics=self.metrics,
            journal=self.journal,
        )
        changelogs = [self._changelog(number) for number in range(PARTITIONS)]
        lanes = Lanes(services, changelogs.__getitem__, lambda error: self.die())
        lanes.open()
        lanes.committed(self.committed)
        with patch.object(knowledgepulse_worker.lane.lane, "decode_trace", self.decode):
            feeding = [asyncio.create_task(self._feed(lanes, number)) for number in range(PARTITIONS)]
            turns = 0
            while not self.died and any(
                self.committed[one.partition] <= one.offset for one in self.records[-PARTITIONS:]
            ):
                batcher.embed()
                await asyncio.sleep(0)
                turns += 1
                assert turns < 2_000, "a life that never ends"
                if turns == kill_after:
                    self.die()
                if not self.died and turns % 3 == 0:
                    self.committed |= lanes.watermarks()
                    lanes.committed(self.committed)
            for task in feeding:
                task.cancel()
            await asyncio.gather(*feeding, return_exceptions=True)
            await lanes.abandon()
        self._update_suspects()
        return not self.died

    def _update_suspects(self):
        """Update the suspects, as the parent does."""
        journal = Journal(self.memory)
        journal.prepare(after_death(journal.suspects(), journal.in_progress(), self.attempts, skip=self.skip))

    def _changelog(self, partition):
        changelog = Changelog(partition)
        for number, record in enumerate(
            r for r in self.publisher.records("ledger") if r.partition == partition
        ):
            changelog.apply(number, record.key, record.value)
        return changelog

    async def _feed(self, lanes, partition):
        for record in self.records:
            if record.partition == partition and record.offset >= self.committed[partition]:
                await lanes.take(record)

    def outputs(self):
        """Return each record's output, after checking that its duplicates are equal."""
        outputs = {}
        for output in self.publisher.records(*OUTPUTS):
            assert outputs.setdefault(_location(output), output) == output
        return outputs


def _location(output):
    headers = dict(output.headers)
    if "kp-source" in headers:
        return Location(*map(int, headers["kp-source"].split(b"/")[1:]))
    if "kp-reason" in headers:
        names = ("__streams.errors.partition", "__streams.errors.offset")
        return Location(*(int(headers[name]) for name in names))
    return None


def _reason(output):
    return dict(output.headers).get("kp-reason")


def _records(count):
    return [
        _record(Location(partition, offset)) for offset in range(count) for partition in range(PARTITIONS)
    ]


def _record(location):
    trace = trace_of(location.offset, f"{location.partition} {location.offset}", 0.9)
    return RawRecord("raw-traces", *location, location.offset, b"key", trace, ())


async def _run_to_the_end(world):
    while not await world.live():
        assert world.lives < MAX_LIVES, "the worker never got through"


def _expected(records, deadly):
    """Return the outputs of a run without deadly records, of which some are never scored."""
    unscored = {location for location, how in deadly.items() if how in {"decode", "embed"}}
    world = World([record for record in records if record.location not in unscored], {})
    asyncio.run(_run_to_the_end(world))
    return {location: output for location, output in world.outputs().items() if location not in deadly}


locations = st.builds(Location, st.integers(0, PARTITIONS - 1), st.integers(0, 9))


@given(
    deadly=st.dictionaries(
        locations, st.sampled_from(["decode", "embed", "send scored", "send anything"]), max_size=4
    ),
    attempts=st.integers(1, 4),
)
@settings(max_examples=30)
def test_deadly_records_become_dead_letters_and_change_no_other_score(deadly, attempts):
    """Only a record that is deadly even as a dead letter is skipped, if that is allowed."""
    records = _records(11)
    world = World(records, deadly, attempts, skip=True)
    asyncio.run(_run_to_the_end(world))

    outputs = world.outputs()
    skipped = {location for location, how in deadly.items() if how == "send anything"}
    assert set(outputs) == {record.location for record in records} - skipped
    buried = {location for location, output in outputs.items() if _reason(output) == b"poison"}
    assert buried == set(deadly) - skipped
    for record in records:
        if record.location in buried:
            assert outputs[record.location].value == record.value
    assert {location: output for location, output in outputs.items() if location not in buried} == _expected(
        records, deadly
    )


@given(kills=st.lists(st.integers(1, 60), max_size=2))
@settings(max_examples=15)
def test_a_kill_from_outside_causes_no_dead_letter(kills):
    records = _records(11)
    world = World(records, {})

    async def run():
        for turns in kills:
            await world.live(kill_after=turns)
        await _run_to_the_end(world)

    asyncio.run(run())
    assert world.outputs() == _expected(records, {})


def test_a_record_deadly_even_as_a_dead_letter_blocks_its_partition_unless_skipping_is_allowed():
    deadly = Location(0, 3)
    world = World(_records(5), {deadly: "send anything"})

    async def run():
        for _ in range(10):
            assert not await world.live()

    asyncio.run(run())
    assert world.committed[0] == deadly.offset
    assert deadly not in world.outputs()
    assert world.metrics.registry.get_sample_value("kp_poison_skipped_total") == 0
