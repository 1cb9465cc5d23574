"""The ring of entries against its definition, over crashes, compaction, gaps and rewinds."""

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from worker.errors import LedgerError
from worker.lane.ledger import (
    ENTRY_VERSION,
    Changelog,
    Entry,
    Failure,
    Ledger,
    decode_entry,
    decode_vector,
    encode_vector,
    remember,
)
from worker.lane.records import RawRecord
from worker.scoring import Nearest, VectorCache

MODEL = "model-1"
DEAD = Failure("empty", "RejectedRecord", "no value")

SCORE = (
    b'{"score":0.5,"complexity":0.5,"novelty":0.5,"tool_diversity":0.5,"outcome_confidence":0.5,"overrides":[],'
    b'"domain":"default","threshold":0.75,"nearest":null}'
)

# Unit vectors whose products single precision holds exactly, so that equal really means equal.
VECTORS = [
    *(
        tuple(sign if place == axis else 0.0 for place in range(4))
        for axis in range(4)
        for sign in (1.0, -1.0)
    ),
    *((a, b, c, d) for a in (0.5, -0.5) for b in (0.5, -0.5) for c in (0.5, -0.5) for d in (0.5, -0.5)),
]


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
    """The entry of an offset that the changelog holds."""
    value = changelog.entries.get(offset)
    return None if value is None else decode_entry(value)


def opened(changelog, next_offset=0, max_elements=3, window=2, model=MODEL, dimensions=4):
    """A ledger opened at an offset, its cache, and what opening it returned."""
    ledger, cache = Ledger(changelog, max_elements, window), VectorCache(max_elements, dimensions)
    return ledger, cache, ledger.open(next_offset, cache, model)


def changelog_of(*entries, window=2):
    """A changelog partition to which these entries were written."""
    changelog = Changelog(0)
    ledger = Ledger(Changelog(0), len(entries) + 1, window)
    for number, entry in enumerate(entries):
        changelog.apply(number, b"%d" % entry.offset, ledger.put(entry)[0])
    return changelog


# --- against the definition


class Partition(RuleBasedStateMachine):
    """A raw partition, its changelog at the broker, and a lane's dealings with both.

    ``known`` is what the definition works on: every entry that was ever written and survived.
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
        """The next record of the raw partition; a new one when there is no next."""
        if self.position == len(self.raw):
            self.raw.append((self.raw[-1] if self.raw else -1) + 1 + gap)
        offset = self.raw[self.position]
        self.position += 1
        if offset - self.committed >= self.window:
            self._commit(offset)
        entry = entry_of(self.changelog, offset)
        assert entry == self.known.get(offset)
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
        value, fallen = self.ledger.put(entry)
        self.known[offset] = entry
        self._write((offset, value), *((old, None) for old in fallen))

    @rule(behind=st.integers(0, 4))
    def commit(self, behind):
        """Everything but the last records is finished, so their entries are at the broker."""
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
        """The last writes never reached the broker, and perhaps an entry before them; then it compacts."""
        chance = random.Random(seed)
        written = self.writes[: max(self.durable, len(self.writes) - lost)]
        entries = [place for place in range(self.durable, len(written)) if written[place][1] is not None]
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
        """The raw topic is read again from far back: a new run, on what is left from before."""
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
    def the_ring_holds_what_the_definition_asks(self):
        ring = self._ring()
        assert self.ledger_entries <= ring
        if not self.lost_some:
            assert self.ledger_entries == ring
        assert len(self.ledger) == len(self.ledger_entries) <= self.max_elements + self.window

    @invariant()
    def tombstones_are_written_for_exactly_what_fell_out(self):
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

    def _was_written(self, offset):
        return offset < self.committed or dict(self.writes).get(offset) is not None

    def _restart(self, next_offset, changelog, reason):
        self.position = sum(offset < next_offset for offset in self.raw)
        before = set(changelog.entries)
        fallen, told = self._open(changelog, next_offset)
        assert told == reason
        assert sorted(fallen) == sorted(before - self.ledger_entries)
        self._write(*((offset, None) for offset in fallen))

    def _open(self, changelog, next_offset=0):
        self.changelog = changelog
        self.ledger = Ledger(changelog, self.max_elements, self.window)
        self.cache = VectorCache(self.max_elements, 4, self.ttl)
        return self.ledger.open(next_offset, self.cache, MODEL)


def _compacted(writes, random):
    """The changelog as recovery reads it: of what a later write replaced, any part may be gone."""
    last = {offset: number for number, (offset, _) in enumerate(writes)}
    kept = set()
    changelog = Changelog(0)
    for number, (offset, value) in enumerate(writes):
        replaced = number < last[offset]
        # A tombstone goes only when nothing is left for it to delete.
        gone = (replaced or (value is None and offset not in kept)) and random.random() < 0.5
        if not gone:
            kept.add(offset)
            changelog.apply(number, b"%d" % offset, value)
    return changelog


def test_ring_and_cache_are_what_the_definition_says_after_any_history():
    """Invariant 2: a record sees the ``max_elements`` scored last before it, whatever happened in between."""
    run_state_machine_as_test(
        Partition, settings=settings(max_examples=200, stateful_step_count=40, deadline=None)
    )


@pytest.mark.parametrize("max_elements", [5, 64])
def test_a_rebuilt_cache_answers_to_the_last_bit_as_the_one_that_was_never_closed(max_elements):
    """The same vectors lie in other places of the matrix then, which must not show in a score."""
    generator = np.random.default_rng(0)
    changelog = Changelog(0)
    ledger, kept, _ = opened(changelog, max_elements=max_elements, window=2, dimensions=384)
    for offset in range(max_elements + 8):
        entry = scored(offset, generator.normal(size=384))
        ledger.put(entry)
        remember(kept, entry)
    _, rebuilt, _ = opened(
        changelog, next_offset=max_elements + 8, max_elements=max_elements, window=2, dimensions=384
    )

    for query in generator.normal(size=(100, 384)):
        assert rebuilt.nearest(query) == kept.nearest(query)


# --- special cases


def test_an_entry_comes_back_as_it_was_put():
    entry = scored(7, VECTORS[9], seconds=3)
    changelog = Changelog(0)
    opened(changelog)[0].put(entry)

    opened(changelog, next_offset=7)

    assert entry_of(changelog, 7) == entry
    assert decode_vector(entry.vector).tolist() == list(VECTORS[9])
    assert entry_of(changelog, 8) is None


def test_an_entry_that_is_replaced_keeps_its_place_and_pushes_nothing_out():
    changelog = Changelog(0)
    ledger, *_ = opened(changelog, max_elements=1, window=2)
    for offset in range(3):
        ledger.put(scored(offset))
    buried = scored(1, VECTORS[1])

    assert ledger.put(buried)[1] == []
    assert set(changelog.entries) == {0, 1, 2}
    assert entry_of(changelog, 1) == buried
    assert ledger.put(scored(3))[1] == [0]


def test_dead_letters_and_gaps_take_no_vector_s_place_in_the_cache():
    changelog = changelog_of(scored(0), dead(1), scored(5, VECTORS[2]), *(dead(o) for o in range(6, 30)))

    _, cache, (fallen, _) = opened(changelog, next_offset=30, max_elements=2, window=2)

    assert len(cache) == 2
    assert sorted(changelog.entries) == [0, 5, 28, 29]
    assert sorted(fallen) == [1, *range(6, 28)]
    assert cache.nearest(VECTORS[0], at=0) == Nearest(1.0, "kp:trace:0")


def test_vectors_of_another_model_are_cut_and_everything_else_stays():
    changelog = changelog_of(
        scored(0, model="other"), dead(1), scored(2, VECTORS[1]), scored(3, model="other")
    )

    _, cache, (fallen, reason) = opened(changelog, next_offset=4, max_elements=10, window=10)

    assert (fallen, reason) == ([0, 3], "model")
    assert len(cache) == 1
    assert sorted(changelog.entries) == [1, 2]


def test_what_another_model_scored_is_still_there_for_a_record_that_comes_again():
    """Its outcome was published, or may have been: it must come out the same."""
    changelog = changelog_of(scored(0, model="other"), scored(1, model="other"))

    _, cache, (fallen, reason) = opened(changelog, next_offset=1, max_elements=10, window=10)

    assert (fallen, reason) == ([0], "model")
    assert entry_of(changelog, 1) == scored(1, model="other")
    assert len(cache) == 0


def test_outcomes_without_vectors_outlive_a_change_from_no_embedder_to_one():
    changelog = changelog_of(Entry(0, 0, b"", decision="rejected", score=SCORE))

    _, _, (fallen, reason) = opened(changelog, next_offset=1)

    assert (fallen, reason) == ([], None)
    assert entry_of(changelog, 0) is not None


@pytest.mark.parametrize(("newest", "reason"), [(11, None), (12, "rewind")])
def test_a_rewind_is_one_that_goes_back_further_than_the_window(newest, reason):
    """Within it a record is only delivered again; beyond it the old outcomes belong to another run."""
    changelog = changelog_of(scored(8), scored(9, VECTORS[1]), scored(10), scored(newest))

    _, cache, (fallen, told) = opened(changelog, next_offset=10, max_elements=9, window=2)

    assert told == reason
    assert sorted(fallen) == ([] if reason is None else [10, newest])
    assert (entry_of(changelog, newest) is None) == (reason is not None)
    assert len(cache) == 2


@pytest.mark.parametrize("now", [1, 2, 8, 9])
def test_a_window_that_was_set_anew_makes_no_redelivery_a_rewind(now):
    """How far back records can come is what held when they were taken."""
    changelog = changelog_of(*(dead(o) if o % 2 else scored(o) for o in range(10)), window=8)

    ledger, _, (_, reason) = opened(changelog, next_offset=3, max_elements=1, window=now)

    assert reason is None
    assert all(offset in ledger for offset in range(3, 10))


def test_a_cleared_ledger_forgets_everything_and_starts_anew():
    changelog = changelog_of(scored(0), dead(1), scored(2))
    ledger, *_ = opened(changelog, next_offset=3, max_elements=9, window=9)

    assert sorted(ledger.clear()) == [0, 1, 2]
    assert len(ledger) == 0
    assert ledger.put(scored(1))[1] == []
    assert set(changelog.entries) == {1}


# --- the changelog's place


def test_recovery_follows_the_last_write_of_each_key():
    changelog = Changelog(0)
    first, second, last = (msgspec.msgpack.encode(entry) for entry in (scored(1), dead(2), dead(1)))
    for place, (key, value) in enumerate(
        [(b"1", first), (b"2", second), (b"1", last), (b"2", None), (b"3", None)]
    ):
        changelog.apply(place, key, value)

    assert changelog.entries == {1: last}
    assert changelog.position == 4


@pytest.mark.parametrize("key", [None, b"", b"one", b"1.0", b"\xff"])
def test_a_record_that_no_lane_wrote_is_named_and_not_taken_for_an_entry(key):
    with pytest.raises(LedgerError, match=r"changelog partition 0, offset 7: its key .* is no offset"):
        Changelog(0).apply(7, key, b"value")


@pytest.mark.parametrize("value", [b"", b"garbage", b"\xc0", msgspec.msgpack.encode([1, 2]), b"{}"])
def test_a_value_that_is_no_entry_is_named_by_its_place(value):
    with pytest.raises(LedgerError, match="changelog partition 3, offset 7: its value is no ledger entry"):
        Changelog(3).apply(7, b"1", value)


def test_an_entry_under_another_key_is_named():
    with pytest.raises(LedgerError, match="partition 3, offset 7: its key is 1, its entry is of 2"):
        Changelog(3).apply(7, b"1", msgspec.msgpack.encode(dead(2)))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"score": None}, "its entry has neither a score nor a failure"),
        ({"decision": None}, "its entry has neither a score nor a failure"),
        ({"score": b"{}"}, "its entry's score cannot be read"),
        ({"score": b"\xff"}, "its entry's score cannot be read"),
        ({"vector": b"12345"}, "its entry's vector is no vector of finite numbers"),
        ({"vector": encode_vector(np.array([np.nan] * 4))}, "its entry's vector is no vector"),
        ({"vector": encode_vector(np.array([1, np.inf, 0, 0]))}, "its entry's vector is no vector"),
    ],
)
def test_an_entry_that_no_lane_could_use_is_named_by_its_place(changes, problem):
    """Else the lane that needs it fails, again and again, and names the record instead."""
    forged = msgspec.msgpack.encode(replace(scored(1), **changes))

    with pytest.raises(LedgerError, match=f"changelog partition 3, offset 7: {problem}"):
        Changelog(3).apply(7, b"1", forged)


@pytest.mark.parametrize("next_offset", [1, 2], ids=["redelivered", "done"])
def test_a_vector_of_another_length_under_the_model_s_name_is_cut(next_offset):
    changelog = changelog_of(scored(0), replace(scored(1), vector=encode_vector(np.array([1.0, 0.0]))))

    ledger, cache, (fallen, reason) = opened(changelog, next_offset)

    assert (fallen, reason, cache.size, 1 in ledger) == ([1], "model", 1, False)


def test_an_entry_of_a_newer_format_is_refused_by_place_and_versions():
    newer = msgspec.structs.astuple(replace(dead(1), version=ENTRY_VERSION + 1))

    with pytest.raises(
        LedgerError, match=rf"partition 3, offset 7: .*version {ENTRY_VERSION + 1},.*{ENTRY_VERSION}:"
    ):
        Changelog(3).apply(7, b"1", msgspec.msgpack.encode((*newer, "a field of the future")))


def test_an_entry_of_the_format_without_a_version_is_read():
    fields = msgspec.structs.astuple(scored(1))
    changelog = Changelog(3)

    changelog.apply(7, b"1", msgspec.msgpack.encode(fields[:12]))

    assert entry_of(changelog, 1) == replace(scored(1), version=1)


def test_an_older_worker_reads_an_entry_of_this_format():
    """It ignores the fields that this format has appended, so a fleet can be rolled back."""
    value = msgspec.msgpack.encode(replace(scored(1), topic_id=bytes(16)))
    older = msgspec.defstruct(
        "Entry", [(name, Any) for name in Entry.__struct_fields__[:12]], array_like=True
    )

    assert msgspec.structs.astuple(msgspec.msgpack.decode(value, type=older))[:3] == (1, 0, b"       1")


# --- a recreated topic


def test_entries_of_another_topic_of_the_name_are_cut():
    changelog = changelog_of(
        replace(scored(0), topic_id=b"old"), replace(scored(1, VECTORS[1]), topic_id=b"new"), window=9
    )
    ledger, cache = Ledger(changelog, 9, 9), VectorCache(9, 4)

    assert ledger.open(2, cache, MODEL, b"new") == ([0], "recreated")
    assert (len(cache), 1 in ledger) == (1, True)


def test_a_record_of_another_topic_is_not_taken_for_the_one_of_the_same_bytes():
    record = RawRecord("raw", 0, 1, 0, b"key", b"value", (), b"new")
    known = replace(dead(1), fingerprint=record.fingerprint)
    changelog = Changelog(0)
    ledger, *_ = opened(changelog)
    ledger.put(replace(known, topic_id=b"old"))
    assert ledger.find(record) is None

    ledger.put(replace(known, topic_id=b"new"))
    assert ledger.find(record) is not None
    ledger.put(known)  # written by a worker that knew no ids
    assert ledger.find(record) is not None


# --- the changelog's position


def test_the_place_follows_our_own_writes_from_an_empty_changelog_on():
    changelog = Changelog(0)
    for place in range(3):
        changelog.confirmed(place)

    assert changelog.position == 2


def test_a_foreign_write_in_between_keeps_the_place_back():
    """The next recovery then reads the foreign record; else it would never be seen."""
    changelog = Changelog(0)
    changelog.apply(10, b"1", None)
    for place in (11, 13, 14):
        changelog.confirmed(place)
    assert changelog.position == 11

    for place in (12, 13, 14):
        changelog.apply(place, b"%d" % place, None)
    changelog.confirmed(15)

    assert changelog.position == 15


def test_the_place_follows_our_own_writes_in_whatever_order_their_confirmations_are_noticed():
    """A batch confirms entries and tombstones at once, and different tasks wait for them."""
    changelog = Changelog(0)
    for place in (0, 2, 1, 4, 3, 5):
        changelog.confirmed(place)

    assert changelog.position == 5


def test_an_old_confirmation_does_not_move_the_place_back():
    changelog = Changelog(0)
    changelog.apply(10, b"1", None)
    changelog.confirmed(3)

    assert changelog.position == 10
