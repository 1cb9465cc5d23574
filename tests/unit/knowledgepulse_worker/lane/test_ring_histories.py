"""The ring of entries against its definition, through crashes, compaction, gaps and rewinds."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from knowledgepulse_worker.lane.ring import Changelog, Ledger, add_to_cache
from knowledgepulse_worker.records.entry import decode_vector
from knowledgepulse_worker.scoring import Nearest, VectorCache
from support.lanes import VECTORS
from support.ledger import MODEL, confirm, dead, entry_of, scored


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
            add_to_cache(self.cache, entry)
            return
        if vector is None:
            entry = dead(offset, seconds, window=self.window)
        else:
            entry = scored(offset, vector, seconds, window=self.window)
        if vector is not None:
            assert self.cache.nearest(vector, at=seconds) == self._nearest(offset, vector, seconds)
            add_to_cache(self.cache, entry)
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
    run_state_machine_as_test(Partition, settings=settings(max_examples=60, stateful_step_count=40))
