"""The ring of entries against its definition, through crashes, compaction, gaps and rewinds."""

import base64
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from knowledgepulse_worker.embedding.base import identity_of
from knowledgepulse_worker.errors import LedgerError
from knowledgepulse_worker.lane.ring import Changelog, Ledger, remember
from knowledgepulse_worker.records.entry import (
    ENTRY_VERSION,
    Entry,
    Failure,
    decode_entry,
    decode_vector,
    encode_vector,
)
from knowledgepulse_worker.records.record import RawRecord
from knowledgepulse_worker.scoring import Nearest, VectorCache
from support.lanes import VECTORS

MODEL = "model-1"
DEAD = Failure("empty", "RejectedRecord", "no value")

SCORE = (
    b'{"score":0.5,"complexity":0.5,"novelty":0.5,"tool_diversity":0.5,"outcome_confidence":0.5,"overrides":[],'
    b'"domain":"default","threshold":0.75,"nearest":null}'
)


def scored(offset, vector=VECTORS[0], seconds=0, model=MODEL, window=2):
    return Entry(
        offset,
        seconds * 1000,
        b"%8d" % offset,
        trace_id=f"kp:trace:{offset}",
        decision="rejected",
        score=SCORE,
        vector=encode_vector(np.array(vector, dtype=np.float32)),
        model=model,
        window=window,
        version=ENTRY_VERSION,
    )


def dead(offset, seconds=0, window=2):
    return Entry(offset, seconds * 1000, b"%8d" % offset, failure=DEAD, window=window, version=ENTRY_VERSION)


def entry_of(changelog, offset):
    """Return the changelog's entry at an offset, if any."""
    value = changelog.entries.get(offset)
    return None if value is None else decode_entry(value)


def written(changelog, ledger, entry):
    """Put an entry into a ledger; the broker confirms what that writes. Return the evicted offsets."""
    value, evicted = ledger.put(entry)
    confirm(changelog, *((old, None) for old in evicted), (entry.offset, value))
    return evicted


def confirm(changelog, *writes):
    """Confirm writes of source offsets and values, in order."""
    for offset, value in writes:
        changelog.confirmed(1 + (-1 if changelog.position is None else changelog.position), offset, value)


def opened(changelog, next_offset=0, max_elements=3, window=2, model=MODEL, dimensions=4):
    """Return a ledger opened at an offset, its cache, and the result of opening it."""
    ledger, cache = Ledger(changelog, max_elements, window), VectorCache(max_elements, dimensions)
    return ledger, cache, ledger.open(next_offset, cache, model)


def changelog_of(*entries, window=2):
    """Return a changelog partition with these entries."""
    changelog = Changelog(0)
    ledger = Ledger(Changelog(0), len(entries) + 1, window)
    for number, entry in enumerate(entries):
        changelog.apply(number, b"%d" % entry.offset, ledger.put(entry)[0])
    return changelog


# --- against the definition


class Partition(RuleBasedStateMachine):
    """A raw partition, its changelog at the broker, and a lane's operations on both.

    ``known`` is the model: every entry that was ever written and survived.
    """

    @initialize(
        max_elements=st.integers(1, 5),
        window=st.sampled_from([1, 2, 5, 6, 7]),
        ttl=st.none() | st.integers(1, 10),
    )
    def begin(self, max_elements, window, ttl):
        self.max_elements, self.window, self.ttl = max_elements, window, ttl
        self.raw = []
        self.position = 0
        self.committed = 0
        self.writes = []
        self.durable = 0
        self.lost_some = False
        self.known = {}
        self._open(Changelog(0))

    @rule(
        records=st.lists(
            st.tuples(
                st.sampled_from([0, 0, 0, 1, 3, 50_000_000]),
                st.none() | st.sampled_from(VECTORS),
                st.integers(0, 20),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def deliver(self, records):
        for record in records:
            self._deliver(*record)

    def _deliver(self, gap, vector, seconds):
        """Deliver the next record of the raw partition; append one if there is none."""
        if self.position == len(self.raw):
            self.raw.append((self.raw[-1] if self.raw else -1) + 1 + gap)
        offset = self.raw[self.position]
        self.position += 1
        if offset - self.committed >= self.window:
            self._commit(offset)
        entry = entry_of(self.changelog, offset)
        assert entry == self.known.get(offset)
        assert (offset in self.ledger) == (entry is not None)
        if entry is not None:
            remember(self.cache, entry)
            return
        if vector is None:
            entry = dead(offset, seconds, window=self.window)
        else:
            entry = scored(offset, vector, seconds, window=self.window)
        if vector is not None:
            assert self.cache.nearest(vector, at=seconds) == self._nearest(offset, vector, seconds)
            remember(self.cache, entry)
        value, evicted = self.ledger.put(entry)
        self.known[offset] = entry
        self._write((offset, value), *((old, None) for old in evicted))

    @rule(behind=st.integers(0, 4))
    def commit(self, behind):
        """Commit all but the last records: these are finished, so the broker has their entries."""
        finished = self.raw[: max(0, self.position - behind)]
        if finished and finished[-1] >= self.committed:
            self._commit(finished[-1] + 1)

    @rule(
        lost=st.integers(0, 5),
        hole=st.none() | st.integers(0, 5),
        again=st.integers(0, 15),
        seed=st.integers(),
    )
    def crash(self, lost, hole, again, seed):
        """Lose the last writes, and perhaps an earlier entry, before they reach the broker; then compact."""
        chance = random.Random(seed)
        written = self.writes[: max(self.durable, len(self.writes) - lost)]
        entries = [index for index in range(self.durable, len(written)) if written[index][1] is not None]
        if hole is not None and len(entries) > 1:
            del written[entries[hole % (len(entries) - 1)]]
            self.lost_some = True
        self.writes, self.durable = written, len(written)
        self.known = {offset: entry for offset, entry in self.known.items() if self._was_written(offset)}
        self._restart(self.committed, _compacted(written, chance), reason=None)
        for _ in range(again):
            self._deliver(0, chance.choice(VECTORS), chance.randrange(20))

    @rule(back=st.integers(0, 30))
    def rewind(self, back):
        """Rewind the raw topic beyond the window: a new run, with what is left of the ledger."""
        to = self.raw[max(0, self.position - 1 - back)] if self.raw else 0
        if not self.known or max(self.known) < to + self.window:
            return
        live = self.ledger_entries
        self.known = {offset: entry for offset, entry in self.known.items() if offset < to and offset in live}
        self.committed = to
        self.lost_some = True
        self._restart(to, _compacted(self.writes, random.Random(back)), reason="rewind")
        self.durable = len(self.writes)

    @invariant()
    def the_ring_matches_its_definition(self):
        ring = self._ring()
        assert self.ledger_entries <= ring
        if not self.lost_some:
            assert self.ledger_entries == ring
        assert len(self.ledger) == len(self.ledger_entries) <= self.max_elements + self.window

    @invariant()
    def tombstones_are_written_for_exactly_the_evicted_entries(self):
        assert {offset for offset, value in dict(self.writes).items() if value} == self.ledger_entries

    @property
    def ledger_entries(self):
        return set(self.changelog.entries)

    def _ring(self):
        if not self.known:
            return set()
        start = max(self.known) - self.window + 1
        before = [offset for offset, entry in sorted(self.known.items()) if offset < start and entry.vector]
        return set(before[-self.max_elements :]) | {offset for offset in self.known if offset >= start}

    def _nearest(self, offset, vector, seconds):
        before = [entry for o, entry in sorted(self.known.items()) if o < offset and entry.vector]
        recent = [
            entry
            for entry in before[-self.max_elements :]
            if self.ttl is None or entry.timestamp_ms / 1000 >= seconds - self.ttl
        ]
        if not recent:
            return None
        similarities = [
            sum(a * b for a, b in zip(vector, decode_vector(entry.vector).tolist(), strict=True))
            for entry in recent
        ]
        best = similarities.index(max(similarities))
        return Nearest(similarities[best], recent[best].trace_id)

    def _commit(self, offset):
        self.committed = offset
        self.durable = len(self.writes)

    def _write(self, *writes):
        self.writes += writes
        confirm(self.changelog, *writes)

    def _was_written(self, offset):
        return offset < self.committed or dict(self.writes).get(offset) is not None

    def _restart(self, next_offset, changelog, reason):
        self.position = sum(offset < next_offset for offset in self.raw)
        before = set(changelog.entries)
        evicted, actual_reason = self._open(changelog, next_offset)
        assert actual_reason == reason
        assert sorted(evicted) == sorted(before - self.ledger_entries)

    def _open(self, changelog, next_offset=0):
        self.changelog = changelog
        self.ledger = Ledger(changelog, self.max_elements, self.window)
        self.cache = VectorCache(self.max_elements, 4, self.ttl)
        evicted, reason = self.ledger.open(next_offset, self.cache, MODEL)
        self._write(*((offset, None) for offset in evicted))
        return evicted, reason


def _compacted(writes, random):
    """Return the changelog as recovery reads it: any of the replaced records may be gone."""
    last = {offset: number for number, (offset, _) in enumerate(writes)}
    kept = set()
    changelog = Changelog(0)
    for number, (offset, value) in enumerate(writes):
        replaced = number < last[offset]
        # A tombstone disappears only when nothing is left for it to delete.
        gone = (replaced or (value is None and offset not in kept)) and random.random() < 0.5
        if not gone:
            kept.add(offset)
            changelog.apply(number, b"%d" % offset, value)
    return changelog


def test_ring_and_cache_match_their_definition_after_any_history():
    """Invariant 2: a record is compared with the last ``max_elements`` scored before it, in any history."""
    run_state_machine_as_test(Partition, settings=settings(max_examples=120, stateful_step_count=40))


# --- special cases


def test_replacing_an_entry_evicts_nothing():
    changelog = Changelog(0)
    ledger, *_ = opened(changelog, max_elements=1, window=2)
    for offset in range(3):
        written(changelog, ledger, scored(offset))
    buried = scored(1, VECTORS[1])

    assert written(changelog, ledger, buried) == []
    assert set(changelog.entries) == {0, 1, 2}
    assert entry_of(changelog, 1) == buried
    assert ledger.put(scored(3))[1] == [0]


def test_vectors_of_another_model_are_cut_and_other_entries_stay():
    changelog = changelog_of(
        scored(0, model="other"), dead(1), scored(2, VECTORS[1]), scored(3, model="other")
    )

    ledger, cache, (evicted, reason) = opened(changelog, next_offset=4, max_elements=10, window=10)

    assert (evicted, reason) == ([0, 3], "model")
    assert len(cache) == 1
    assert [offset for offset in range(4) if offset in ledger] == [1, 2]


def test_a_change_of_model_compares_no_offset_with_all_others():
    """Otherwise a large ledger takes longer to open than a worker lives (limits.heartbeat)."""
    compared = 0

    class Offset(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return int(self) == other

    count = 400
    changelog = changelog_of(*(scored(offset, model="other") for offset in range(count)))
    changelog.entries = {Offset(offset): value for offset, value in changelog.entries.items()}

    _, _, (evicted, reason) = opened(changelog, next_offset=count, max_elements=count, window=1)

    assert (len(evicted), reason) == (count, "model")
    assert compared < 20 * count


OLDER_RELEASE = Path(__file__).parents[2] / "integration" / "data" / "left-behind-by-56e9080.json"


@pytest.mark.parametrize(("text", "reason"), [("sdk", None), ("agent", "model")])
def test_the_entries_of_an_older_release_are_of_the_text_sdk(text, reason):
    """It had no choice of the text: an upgrade keeps its vectors, and choosing the other text cuts them."""
    changelog = Changelog(0)
    for offset, record in enumerate(json.loads(OLDER_RELEASE.read_bytes())["changelog"]):
        if record["partition"] == 0:
            value = record["value"] and base64.b64decode(record["value"])
            changelog.apply(offset, base64.b64decode(record["key"]), value)
    next_offset = max(changelog.entries) + 1
    vectors = [offset for offset in changelog.entries if entry_of(changelog, offset).vector]
    model = identity_of(hashlib.sha256(b"hashing 16 256").hexdigest(), text)  # its embedder for tests

    _, cache, (evicted, actual_reason) = opened(
        changelog, next_offset, max_elements=100, window=100, model=model, dimensions=16
    )

    assert actual_reason == reason
    assert sorted(evicted) == ([] if reason is None else sorted(vectors))
    assert len(cache) == (len(vectors) if reason is None else 0)
    assert vectors


def test_another_model_s_entry_stays_for_a_record_that_may_be_redelivered():
    """Its outcome may have been published, so it must not change."""
    changelog = changelog_of(scored(0, model="other"), scored(1, model="other"))

    _, cache, (evicted, reason) = opened(changelog, next_offset=1, max_elements=10, window=10)

    assert (evicted, reason) == ([0], "model")
    assert entry_of(changelog, 1) == scored(1, model="other")
    assert len(cache) == 0


def test_outcomes_without_vectors_survive_the_introduction_of_an_embedder():
    changelog = changelog_of(Entry(0, 0, b"", decision="rejected", score=SCORE))

    _, _, (evicted, reason) = opened(changelog, next_offset=1)

    assert (evicted, reason) == ([], None)
    assert entry_of(changelog, 0) is not None


@pytest.mark.parametrize(("newest", "reason"), [(11, None), (12, "rewind")])
def test_only_a_move_back_beyond_the_window_is_a_rewind(newest, reason):
    """Within the window records are redelivered; beyond it the old outcomes belong to another run."""
    changelog = changelog_of(scored(8), scored(9, VECTORS[1]), scored(10), scored(newest))

    ledger, cache, (evicted, actual_reason) = opened(changelog, next_offset=10, max_elements=9, window=2)

    assert actual_reason == reason
    assert sorted(evicted) == ([] if reason is None else [10, newest])
    assert (newest in ledger) == (reason is None)
    assert len(cache) == 2


@pytest.mark.parametrize("now", [1, 2, 8, 9])
def test_a_changed_window_turns_no_redelivery_into_a_rewind(now):
    """The window in force when the records were taken bounds their redelivery."""
    changelog = changelog_of(*(dead(o) if o % 2 else scored(o) for o in range(10)), window=8)

    ledger, _, (_, reason) = opened(changelog, next_offset=3, max_elements=1, window=now)

    assert reason is None
    assert all(offset in ledger for offset in range(3, 10))


def test_what_a_lane_put_into_its_ledger_is_unknown_to_the_next_until_it_is_confirmed():
    """The partition may be lost before, and come back to the same process: the broker has no such entry."""
    changelog = changelog_of(scored(0), window=9)
    ledger, *_ = opened(changelog, next_offset=1, window=9)
    unconfirmed, _ = ledger.put(scored(1, VECTORS[1]))
    written(changelog, ledger, scored(2))
    ledger.clear()

    successor, cache, _ = opened(changelog, next_offset=3, window=9)
    assert [offset for offset in range(3) if offset in successor] == [0, 2]
    assert len(cache) == 2

    confirm(changelog, (1, unconfirmed), (0, None))
    assert sorted(changelog.entries) == [1, 2]


# --- the changelog's records


NEWER = msgspec.msgpack.encode(
    (*msgspec.structs.astuple(replace(dead(1), version=ENTRY_VERSION + 1)), "a field of the future")
)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        *((key, b"value", "key .* is not an offset") for key in (None, b"", b"one", b"1.0", b"\xff")),
        *(
            (b"1", value, "value is not a ledger entry")
            for value in (b"", b"garbage", b"\xc0", msgspec.msgpack.encode([1, 2]), b"{}")
        ),
        (b"1", msgspec.msgpack.encode(dead(2)), "key is 1, but the entry is for offset 2"),
        (b"1", NEWER, rf".*version {ENTRY_VERSION + 1},.*{ENTRY_VERSION}$"),
    ],
)
def test_what_is_no_entry_is_an_error_with_its_location(key, value, problem):
    with pytest.raises(LedgerError, match=f"changelog partition 3, offset 7: {problem}"):
        Changelog(3).apply(7, key, value)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"score": None}, "entry has neither a score nor a failure"),
        ({"decision": None}, "entry has neither a score nor a failure"),
        ({"score": b"{}"}, "entry has an invalid score"),
        ({"score": b"\xff"}, "entry has an invalid score"),
        ({"vector": b"12345"}, "entry has an invalid vector: not finite float32 numbers"),
        ({"vector": encode_vector(np.array([np.nan] * 4))}, "entry has an invalid vector"),
        ({"vector": encode_vector(np.array([1, np.inf, 0, 0]))}, "entry has an invalid vector"),
    ],
)
def test_an_unusable_entry_is_an_error_with_its_location(changes, problem):
    """Otherwise the lane that needs it fails over and over, and blames the raw record."""
    forged = msgspec.msgpack.encode(replace(scored(1), **changes))

    with pytest.raises(LedgerError, match=f"changelog partition 3, offset 7: {problem}"):
        Changelog(3).apply(7, b"1", forged)


@pytest.mark.parametrize("next_offset", [1, 2], ids=["redelivered", "done"])
def test_a_vector_of_the_wrong_length_is_cut_even_if_its_model_matches(next_offset):
    changelog = changelog_of(scored(0), replace(scored(1), vector=encode_vector(np.array([1.0, 0.0]))))

    ledger, cache, (evicted, reason) = opened(changelog, next_offset)

    assert (evicted, reason, cache.size, 1 in ledger) == ([1], "model", 1, False)


def test_an_entry_of_the_unversioned_format_is_accepted():
    fields = msgspec.structs.astuple(scored(1))
    changelog = Changelog(3)

    changelog.apply(7, b"1", msgspec.msgpack.encode(fields[:12]))

    assert entry_of(changelog, 1) == replace(scored(1), version=1)


def test_an_older_worker_can_read_an_entry_of_this_format():
    """It ignores the appended fields, so a fleet can be rolled back."""
    value = msgspec.msgpack.encode(replace(scored(1), topic_id=bytes(16)))
    older = msgspec.defstruct(
        "Entry", [(name, Any) for name in Entry.__struct_fields__[:12]], array_like=True
    )

    assert msgspec.structs.astuple(msgspec.msgpack.decode(value, type=older))[:3] == (1, 0, b"       1")


# --- a recreated topic


def test_entries_of_an_earlier_topic_of_the_same_name_are_cut():
    changelog = changelog_of(
        replace(scored(0), topic_id=b"old"), replace(scored(1, VECTORS[1]), topic_id=b"new"), window=9
    )
    ledger, cache = Ledger(changelog, 9, 9), VectorCache(9, 4)

    assert ledger.open(2, cache, MODEL, b"new") == ([0], "recreated")
    assert (len(cache), 1 in ledger) == (1, True)


def test_an_equal_record_of_another_topic_is_not_a_redelivery():
    record = RawRecord("raw", 0, 1, 0, b"key", b"value", (), b"new")
    known = replace(dead(1), fingerprint=record.fingerprint)
    changelog = Changelog(0)
    ledger, *_ = opened(changelog)
    ledger.put(replace(known, topic_id=b"old"))
    assert ledger.find(record) is None

    ledger.put(replace(known, topic_id=b"new"))
    assert ledger.find(record) is not None
    ledger.put(known)  # written by a worker without topic ids
    assert ledger.find(record) is not None


# --- the changelog's position


def test_another_process_s_write_in_between_holds_the_position_back():
    """So that the next recovery reads it; otherwise it would never be seen."""
    changelog = Changelog(0)
    changelog.apply(10, b"1", None)
    for offset in (11, 13, 14):
        changelog.confirmed(offset, offset, None)
    assert changelog.position == 11

    for offset in (12, 13, 14):
        changelog.apply(offset, b"%d" % offset, None)
    changelog.confirmed(15, 15, None)

    assert changelog.position == 15


def test_the_position_advances_whatever_the_order_of_confirmations():
    """A batch confirms entries and tombstones at once, and different tasks await them."""
    changelog = Changelog(0)
    for offset in (0, 2, 1, 4, 3, 5):
        changelog.confirmed(offset, offset, None)

    assert changelog.position == 5


def test_confirmed_records_are_applied_in_the_order_of_the_topic():
    """An entry's confirmation may be noticed after that of the record that replaced or deleted it."""
    changelog = Changelog(0)
    for number, offset, value in [(3, 8, None), (1, 7, b"last"), (2, 8, b"entry"), (0, 7, b"first")]:
        changelog.confirmed(number, offset, value)

    assert changelog.entries == {7: b"last"}


def test_an_old_confirmation_does_not_move_the_position_back():
    changelog = Changelog(0)
    changelog.apply(10, b"1", None)
    changelog.confirmed(3, 3, None)

    assert changelog.position == 10
