"""Invariants 1 and 2 over random histories of kills, failures, drains, expulsions and restarts.

Lanes that may end at any moment process one partition; each successor finds what the broker had by then.
After a drain or an expulsion it may be of the same process, which remembers the changelog, and waits for what
its client still sends.
Everything that could differ between runs does: embeddings finish in any order and with new noise each time,
confirmations arrive late and by topic, commits lag behind, and each life has its own policy.
"""

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace

import msgspec
import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding.batcher import Embedded
from knowledgepulse_worker.lane.lane import Lane, LaneServices
from knowledgepulse_worker.lane.ring import Changelog
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy, PolicyInForce
from knowledgepulse_worker.records.entry import Entry, ScoreHeader, decode_vector
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.record import RawRecord
from knowledgepulse_worker.scoring import Nearest, score_trace
from knowledgepulse_worker.settings import CacheSettings, LimitSettings, TopicSettings
from knowledgepulse_worker.testing.memory_publisher import MemoryPublisher
from support.lanes import VECTORS, trace_of

LEDGER = "ledger"
OUTPUTS = ("contribute", "rejected", "dead-letter")

METRICS = Metrics(Policy(), 0.1, CollectorRegistry())


@dataclass(frozen=True)
class Life:
    """One lane's life, from start to end."""

    steps: int
    ending: str
    threshold: float
    seed: int


@dataclass(frozen=True)
class Setting:
    """The settings common to all lives."""

    window: int
    max_elements: int
    ttl: int | None
    refused: frozenset[str]
    refused_in_batch: frozenset[str]


class Batcher:
    """Embeds a random waiting text on demand, with new noise each time; refuses texts that have an entry."""

    embedder = SimpleNamespace(identity="noisy", precision="float32")

    def __init__(self, random, known):
        self._random = random
        self._known = known
        self._waiting = []

    async def submit(self, text):
        assert int(text.split()[0]) not in self._known
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]

    def finish_one(self):
        if self._waiting:
            result = self._waiting.pop(self._random.randrange(len(self._waiting)))
            if not result.done():
                vector = np.array(self._random.choice(VECTORS), dtype=np.float32)
                result.set_result(Embedded(vector, 0.0, 0.0, 0.0))


class Partition:
    """One partition's raw records, the broker's state, and the lives that process them."""

    def __init__(self, setting, records):
        self.setting = setting
        self.records = records
        self.end = records[-1].offset + 1
        self.committed = 0
        self.policies = {}
        self.publisher = MemoryPublisher()
        self.publisher.refused.update(setting.refused)
        self.publisher.refused_in_batch.update(setting.refused_in_batch)
        self._changelog = None

    async def live(self, life):
        ahead = [record for record in self.records if record.offset >= self.committed]
        if not ahead:
            return
        random = Random(life.seed)
        self.publisher.release(LEDGER, *OUTPUTS)  # as before each recovery
        changelog = self.recover(random, self._changelog)
        self._changelog = None
        batcher = Batcher(random, set(changelog.entries))
        failures = []
        self.publisher.hold(LEDGER, *OUTPUTS)
        lane = Lane(
            ahead[0],
            0,
            changelog,
            self._services(life.threshold, batcher),
            failures.append,
            lambda: None,
        )
        await lane.open()
        feeding = asyncio.create_task(_feed(lane, ahead))

        for _ in range(life.steps):
            self._step(random, lane, batcher)
            await asyncio.sleep(0)
            assert failures == []
        match life.ending:
            case "complete":
                await self._complete(random, lane, batcher, failures)
            case "drain":
                await self._drain(random, lane, changelog)
            case "expulsion":
                await self._expel(random, lane, changelog)
            case "fail":
                await self._fail(random)
                await self._kill(random, lane)
            case "kill":
                await self._kill(random, lane)
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        assert len(failures) <= (life.ending == "fail")

    def recover(self, random, changelog=None):
        """Return the changelog as a lane recovers it: compacted at random, read from its known position."""
        changelog = changelog or Changelog(0)
        read = -1 if changelog.position is None else changelog.position
        written = self.publisher.records(LEDGER)
        last = {record.key: number for number, record in enumerate(written)}
        for number, record in enumerate(written):
            if number > read and (number == last[record.key] or random.random() < 0.5):
                changelog.apply(number, record.key, record.value)
        return changelog

    def _services(self, threshold, batcher):
        policy = Policy(threshold=threshold)
        self.policies[policy.digest] = policy
        setting = self.setting
        return LaneServices(
            policy=PolicyInForce(policy),
            cache=CacheSettings(max_elements=setting.max_elements, dimensions=4, ttl=setting.ttl),
            limits=LimitSettings(uncommitted_records=setting.window, in_flight_records=3),
            batcher=batcher,
            outputs=Outputs(TopicSettings(), dict.fromkeys(("raw-traces", *OUTPUTS), 1)),
            publisher=self.publisher,
            changelog_topic=LEDGER,
            metrics=METRICS,
        )

    def _step(self, random, lane, batcher):
        happens = random.random()
        if happens < 0.3:
            batcher.finish_one()
        elif happens < 0.6:
            self.publisher.confirm(LEDGER)
        elif happens < 0.9:
            self.publisher.confirm(random.choice(OUTPUTS))
        elif happens < 0.93:
            self._commit(lane)
            if random.random() < 0.8:  # otherwise it hears of the commit late, or never
                lane.committed(self.committed)

    def _commit(self, lane):
        """Commit, and check invariant 1: the broker has the output of every committed record."""
        assert lane.watermark >= self.committed
        self.committed = lane.watermark
        finished = {_offset(output) for output in self.publisher.records(*OUTPUTS)}
        assert {record.offset for record in self.records if record.offset < self.committed} <= finished

    async def _complete(self, random, lane, batcher, failures):
        async with asyncio.timeout(60):
            while lane.watermark < self.end:
                self._step(random, lane, batcher)
                lane.committed(self.committed)
                await asyncio.sleep(0)
                assert failures == []
        self.publisher.release(LEDGER, *OUTPUTS)
        await lane.drain(20)
        self._commit(lane)

    async def _drain(self, random, lane, changelog):
        """Drain as in a rebalance, after which this process or another owns the partition."""
        known = len(self.publisher.confirmed)
        self.publisher.release(LEDGER, *OUTPUTS)
        await lane.drain(20)
        self._commit(lane)
        finished = [output for output in self.publisher.confirmed[known:] if output.topic != LEDGER]
        assert all(_offset(output) < self.committed for output in finished)
        assert self.recover(random, changelog).entries == self.recover(random).entries
        if random.random() < 0.5:
            self._changelog = changelog

    async def _expel(self, random, lane, changelog):
        """Lose the partition, which nobody takes over: it comes back to the same process."""
        for topic in (LEDGER, *OUTPUTS):
            self.publisher.confirm(topic, count=random.randint(0, len(self.publisher.waiting(topic))))
        await lane.close()
        if random.random() < 0.5:
            self.publisher.lose()  # the client gives up; otherwise it still sends the rest
        self._changelog = changelog

    async def _fail(self, random):
        """Fail one output; later ones may still be confirmed before the process ends."""
        topic = random.choice(OUTPUTS)
        self.publisher.failing.add(topic)
        self.publisher.confirm(topic)
        self.publisher.failing.remove(topic)
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)

    async def _kill(self, random, lane):
        """Kill the process: the broker has some of what was sent to each topic, unknown to the lane."""
        for topic in (LEDGER, *OUTPUTS):
            self.publisher.confirm(topic, count=random.randint(0, len(self.publisher.waiting(topic))))
        await lane.close()
        self.publisher.lose()


async def _feed(lane, records):
    for record in records:
        await lane.take(record)


def _offset(output):
    headers = dict(output.headers)
    source = headers.get("kp-source")
    return int(source.rpartition(b"/")[2] if source else headers["__streams.errors.offset"])


async def _run(partition, lives):
    for life in lives:
        await partition.live(life)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def _check(partition):
    """Compare with a single pass over the records that uses the vectors in their entries."""
    setting = partition.setting
    outputs = defaultdict(list)
    for output in partition.publisher.records(*OUTPUTS):
        outputs[_offset(output)].append(output)
    entries = defaultdict(list)
    for record in partition.publisher.records(LEDGER):
        if record.value is not None:
            entries[int(record.key)].append(msgspec.msgpack.decode(record.value, type=Entry))
    assert set(outputs) == set(entries) == {record.offset for record in partition.records}

    seen = []
    for record in partition.records:
        first, *repeats = outputs[record.offset]
        assert repeats == [first] * len(repeats)
        entry, *changed = entries[record.offset]
        assert all(one.failure.reason == "too_large" for one in changed)
        if entry.vector is None:
            assert (first.topic, first.value) == ("dead-letter", record.value)
            assert dict(first.headers)["kp-reason"] == b"not_json"
            continue
        nearest = _nearest(seen[-setting.max_elements :], entry, setting.ttl)
        trace = ReasoningTrace.model_validate_json(record.value)
        score = score_trace(trace, nearest, partition.policies[entry.policy])
        assert entry.score == msgspec.json.encode(ScoreHeader.of(score))
        assert {(one.vector, one.score, one.policy) for one in changed} <= {
            (entry.vector, entry.score, entry.policy)
        }
        if score.decision in setting.refused:
            assert dict(first.headers)["kp-reason"] == b"too_large"
        else:
            assert first.topic == score.decision
            assert dict(first.headers)["kp-score"] == entry.score
            assert json.loads(first.value)["metadata"]["quality_score"] == score.quality_score
        seen.append(entry)

    window = range(partition.end - setting.window, partition.end)
    ring = {entry.offset for entry in [e for e in seen if e.offset < window.start][-setting.max_elements :]}
    ring |= {record.offset for record in partition.records if record.offset in window}
    assert set(partition.recover(Random(0)).entries) == ring


def _nearest(recent, entry, ttl):
    fresh = [
        one for one in recent if ttl is None or one.timestamp_ms / 1000 >= entry.timestamp_ms / 1000 - ttl
    ]
    if not fresh:
        return None
    vector = decode_vector(entry.vector).tolist()
    similarities = [
        sum(a * b for a, b in zip(decode_vector(one.vector).tolist(), vector, strict=True)) for one in fresh
    ]
    best = similarities.index(max(similarities))
    return Nearest(similarities[best], fresh[best].trace_id)


seeds = st.integers(0, 2**32)
thresholds = st.sampled_from([0.3, 0.4, 0.5])
lives = st.lists(
    st.builds(
        Life,
        steps=st.integers(0, 200),
        ending=st.sampled_from(["kill", "kill", "drain", "fail", "expulsion", "expulsion"]),
        threshold=thresholds,
        seed=seeds,
    ),
    min_size=2,
    max_size=8,
)
last_lives = st.builds(Life, steps=st.just(0), ending=st.just("complete"), threshold=thresholds, seed=seeds)
sets_of_topics = st.sampled_from([frozenset(), frozenset(), frozenset({"contribute"})])
situations = st.builds(
    Setting,
    window=st.sampled_from([4, 4, 1, 2, 7]),
    max_elements=st.sampled_from([5, 5, 1, 2]),
    ttl=st.sampled_from([None, None, 3]),
    refused=sets_of_topics,
    refused_in_batch=st.sampled_from([frozenset(), frozenset(OUTPUTS)]),
)


@st.composite
def raw_records(draw):
    """Traces of varying quality and invalid records, with gaps and non-monotonic timestamps."""
    kinds = st.tuples(
        st.sampled_from([0, 0, 0, 1, 5, 50_000_000]),
        st.sampled_from([0.2, 0.9, None]),
        st.integers(0, 9),
    )
    records = []
    offset = -1
    for gap, confidence, seconds in draw(st.lists(kinds, min_size=8, max_size=40)):
        offset += 1 + gap
        records.append(_record(offset, confidence, seconds))
    return records


def _record(offset, confidence, seconds):
    value = b"no JSON"
    if confidence is not None:
        value = trace_of(offset, f"{offset}", confidence)
    return RawRecord("raw-traces", 0, offset, seconds * 1000, b"key", value, (("h", None),))


@given(situation=situations, records=raw_records(), lives=lives, last=last_lives)
# To shrink a history takes longer than a test may; add the phase to look at one.
@settings(max_examples=120, phases=set(Phase) - {Phase.shrink, Phase.explain})
def test_kills_expulsions_and_restarts_change_no_score_and_lose_no_outcome(situation, records, lives, last):
    """Each record has one outcome, and the score of an uninterrupted run with the same vectors."""
    partition = Partition(situation, records)

    asyncio.run(_run(partition, [*lives, last]))

    _check(partition)
