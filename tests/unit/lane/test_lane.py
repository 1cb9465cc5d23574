"""One partition's pipeline: its order, its bounds, and how it ends."""

import asyncio
import dataclasses
import gc
import json
from dataclasses import replace
from hashlib import sha256

import msgspec
import pytest

from worker.errors import DeliveryError, EmbeddingError, TooLargeError
from worker.lane.ledger import Changelog, Entry
from worker.lane.records import NO_TIMESTAMP, Contents, Fault, RawRecord
from worker.policy import Policy
from worker.scoring import score_trace, scorer

pytestmark = pytest.mark.usefixtures("no_leaks")

FAR = 50_000_000


async def feed(lane, *records):
    for record in records:
        await lane.take(record)


async def processed(world, lane, *records):
    """Hand records over and wait until they are finished."""
    await feed(lane, *records)
    await world.until(lambda: lane.watermark == records[-1].offset + 1)


def headers(output):
    return dict(output.headers)


def score(output):
    return json.loads(headers(output)["kp-score"])


def tasks():
    """Every task but the test's own and the batcher's."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return [task.get_name() for task in others if task.get_name() != "batcher"]


REFUSED_TIMES = (2**63 - 2, 253_402_300_799_000, 0, -2, -(2**63))
"""As one might be far ahead (the year 9999 among them), long past, or before 1970."""


async def test_a_time_that_an_output_refuses_stops_nothing_and_is_kept_in_a_header(world, raw):
    here = world()
    lane = await here.lane()
    here.publisher.refusing_times |= {"rejected", here.dead_letter}
    records = [replace(raw(n), timestamp_ms=time) for n, time in enumerate(REFUSED_TIMES)]
    records += [replace(raw(n + 5, b"no trace"), timestamp_ms=time) for n, time in enumerate(REFUSED_TIMES)]

    await processed(here, lane, *records)

    kept = [int(headers(output)["kp-timestamp"]) for output in here.outputs()]
    assert sorted(kept) == sorted([*REFUSED_TIMES] * 2)
    assert {output.timestamp_ms for output in here.outputs()} == {NO_TIMESTAMP}
    assert here.failures == []


async def test_a_time_that_outputs_take_is_the_output_s_however_far_ahead(world, raw):
    here = world()
    records = [replace(raw(n), timestamp_ms=time) for n, time in enumerate(REFUSED_TIMES[:3])]

    await processed(here, await here.lane(), *records)

    assert [output.timestamp_ms for output in here.outputs()] == [*REFUSED_TIMES[:3]]
    assert here.metric("kp_end_to_end_seconds_count") == 3


async def test_entries_are_written_alone_where_the_changelog_refuses_their_batch_s_time(world, raw):
    here = world()
    lane = await here.lane()
    here.publisher.refusing_now.add(here.ledger)

    await processed(here, lane, raw(0))

    assert here.entries().keys() == {0}
    assert here.failures == []


# --- order


async def test_a_trace_is_scored_and_published_with_its_score(world, raw):
    here = world(policy=Policy(threshold=0))

    await processed(here, await here.lane(), raw(0), raw(1))

    first, second = here.outputs()
    assert (first.topic, second.topic) == ("contribute", "contribute")
    assert headers(first)["kp-source"] == b"raw-traces/0/0"
    assert (score(first)["nearest"], score(first)["novelty"]) == (None, 0.5)
    assert score(second)["nearest"] == "kp:trace:0/0"
    assert json.loads(second.value)["metadata"]["quality_score"] == score(second)["score"]


async def test_without_an_embedder_novelty_is_unknown(world, raw):
    here = world(embedding=False)

    await processed(here, await here.lane(), raw(0), raw(1))

    assert [score(output)["novelty"] for output in here.outputs()] == [0.5, 0.5]
    assert [entry.vector for entry in here.entries().values()] == [None, None]


async def test_an_output_is_sent_only_when_its_entry_and_all_before_are_confirmed(world, raw):
    here = world()
    here.publisher.hold(here.ledger)
    lane = await here.lane()

    await feed(lane, raw(0), raw(1, b"no JSON"))
    await here.until(lambda: len(here.publisher.waiting(here.ledger)) == 2)
    await here.settle()
    assert here.outputs() == []

    here.publisher.confirm(here.ledger)
    await here.until(here.outputs)
    await here.settle()
    assert [headers(output).get("kp-source") for output in here.outputs()] == [b"raw-traces/0/0"]


async def test_the_watermark_moves_only_with_confirmed_outputs_and_in_offset_order(world, raw):
    here = world()
    here.publisher.hold(*here.scored, here.dead_letter)
    lane = await here.lane()
    await feed(lane, raw(0), raw(1, b"no JSON"), raw(2))
    await here.until(lambda: len(here.publisher.waiting(*here.scored, here.dead_letter)) == 3)

    here.publisher.confirm(here.dead_letter)
    await here.settle()
    assert lane.watermark == 0

    here.publisher.confirm(*here.scored)
    await here.settle()
    assert lane.watermark == 2


async def test_a_record_that_cannot_be_decoded_takes_its_turn_as_a_dead_letter(world, raw):
    here = world()

    await processed(here, await here.lane(), raw(0), raw(1, None), raw(2, b"{"), raw(3, b"{}"), raw(4))

    reasons = [headers(output).get("kp-reason") for output in here.outputs()]
    assert reasons == [None, b"empty", b"not_json", b"invalid_trace", None]
    assert score(here.outputs()[-1])["nearest"] == "kp:trace:0/0"
    assert here.metric("kp_dead_letters_total", reason="empty") == 1


# --- failures of the broker and of the embedder


@pytest.mark.parametrize("what", ["entry", "output"])
async def test_a_send_that_fails_stops_the_lane_before_that_record(what, world, raw):
    here = world()
    lane = await here.lane()
    await processed(here, lane, raw(0))
    here.publisher.failing.update([here.ledger] if what == "entry" else here.scored)

    await feed(lane, raw(1), raw(2))
    await here.until(lambda: here.failures)
    here.publisher.failing.clear()
    await feed(lane, raw(3))
    await here.settle()

    assert lane.watermark == 1
    assert [type(error) for error in here.failures] == [DeliveryError]
    if what == "entry":
        assert len(here.outputs()) == 1


async def test_a_lane_that_stopped_leaves_no_error_that_nobody_looked_at(world, raw):
    """The event loop would log each with its traceback, 64 of them where one says it all."""
    unseen = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context["message"]))
    here = world()
    here.publisher.failing.update(here.scored)
    lane = await here.lane()
    await feed(lane, raw(0), raw(1), raw(2))
    await here.until(lambda: here.failures)
    await here.settle()

    await lane.drain(20)
    here.forget()
    del lane
    gc.collect()

    assert unseen == []


async def test_a_failing_embedder_stops_the_lane_and_makes_no_dead_letter(world, raw):
    """The record is not at fault: it is scored when the embedder works again."""
    here = world()
    lane = await here.lane()
    await processed(here, lane, raw(0))
    here.embedder.error = EmbeddingError("out of memory")

    await feed(lane, raw(1), raw(2, b"no JSON"), raw(3))
    await here.until(lambda: here.failures)
    await here.settle()

    assert here.failures == [here.embedder.error]
    assert len(here.outputs()) == lane.watermark == 1
    assert list(here.entries()) == [0]


async def test_a_trace_whose_scoring_fails_is_the_only_dead_letter_and_leaves_the_cache_as_it_was(
    world, raw, monkeypatch
):
    def fail_for_one(trace, nearest, policy):
        if trace.id == "kp:trace:0/1":
            raise ZeroDivisionError("by zero")
        return score_trace(trace, nearest, policy)

    monkeypatch.setattr(scorer, "score_trace", fail_for_one)
    here = world()

    await processed(here, await here.lane(), raw(0), raw(1), raw(2))

    _, dead, after = here.outputs()
    assert headers(dead)["kp-reason"] == b"scoring_failed"
    assert headers(dead)["__streams.errors.exception"] == b"ZeroDivisionError"
    assert score(after)["nearest"] == "kp:trace:0/0"
    assert here.entries()[1].vector is None
    assert here.failures == []


async def test_an_output_refused_in_a_batch_but_not_alone_arrives(world, raw):
    """A broker refuses a batch as a whole, so a refusal says nothing about any one record in it."""
    here = world()
    here.publisher.refused_in_batch.update(here.scored)

    await processed(here, await here.lane(), raw(0), raw(1))

    assert [headers(output)["kp-source"][-1:] for output in here.outputs()] == [b"0", b"1"]
    assert here.metric("kp_publish_retries_total") == 2


async def test_an_output_refused_alone_becomes_a_dead_letter_once_its_entry_says_so(world, raw):
    here = world()
    here.publisher.refused.update(here.scored)
    lane = await here.lane()
    await feed(lane, raw(0))
    here.publisher.hold(here.ledger)
    await here.until(lambda: here.publisher.records(here.ledger) or here.publisher.waiting(here.ledger))
    here.publisher.confirm(here.ledger)
    await here.until(lambda: here.publisher.records(here.ledger) and here.publisher.waiting(here.ledger))
    await here.settle()
    assert here.outputs() == []

    here.publisher.release(here.ledger)
    await here.until(lambda: lane.watermark == 1)

    (dead,) = here.outputs()
    assert dead.value == raw(0).value
    assert headers(dead)["kp-reason"] == b"too_large"
    entry = here.entries()[0]
    assert (entry.outcome, entry.failure.reason) == ("dead_letter", "too_large")
    assert entry.vector is not None  # it was scored, so later traces are compared with it
    assert here.metric("kp_traces_total", outcome="dead_letter") == 1
    assert here.metric("kp_traces_total", outcome="rejected") == 0


async def test_a_dead_letter_that_is_refused_alone_goes_with_its_value_cut(world, raw, monkeypatch):
    """Its length and hash are told, so that what is in the raw topic can be found and recognised."""
    value = b"no JSON" * 1000
    here = world()
    whole = here.publisher.send_alone

    async def refuse_large(record):
        if record.topic == here.dead_letter and len(record.value) > 5000:
            raise TooLargeError("too large")
        return await whole(record)

    monkeypatch.setattr(here.publisher, "send_alone", refuse_large)
    here.publisher.refused_in_batch.add(here.dead_letter)

    await processed(here, await here.lane(), raw(0, value), raw(1))

    dead, _ = here.outputs()
    assert dead.value == value[:1024]
    assert headers(dead)["kp-reason"] == b"not_json"
    assert headers(dead)["kp-value-length"] == b"7000"
    assert headers(dead)["kp-value-sha256"] == sha256(value).hexdigest().encode()


async def test_a_dead_letter_topic_that_refuses_everything_stops_the_lane(world, raw):
    here = world()
    here.publisher.refused.add(here.dead_letter)
    lane = await here.lane()

    await feed(lane, raw(0, b"no JSON"))
    await here.until(lambda: here.failures)

    assert [type(error) for error in here.failures] == [TooLargeError]
    assert lane.watermark == 0


# --- records that come again


async def test_a_redelivered_record_is_published_as_its_entry_says_and_not_embedded_again(world, raw):
    """Also under another policy: a trace must not come out as contributed and as rejected."""
    records = [raw(0), raw(1, b"no JSON"), raw(2)]
    before = world(policy=Policy(threshold=0))
    await processed(before, await before.lane(), *records)
    after = world(policy=Policy(threshold=1))

    await processed(after, await after.lane(0, before.changelog()), *records)

    assert after.outputs() == before.outputs()
    assert after.embedder.texts == []
    assert after.publisher.records(after.ledger) == []
    assert after.metric("kp_redelivered_total") == 3


async def test_a_record_after_redelivered_ones_is_compared_with_them(world, raw):
    before = world()
    await processed(before, await before.lane(), raw(0), raw(1))
    after = world()

    await processed(after, await after.lane(1, before.changelog()), raw(1), raw(2))

    assert score(after.outputs()[1])["nearest"] in {"kp:trace:0/0", "kp:trace:0/1"}
    assert after.metric("kp_novelty_cache_entries", partition="0") == 3


async def test_a_buried_record_that_comes_again_is_the_same_dead_letter(world, raw):
    before = world()
    before.publisher.refused.update(before.scored)
    await processed(before, await before.lane(), raw(0))
    after = world()

    await processed(after, await after.lane(0, before.changelog()), raw(0))

    assert after.outputs() == before.outputs()


# --- records that could not be read, or not be published as they are


def unread(offset, reason="too_large"):
    """A placeholder for a record of a batch that was not decoded."""
    return RawRecord("raw-traces", 0, offset, 0, None, None, (), fault=Fault(reason, "the batch up to 1"))


async def test_a_record_that_could_not_be_read_is_a_dead_letter_without_content(world, raw):
    here = world()

    await processed(here, await here.lane(), raw(0), unread(1), unread(2, "undecodable"), raw(3))

    _, large, broken, _ = here.outputs()
    assert (large.key, large.value) == (None, None)
    assert headers(large)["kp-reason"] == b"too_large"
    assert headers(broken)["kp-reason"] == b"undecodable"
    assert headers(broken)["__streams.errors.message"] == b"the batch up to 1"
    assert here.metric("kp_dead_letters_total", reason="undecodable") == 1


@pytest.mark.parametrize("readable_now", [False, True])
async def test_a_record_that_could_not_be_read_stays_a_dead_letter_when_it_comes_again(
    readable_now, world, raw
):
    """It can be read once `limits.batch_bytes` is raised; that does not make it another topic's record."""
    before = world()
    await processed(before, await before.lane(), raw(0), unread(1))
    after = world()

    lane = await after.lane(0, before.changelog())
    await processed(after, lane, raw(0), raw(1) if readable_now else unread(1), raw(2))

    _, dead, scored = after.outputs()
    assert headers(dead) == headers(before.outputs()[1]) | ({"h": b"1"} if readable_now else {})
    assert score(scored)["nearest"] == "kp:trace:0/0"
    assert after.metric("kp_cache_resets_total", reason="recreated") == 0


async def test_what_was_read_before_the_batch_limit_was_lowered_keeps_its_outcome(world, raw):
    before = world()
    await processed(before, await before.lane(), *map(raw, range(3)))
    after = world()

    def beyond_the_limit(offset):
        record = raw(offset)
        contents = Contents(record.timestamp_ms, record.key, record.value, record.headers)
        fault = Fault("too_large", "the batch up to 2", read=lambda: contents)
        return dataclasses.replace(record, key=None, value=None, headers=(), fault=fault)

    lane = await after.lane(0, before.changelog())
    await processed(after, lane, *map(beyond_the_limit, range(3)), beyond_the_limit(3))

    *repeats, new = after.outputs()
    assert repeats == before.outputs()
    assert headers(new)["kp-reason"] == b"too_large"
    assert after.metric("kp_cache_resets_total", reason="recreated") == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"headers": (("\udcff", b"1"),)}, b"invalid_headers"),
        ({"value": None, "fault": Fault("undecodable", "?")}, b"undecodable"),
    ],
)
async def test_a_scored_record_that_comes_again_and_cannot_be_published_is_a_dead_letter(
    change, reason, world, raw
):
    before = world()
    await processed(before, await before.lane(), *map(raw, range(2)))
    after = world()

    lane = await after.lane(0, before.changelog())
    await processed(after, lane, raw(0), dataclasses.replace(raw(1), **change), raw(2))

    first, dead, third = after.outputs()
    assert headers(dead)["kp-reason"] == reason
    assert first == before.outputs()[0]
    assert score(third)["nearest"] in {"kp:trace:0/0", "kp:trace:0/1"}  # the vectors of both are kept
    assert after.metric("kp_cache_resets_total", reason="recreated") == 0


async def test_a_record_with_a_header_name_that_cannot_be_published_is_a_dead_letter(world, raw):
    here = world()
    invalid = dataclasses.replace(raw(1), headers=(("\udcff", b"1"),))

    await processed(here, await here.lane(), raw(0), invalid, raw(2))

    _, dead, _ = here.outputs()
    assert headers(dead)["kp-reason"] == b"invalid_headers"
    assert (dead.key, dead.value) == (invalid.key, invalid.value)


# --- a recreated topic: other records at known offsets


@pytest.mark.parametrize("start", [0, 2])
async def test_another_record_at_a_known_offset_cuts_the_ledger(start, world, raw):
    before = world()
    await processed(before, await before.lane(), *map(raw, range(4)))
    after = world()

    lane = await after.lane(start, before.changelog())
    await processed(after, lane, raw(start, padding=1), raw(start + 1, padding=1))

    first, second = after.outputs()
    assert (score(first)["nearest"], score(second)["nearest"]) == (None, f"kp:trace:0/{start}")
    assert after.metric("kp_cache_resets_total", reason="recreated") == 1
    assert after.metric("kp_redelivered_total") == 0


@pytest.mark.parametrize("offset", [0, 2])
async def test_a_forged_fingerprint_costs_the_ledger_and_no_record(world, raw, offset):
    """It says that another record was there, as in a recreated topic: the record is scored anew, once."""
    before = world()
    await processed(before, await before.lane(), *map(raw, range(4)))
    changelog = before.changelog()
    entry = msgspec.msgpack.decode(changelog.entries[offset], type=Entry)
    forged = msgspec.structs.replace(entry, fingerprint=b"forged!!")
    changelog.entries[offset] = msgspec.msgpack.encode(forged)
    after = world()

    await processed(after, await after.lane(0, changelog), *map(raw, range(4)))

    assert [headers(output)["kp-source"][-1:] for output in after.outputs()] == [b"0", b"1", b"2", b"3"]
    assert after.metric("kp_cache_resets_total", reason="recreated") == 1
    assert after.metric("kp_redelivered_total") == offset
    assert sorted(entry for entry in after.entries()) == [0, 1, 2, 3][offset:]
    assert after.failures == []


@pytest.mark.parametrize("same", [False, True])
async def test_what_a_recreated_topic_s_records_became_is_remembered_like_any_other(same, world, raw):
    """Whether a later record is ``same`` as the one that was at its offset before, or another, too."""
    changelog = Changelog(0)
    old = world()
    await processed(old, await old.lane(0, changelog), *map(raw, range(4)))
    records = [raw(0, padding=1), raw(1) if same else raw(1, padding=1)]
    new = world()
    new.publisher.confirmed += old.publisher.records(old.ledger)
    await processed(new, await new.lane(0, changelog), *records)
    again = world()

    await processed(again, await again.lane(0, new.changelog()), *records)

    assert again.outputs() == new.outputs()
    assert again.embedder.texts == []
    assert list(again.changelog().entries) == []
    assert sorted(new.entries()) == [0, 1]


# --- gaps and bounds


async def test_a_wide_gap_is_stepped_over_when_nothing_is_in_flight(world, raw):
    here = world()
    lane = await here.lane()
    await processed(here, lane, raw(0))
    taking = asyncio.create_task(lane.take(raw(FAR)))
    await here.until(lambda: here.wants_commit)
    assert lane.watermark == FAR

    lane.committed(lane.watermark)
    await taking
    await here.until(lambda: lane.watermark == FAR + 1)

    assert score(here.outputs()[1])["nearest"] == "kp:trace:0/0"


async def test_a_gap_is_not_stepped_over_while_a_record_before_it_is_in_flight(world, raw):
    here = world()
    here.publisher.hold(*here.scored)
    lane = await here.lane()
    await feed(lane, raw(0))
    taking = asyncio.create_task(lane.take(raw(FAR)))
    await here.until(lambda: here.publisher.waiting(*here.scored))
    await here.settle()
    assert lane.watermark == 0

    here.publisher.release(*here.scored)
    await here.until(lambda: lane.watermark == FAR)
    lane.committed(FAR)
    await taking
    await here.until(lambda: lane.watermark == FAR + 1)


@pytest.mark.parametrize("limits", [{"in_flight_records": 2}, {"in_flight_bytes": 2000}])
async def test_a_lane_waits_for_a_confirmation_when_enough_is_in_flight(limits, world, raw):
    here = world(**limits)
    here.publisher.hold(*here.scored)
    lane = await here.lane()
    await feed(lane, raw(0, padding=400), raw(1, padding=400))
    taking = asyncio.create_task(lane.take(raw(2, padding=400)))
    await here.until(lambda: len(here.publisher.waiting(*here.scored)) == 2)
    await here.settle()
    assert not taking.done()
    assert lane.next_offset == here.metric("kp_in_flight_records") == 2
    assert here.metric("kp_in_flight_bytes") == raw(0, padding=400).size * 2

    here.publisher.confirm(*here.scored)
    await taking
    here.publisher.release(*here.scored)
    await here.until(lambda: lane.watermark == 3)

    assert here.metric("kp_in_flight_records") == here.metric("kp_in_flight_bytes") == 0


async def test_a_record_larger_than_the_byte_limit_goes_alone(world, raw):
    here = world(in_flight_bytes=1024)
    here.publisher.hold(*here.scored)
    lane = await here.lane()
    await feed(lane, raw(0))
    large = asyncio.create_task(lane.take(raw(1, padding=5000)))
    await here.settle()
    assert not large.done()

    await here.until(lambda: here.publisher.waiting(*here.scored))
    here.publisher.confirm(*here.scored)
    await large
    after = asyncio.create_task(lane.take(raw(2)))
    await here.until(lambda: here.publisher.waiting(*here.scored))
    await here.settle()
    assert not after.done()

    here.publisher.release(*here.scored)
    await after
    await here.until(lambda: lane.watermark == 3)


async def test_a_lane_that_is_too_far_ahead_of_its_commit_asks_for_one_and_waits(world, raw):
    """What may be delivered again is bounded, so that the ledger's window covers it."""
    here = world(uncommitted_records=2)
    lane = await here.lane()
    await processed(here, lane, raw(0), raw(1))
    assert not here.wants_commit
    taking = asyncio.create_task(lane.take(raw(2)))
    await here.until(lambda: here.wants_commit)
    await here.settle()
    assert not taking.done()

    lane.committed(1)
    await taking
    await here.until(lambda: lane.watermark == 3)


# --- the end


async def test_draining_finishes_what_was_scored(world, raw):
    here = world()
    here.publisher.hold(here.ledger, *here.scored)
    lane = await here.lane()
    await feed(lane, raw(0), raw(1))
    await here.until(lambda: len(here.publisher.waiting(here.ledger)) == 2)
    draining = asyncio.create_task(lane.drain(20))
    await here.settle()
    assert not draining.done()

    here.publisher.release(here.ledger)
    await here.settle()
    assert not draining.done()
    here.publisher.release(*here.scored)
    await draining

    assert lane.watermark == len(here.outputs()) == 2
    assert tasks() == []


async def test_draining_gives_up_what_is_still_being_embedded(world, raw):
    """An embedder that hangs must not hold a rebalance up: nobody has heard of these records yet."""
    here = world()
    lane = await here.lane()
    await processed(here, lane, raw(0))
    here.embedder.free.clear()
    await feed(lane, raw(1), raw(2, b"no JSON"), raw(3))

    await lane.drain(20)

    assert lane.watermark == len(here.outputs()) == 1
    assert list(here.entries()) == [0]
    assert here.metric("kp_in_flight_records") == 0
    await here.settle()
    assert tasks() == []


async def test_draining_scores_nothing_more_while_it_waits(world, raw):
    """Else a drain could go on for as long as there are records in the lane."""
    here = world()
    here.publisher.hold(*here.scored)
    lane = await here.lane()
    await feed(lane, raw(0))
    await here.until(lambda: here.publisher.waiting(*here.scored))
    here.embedder.free.clear()
    await feed(lane, raw(1))
    await here.until(lambda: here.embedder.asked == 2)

    draining = asyncio.create_task(lane.drain(20))
    await here.settle()
    here.embedder.free.set()
    await here.until(lambda: len(here.embedder.texts) == 2)
    await here.settle()
    here.publisher.release(*here.scored)
    await draining

    assert lane.watermark == 1
    assert list(here.entries()) == [0]


async def test_draining_raises_when_the_broker_does_not_confirm_in_time(world, raw):
    here = world()
    here.publisher.hold(*here.scored)
    lane = await here.lane()
    await feed(lane, raw(0))
    await here.until(lambda: here.publisher.waiting(*here.scored))

    with pytest.raises(DeliveryError, match=r"1 records unconfirmed .*limits\.drain"):
        await lane.drain(0.01)

    assert lane.watermark == 0
    assert tasks() == []


async def test_draining_a_lane_that_failed_does_not_wait_for_what_will_not_come(world, raw):
    here = world()
    here.publisher.failing.update(here.scored)
    lane = await here.lane()
    await feed(lane, raw(0), raw(1))
    await here.until(lambda: here.failures)

    await lane.drain(20)

    assert lane.watermark == 0
    assert len(here.failures) == 1


async def test_a_draining_lane_lets_go_who_waits_for_room_and_ignores_what_comes(world, raw):
    here = world(in_flight_records=1)
    here.publisher.hold(*here.scored)
    lane = await here.lane()
    await feed(lane, raw(0))
    taking = asyncio.create_task(lane.take(raw(1)))
    await here.until(lambda: here.publisher.waiting(*here.scored))

    draining = asyncio.create_task(lane.drain(20))
    await taking
    here.publisher.release(*here.scored)
    await draining
    await lane.take(raw(2))
    await here.settle()

    assert lane.watermark == lane.next_offset == len(here.outputs()) == 1


async def test_a_draining_lane_lets_go_who_waits_for_a_hanging_embedder(world, raw):
    here = world(admitted=1)
    here.embedder.free.clear()
    lane = await here.lane()
    await feed(lane, raw(0), raw(1))
    taking = asyncio.create_task(lane.take(raw(2)))
    await here.settle()
    assert not taking.done()

    await lane.drain(20)
    await taking
    await here.settle()

    assert lane.watermark == 0
    assert here.outputs() == []
    assert here.metric("kp_in_flight_records") == 0
    assert tasks() == []


async def test_a_closed_lane_leaves_nothing_behind_wherever_its_records_are(world, raw):
    """One in each step: embedding, remembering, publishing and finishing."""
    here = world()
    here.publisher.hold(*here.scored)
    lane = await here.lane()
    await feed(lane, raw(0))
    await here.until(lambda: here.publisher.waiting(*here.scored))
    here.publisher.hold(here.ledger)
    await feed(lane, raw(1), raw(2))
    await here.until(lambda: len(here.publisher.waiting(here.ledger)) == 2)
    here.embedder.free.clear()
    await feed(lane, raw(3), raw(4))
    await here.settle()

    await lane.close()

    await here.settle()
    assert tasks() == []
    assert here.metric("kp_in_flight_records") == here.metric("kp_in_flight_bytes") == 0
    assert lane.watermark == 0
    assert here.failures == []
