"""Redelivered records are published from their entries, whatever has changed; others are a new run."""

import dataclasses

import pytest

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.record import Fault
from support.lanes import headers, score, unread

pytestmark = pytest.mark.usefixtures("no_leaks")


async def test_a_redelivered_record_is_published_from_its_entry_and_not_embedded_again(make_harness, raw):
    """Even under another policy: a trace must not be published both as contributed and as rejected."""
    records = [raw(0), raw(1, b"no JSON"), raw(2)]
    before = make_harness(policy=Policy(threshold=0))
    await before.processed(await before.lane(), *records)
    after = make_harness(policy=Policy(threshold=1))

    await after.processed(await after.lane(0, before.changelog()), *records)

    assert after.outputs() == before.outputs()
    assert after.embedder.texts == []
    assert after.publisher.records(after.ledger) == []
    assert after.metric("kp_redelivered_total") == 3


async def test_a_record_is_not_compared_with_a_redelivered_one_of_another_model(make_harness, raw):
    """The redelivered outcome stands, but vectors of different models do not compare."""
    before = make_harness()
    await before.processed(await before.lane(), raw(0))
    after = make_harness()
    after.embedder.identity = "another"

    await after.processed(await after.lane(0, before.changelog()), raw(0), raw(1))

    assert after.outputs()[0] == before.outputs()[0]
    assert score(after.outputs()[1])["nearest"] is None
    assert after.metric("kp_novelty_cache_entries", partition="0") == 1


async def test_a_record_is_compared_with_one_that_was_deleted_before_it_was_redelivered(make_harness, raw):
    """By retention, while the worker was away; an offset without an entry is a gap, as of transactions."""
    before = make_harness()
    await before.processed(await before.lane(), raw(0), raw(2), raw(3))
    after = make_harness()

    await after.processed(await after.lane(0, before.changelog()), raw(0), raw(3), raw(4))

    assert after.metric("kp_novelty_cache_entries", partition="0") == 4


@pytest.mark.parametrize("readable_now", [False, True])
async def test_an_unreadable_record_stays_a_dead_letter_when_redelivered(readable_now, make_harness, raw):
    """Even if it can be read since `limits.batch_bytes` was raised: it is still the same record."""
    before = make_harness()
    await before.processed(await before.lane(), raw(0), unread(1))
    after = make_harness()

    lane = await after.lane(0, before.changelog())
    await after.processed(lane, raw(0), raw(1) if readable_now else unread(1), raw(2))

    _, dead, scored = after.outputs()
    assert headers(dead) == headers(before.outputs()[1]) | ({"h": b"1"} if readable_now else {})
    assert score(scored)["nearest"] == "kp:trace:0/0"
    assert after.metric("kp_cache_resets_total", reason="recreated") == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"headers": (("\udcff", b"1"),)}, b"invalid_headers"),
        ({"value": None, "fault": Fault("too_large", "?")}, b"too_large"),
    ],
)
async def test_a_redelivered_scored_record_that_cannot_be_published_is_a_dead_letter(
    change, reason, make_harness, raw
):
    before = make_harness()
    await before.processed(await before.lane(), *map(raw, range(2)))
    after = make_harness()

    lane = await after.lane(0, before.changelog())
    await after.processed(lane, raw(0), dataclasses.replace(raw(1), **change), raw(2))

    first, dead, third = after.outputs()
    assert headers(dead)["kp-reason"] == reason
    assert first == before.outputs()[0]
    assert score(third)["nearest"] in {"kp:trace:0/0", "kp:trace:0/1"}  # both vectors are kept
    assert after.metric("kp_cache_resets_total", reason="recreated") == 0


@pytest.mark.parametrize("start", [0, 2])
async def test_another_record_at_a_known_offset_cuts_the_ledger(start, make_harness, raw):
    before = make_harness()
    await before.processed(await before.lane(), *map(raw, range(4)))
    after = make_harness()

    lane = await after.lane(start, before.changelog())
    await after.processed(lane, raw(start, padding=1), raw(start + 1, padding=1))

    first, second = after.outputs()
    assert (score(first)["nearest"], score(second)["nearest"]) == (None, f"kp:trace:0/{start}")
    assert after.metric("kp_cache_resets_total", reason="recreated") == 1
    assert after.metric("kp_redelivered_total") == 0
