"""The entries of a ledger: which are valid, their keys, and the records of the changelog."""

from collections import deque

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from knowledgepulse_kafka.records import Position
from knowledgepulse_worker.errors import InputError, LedgerError
from knowledgepulse_worker.lane.ledger import Changelog, EntryKeys, valid_content
from knowledgepulse_worker.records.ledger_records import (
    ENTRY_VERSION,
    POSITION_KEY,
    DomainScores,
    decode_entry,
    encode_entry,
    encode_position,
    encode_scores,
    encode_vector,
    scores_key,
)
from knowledgepulse_worker.scoring import LastScores
from support.ledger import MODEL, dead, scored

NEW, OLD = b"new topic", b"old topic"


def content_of(*entries, scores=(), **changes):
    """Return the valid content of entries with the keys 0, 1, 2, ..., and of last scores by domain."""
    values = {b"%d" % number: encode_entry(entry) for number, entry in enumerate(entries)}
    usual = {"next_offset": 100, "topic_id": NEW, "model": MODEL, "dimensions": 4, "max_elements": 10}
    kept = {scores_key(domain): encode_scores(last) for domain, last in dict(scores).items()}
    return valid_content(values, kept, **usual | changes)


def offsets(content):
    return [entry.offset for entry in content.entries.values()]


@pytest.mark.parametrize(
    ("invalid", "reason"),
    [
        (scored(1, topic_id=OLD), "recreated"),
        (scored(100), "rewind"),
        (scored(1, model="other"), "model"),
        (replace(scored(1), vector=encode_vector(np.array([1.0, 0.0]))), "model"),
        (dead(1), None),
    ],
    ids=["another topic", "beyond the position", "another model", "another length", "no vector"],
)
def test_an_invalid_entry_is_obsolete_and_the_others_stay(invalid, reason):
    content = content_of(invalid, scored(2, topic_id=NEW))

    assert (offsets(content), content.obsolete, content.reason) == ([2], [b"0"], reason)


def test_a_smaller_max_elements_keeps_the_newest_entries():
    content = content_of(*map(scored, range(5)), max_elements=2)

    assert (offsets(content), content.obsolete, content.reason) == ([3, 4], [b"0", b"1", b"2"], None)


def test_a_larger_max_elements_keeps_all_entries_and_new_ones_get_keys_of_their_own():
    content = content_of(*map(scored, range(3)), max_elements=5)
    ledger = EntryKeys(5, deque(content.entries))

    keys = [ledger.put(scored(offset))[0] for offset in range(3, 6)]

    assert (offsets(content), content.obsolete, content.reason) == ([0, 1, 2], [], None)
    assert keys == [b"3", b"4", b"0"]


def test_a_group_that_was_set_forward_keeps_all_entries():
    assert offsets(content_of(*map(scored, range(5)), next_offset=1000)) == [0, 1, 2, 3, 4]


def test_the_topic_of_an_entry_without_id_is_taken_for_the_current_one_unless_another_entry_tells():
    assert offsets(content_of(scored(1), scored(2, topic_id=NEW))) == [1, 2]
    assert offsets(content_of(scored(1), scored(2, topic_id=OLD), scored(3, topic_id=NEW))) == [3]


# --- last scores


def last_scores(offset, topic_id=NEW, model=MODEL):
    return DomainScores(offset, topic_id, model, LastScores("scale", 3, [0.25, 0.5, offset / 1000]))


def of_agents(agents):
    stored = last_scores(4)
    return replace(stored, last=replace(stored.last, agents=agents))


@pytest.mark.parametrize(
    ("invalid", "reason"),
    [
        (last_scores(1, topic_id=OLD), "recreated"),
        (last_scores(100), "rewind"),
        (last_scores(1, model="other"), "model"),
    ],
    ids=["another topic", "beyond the position", "another model"],
)
def test_invalid_last_scores_are_obsolete_and_those_of_other_domains_stay(invalid, reason):
    valid = last_scores(2)
    content = content_of(scored(1, topic_id=NEW), scores={"code": invalid, "a/b é": valid})

    assert (content.scores, content.obsolete, content.reason) == (
        {"a/b é": valid.last},
        [b"scores/code"],
        reason,
    )
    assert offsets(content) == [1]


def test_last_scores_are_in_the_order_of_their_offsets():
    content = content_of(scores={"b": last_scores(7), "a": last_scores(9), "c": last_scores(5)})

    assert [*content.scores] == ["c", "b", "a"]


def test_the_changelog_keeps_last_scores_beside_entries_until_they_are_deleted():
    changelog, key = Changelog(0), scores_key("a/b é")
    changelog.apply(0, key, encode_scores(last_scores(3)))
    changelog.apply(1, key, encode_scores(last_scores(4)))
    changelog.apply(2, b"0", encode_entry(scored(4)))

    assert (changelog.scores, [*changelog.entries]) == ({key: encode_scores(last_scores(4))}, [b"0"])
    changelog.apply(3, key, None)
    assert changelog.scores == {}


def test_last_scores_of_a_newer_release_stop_recovery():
    problem = "record of last scores has format version 9, written by a newer worker"
    with pytest.raises(LedgerError, match=f"changelog partition 0, offset 7: {problem}"):
        Changelog(0).apply(7, scores_key("code"), encode_scores(replace(last_scores(3), version=9)))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"no msgpack", "value is not the last scores of a domain"),
        (encode_scores(last_scores(-1)), "last scores have an impossible offset or number"),
        (encode_scores(last_scores(2000)), "last scores are not between 0 and 1"),
        (encode_scores(of_agents([b"12345678"])), "last scores have another number of agents"),
        (encode_scores(of_agents([b"123456789"] * 3)), "value is not the last scores of a domain"),
    ],
)
def test_last_scores_that_no_worker_can_have_written_change_nothing(value, problem):
    changelog = Changelog(0)
    with pytest.raises(InputError, match=f"^{problem}$"):
        changelog.apply(7, scores_key("code"), value)

    assert changelog.scores == {}


# --- the changelog's records


NOT_UTF_8 = msgspec.msgpack.encode(msgspec.structs.astuple(dead(1))).replace(b"no value", b"\xff" * 8)
DEEP = msgspec.msgpack.encode(replace(dead(1), failure=None, decision="rejected", score=b"[" * 10**5))
NEWER = msgspec.msgpack.encode(
    (*msgspec.structs.astuple(replace(dead(1), version=ENTRY_VERSION + 1)), "a field of the future")
)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (None, b"value", "key is not that of a ledger entry"),
        (b"x", b"value", "key is not that of a ledger entry"),
        (b"x", None, "key is not that of a ledger entry"),
        (POSITION_KEY, None, "value is not a position"),
        (POSITION_KEY, b"garbage", "value is not a position"),
        (POSITION_KEY, encode_position(Position(-1)), "position has an impossible offset"),
        *(
            (b"1", value, "value is not a ledger entry")
            for value in (b"", b"garbage", b"\xc0", msgspec.msgpack.encode([1]), b"{}", NOT_UTF_8)
        ),
        (b"1", DEEP, "entry has an invalid score"),
    ],
)
def test_what_no_worker_can_have_written_changes_nothing(key, value, problem):
    """One record of a stranger in the changelog ended every worker that got the partition."""
    changelog = Changelog(3)
    changelog.apply(0, b"1", encode_entry(scored(1)))
    changelog.apply(1, POSITION_KEY, encode_position(Position(2)))

    with pytest.raises(InputError, match=f"^{problem}$"):
        changelog.apply(7, key, value)
    assert list(changelog.entries.values()) == [encode_entry(scored(1))]
    assert changelog.position == Position(2)


def test_an_entry_of_a_newer_worker_is_an_error_with_its_location_and_the_remedy():
    problem = rf"version {ENTRY_VERSION + 1},.*version {ENTRY_VERSION}\. Start workers of the newer release"
    with pytest.raises(LedgerError, match=f"^changelog partition 3, offset 7: entry has format {problem}"):
        Changelog(3).apply(7, b"1", NEWER)


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
        ({"offset": -1}, "entry has an impossible offset"),
        ({"offset": 2**64 - 1}, "entry has an impossible offset"),
    ],
)
def test_an_entry_that_cannot_be_used_is_foreign(changes, problem):
    """Otherwise the lane that needs it fails over and over, and blames the raw record."""
    forged = msgspec.msgpack.encode(replace(scored(1), **changes))

    with pytest.raises(InputError, match=f"^{problem}"):
        Changelog(3).apply(7, b"1", forged)


def test_an_entry_of_the_unversioned_format_is_accepted():
    fields = msgspec.structs.astuple(scored(1))
    changelog = Changelog(3)

    changelog.apply(7, b"1", msgspec.msgpack.encode(fields[:12]))

    assert decode_entry(changelog.entries[b"1"]) == replace(scored(1), version=1)
    assert changelog.end == 8


def test_a_null_value_deletes_an_entry():
    changelog = Changelog(0)
    changelog.apply(0, b"1", encode_entry(scored(1)))

    changelog.apply(1, b"1", None)

    assert (changelog.entries, changelog.end) == ({}, 2)


@pytest.mark.parametrize(
    ("begin", "keys", "size", "lacks"),
    [
        (7, [3, 4, 5], 10, True),
        (7, [0, 1, 2], 10, False),  # filled again since
        (7, [0, 5, 9], 3, False),  # by a smaller cache.max_elements
        (0, [3, 4, 5], 10, False),  # cut by a worker
        (7, [], 10, False),  # deleted altogether, which the group's position tells
    ],
)
def test_entries_that_brokers_have_deleted_leave_gaps_in_a_changelog_that_lacks_its_beginning(
    begin, keys, size, lacks
):
    changelog = Changelog(0)
    changelog.begin = begin
    for at, key in enumerate(keys):
        changelog.committed(begin + at, b"%d" % key, encode_entry(scored(at)))

    assert changelog.lacks_entries(size) is lacks


@pytest.mark.parametrize(
    ("end", "held", "unread"),
    [(None, (2, 9), (2, 9)), (5, (0, 9), (5, 9)), (5, (7, 9), (7, 9)), (9, (0, 9), (9, 9))],
)
def test_a_partition_that_comes_back_is_read_from_where_its_changelog_was_left(end, held, unread):
    """Meanwhile, another worker has written entries that the copy in memory lacks."""
    changelog = Changelog(0)
    changelog.end = end

    assert changelog.unread(range(*held)) == range(*unread)


def test_the_newest_entry_before_an_offset_is_found_whatever_the_keys():
    changelog = Changelog(0)
    for number, offset in enumerate((5, 9, 7)):
        changelog.apply(number, b"%d" % number, encode_entry(scored(offset)))

    assert changelog.newest_before(9).offset == 7
    assert changelog.newest_before(5) is None
