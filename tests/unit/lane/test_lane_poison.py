"""Records that kill the process at which they are worked on, over the lives of a worker and its parent."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

import worker.lane.lane
from schemas import ReasoningTrace
from worker.embedding.batcher import Embedded
from worker.journal import Journal, Phase, Place, shared_memory
from worker.lane.decode import decode_trace
from worker.lane.lane import LaneServices
from worker.lane.lanes import Lanes
from worker.lane.ledger import Changelog
from worker.lane.memory_publisher import MemoryPublisher
from worker.lane.outputs import Outputs
from worker.lane.records import RawRecord
from worker.observe.metrics import Metrics
from worker.poison import after_death
from worker.policy import Policy, PolicyInForce
from worker.settings import CacheSettings, LimitSettings, TopicSettings

OUTPUTS = ("contribute", "rejected", "dead-letter")
PARTITIONS = 2
MAX_LIVES = 60


class DeathError(Exception):
    """Ends a life on the spot."""


class Batcher:
    """Embeds what waits, a few at a time; a text's vector is a function of the text alone."""

    embedder = SimpleNamespace(identity="fake", precision="float32")

    def __init__(self, world):
        self._world = world
        self._waiting = []

    async def submit(self, text):
        self._waiting.append((text, asyncio.get_running_loop().create_future()))
        return self._waiting[-1][1]

    def embed(self):
        batch, self._waiting = self._waiting[:4], self._waiting[4:]
        places = [Place(*map(int, text.split()[:2])) for text, _ in batch]
        if any(self._world.deadly.get(place) == "embed" for place in places):
            self._world.die()
            return
        for place, (_, result) in zip(places, batch, strict=True):
            vector = np.random.default_rng(place).normal(size=4).astype(np.float32)
            if not result.done():
                result.set_result(Embedded(vector / np.linalg.norm(vector), 0.0, 0.0, 0.0))


class Publisher(MemoryPublisher):
    """Dies when it is given the output of a record that is deadly to send."""

    def __init__(self, world):
        super().__init__()
        self._world = world

    async def send(self, record):
        place = _place(record)
        how = self._world.deadly.get(place)
        if how == "send anything" or (how == "send scored" and record.topic != "dead-letter"):
            self._world.die()
            raise DeathError
        return await super().send(record)


@dataclass
class World:
    """What outlives a worker's process: the broker, and the parent."""

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
        """From here on the process writes nothing."""
        self.died = True
        self.journal.close(frozenset(Phase))

    def decode(self, value, limit):
        trace = decode_trace(value, limit)
        if self.deadly.get(Place(*map(int, trace.task.objective.split()[:2]))) == "decode":
            self.die()
            raise DeathError
        return trace

    async def live(self, kill_after=None):
        """A process from its start to its end; returns whether it came to the end of the records."""
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
        lanes.committed(self.committed)
        lanes.open()
        with patch.object(worker.lane.lane, "decode_trace", self.decode):
            feeding = [asyncio.create_task(self._feed(lanes, number)) for number in range(PARTITIONS)]
            turns = 0
            while not self.died and any(
                self.committed[one.partition] <= one.offset for one in self.records[-PARTITIONS:]
            ):
                batcher.embed()
                await asyncio.sleep(0)
                turns += 1
                assert turns < 20_000, "a life without end"
                if turns == kill_after:
                    self.die()
                if not self.died and turns % 3 == 0:
                    self.committed |= lanes.watermarks()
                    lanes.committed(self.committed)
            for task in feeding:
                task.cancel()
            await asyncio.gather(*feeding, return_exceptions=True)
            await lanes.abandon()
        self._look()
        return not self.died

    def _look(self):
        """As the parent does."""
        journal = Journal(self.memory)
        journal.prepare(after_death(journal.suspects(), journal.in_progress(), self.attempts, skip=self.skip))

    def _changelog(self, partition):
        changelog = Changelog(partition)
        for place, record in enumerate(
            r for r in self.publisher.records("ledger") if r.partition == partition
        ):
            changelog.apply(place, record.key, record.value)
        return changelog

    async def _feed(self, lanes, partition):
        for record in self.records:
            if record.partition == partition and record.offset >= self.committed[partition]:
                await lanes.take(record)

    def outputs(self):
        """Each record's output, of which all repeats are equal."""
        outputs = {}
        for output in self.publisher.records(*OUTPUTS):
            assert outputs.setdefault(_place(output), output) == output
        return outputs


def _place(output):
    headers = dict(output.headers)
    if "kp-source" in headers:
        return Place(*map(int, headers["kp-source"].split(b"/")[1:]))
    if "kp-reason" in headers:
        names = ("__streams.errors.partition", "__streams.errors.offset")
        return Place(*(int(headers[name]) for name in names))
    return None


def _reason(output):
    return dict(output.headers).get("kp-reason")


def _records(count):
    return [_record(Place(partition, offset)) for offset in range(count) for partition in range(PARTITIONS)]


def _record(place):
    trace = ReasoningTrace.new(
        objective=f"{place.partition} {place.offset}",
        steps=[{"type": "thought"}, {"type": "observation"}],
        result_summary="",
        confidence=0.9,
        success=True,
        task_domain="code",
        created_at="2026-01-31T12:00:00Z",
    ).model_copy(update={"id": f"kp:trace:{place.offset}"})
    return RawRecord("raw-traces", *place, place.offset, b"key", trace.to_json(), ())


async def _to_the_end(world):
    while not await world.live():
        assert world.lives < MAX_LIVES, "the worker never got through"


def _expected(records, deadly):
    """The outputs of a run in which nothing is deadly, without what is never scored."""
    unscored = {place for place, how in deadly.items() if how in {"decode", "embed"}}
    world = World([record for record in records if record.place not in unscored], {})
    asyncio.run(_to_the_end(world))
    return {place: output for place, output in world.outputs().items() if place not in deadly}


places = st.builds(Place, st.integers(0, PARTITIONS - 1), st.integers(0, 9))


@given(
    deadly=st.dictionaries(
        places, st.sampled_from(["decode", "embed", "send scored", "send anything"]), max_size=4
    ),
    attempts=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_deadly_records_are_buried_and_all_others_scored_as_without_them(deadly, attempts):
    """Only a record that is deadly even as a dead letter is skipped, where that is allowed."""
    records = _records(11)
    world = World(records, deadly, attempts, skip=True)
    asyncio.run(_to_the_end(world))

    outputs = world.outputs()
    skipped = {place for place, how in deadly.items() if how == "send anything"}
    assert set(outputs) == {record.place for record in records} - skipped
    buried = {place for place, output in outputs.items() if _reason(output) == b"poison"}
    assert buried == set(deadly) - skipped
    for record in records:
        if record.place in buried:
            assert outputs[record.place].value == record.value
    assert {place: output for place, output in outputs.items() if place not in buried} == _expected(
        records, deadly
    )


@given(kills=st.lists(st.integers(1, 60), max_size=2))
@settings(max_examples=40, deadline=None)
def test_a_process_killed_from_outside_has_no_record_buried(kills):
    records = _records(11)
    world = World(records, {})

    async def run():
        for turns in kills:
            await world.live(kill_after=turns)
        await _to_the_end(world)

    asyncio.run(run())
    assert world.outputs() == _expected(records, {})


def test_a_record_that_is_deadly_even_as_a_dead_letter_blocks_unless_it_may_be_skipped():
    deadly = Place(0, 3)
    world = World(_records(5), {deadly: "send anything"})

    async def run():
        for _ in range(10):
            assert not await world.live()

    asyncio.run(run())
    assert world.committed[0] == deadly.offset
    assert deadly not in world.outputs()
    assert world.metrics.registry.get_sample_value("kp_poison_skipped_total") == 0
