"""The ring of entries: special cases, the records of the changelog, and its position."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from knowledgepulse_worker.embedding.base import identity_of
from knowledgepulse_worker.errors import LedgerError
from knowledgepulse_worker.lane.ring import Changelog, Ledger
from knowledgepulse_worker.records.entry import (
    ENTRY_VERSION,
    Entry,
    encode_vector,
)
from knowledgepulse_worker.records.record import RawRecord
from knowledgepulse_worker.scoring import VectorCache
from support.lanes import VECTORS
from support.ledger import MODEL, confirm, dead, entry_of, scored


def written(changelog, ledger, entry):
    """Put an entry into a ledger; the broker confirms what that writes. Return the evicted offsets."""
    value, evicted = ledger.put(entry)
    confirm(changelog, *((old, None) for old in evicted), (entry.offset, value))
    return evicted


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


OLDER_RELEASE = Path(__file__).parents[3] / "integration" / "data" / "left-behind-by-56e9080.json"


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


confirmations = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.binary(max_size=2)), min_size=1, max_size=8
).flatmap(lambda writes: st.permutations(list(enumerate(writes))))


@given(confirmations)
def test_confirmations_are_applied_in_the_order_of_the_topic_whatever_theirs(given_order):
    """Different tasks await them: one may be noticed after that of the record that replaced or deleted it."""
    changelog = Changelog(0)
    for number, (offset, value) in given_order:
        changelog.confirmed(number, offset, value)

    last = dict(write for _, write in sorted(given_order))
    assert changelog.entries == {offset: value for offset, value in last.items() if value is not None}
    assert changelog.position == len(given_order) - 1
    changelog.confirmed(0, 9, b"old")
    assert (9 in changelog.entries, changelog.position) == (False, len(given_order) - 1)
