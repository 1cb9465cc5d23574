"""One partition's pipeline: ordering, failures and bounds."""

import asyncio
import gc
import json
from dataclasses import replace
from hashlib import sha256

import pytest

from knowledgepulse_worker.errors import DeliveryError, EmbeddingError, TooLargeError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.record import NO_TIMESTAMP
from knowledgepulse_worker.scoring import score_trace, scorer
from knowledgepulse_worker.settings import EmbeddingSettings
from support.lanes import feed, headers, score, unread

pytestmark = pytest.mark.usefixtures("no_leaks")

FAR = 50_000_000


ODD_TIMESTAMPS = (2**63 - 2, 253_402_300_799_000, 0, -2, -(2**63))
"""Far in the future (the year 9999 among them), the epoch itself, and before it."""


async def test_a_timestamp_that_the_output_topic_rejects_is_kept_in_a_header(make_harness, raw):
    harness = make_harness()
    lane = await harness.lane()
    harness.publisher.refusing_timestamps |= {"rejected", harness.dead_letter}
    records = [replace(raw(n), timestamp_ms=time) for n, time in enumerate(ODD_TIMESTAMPS)]
    records += [replace(raw(n + 5, b"no trace"), timestamp_ms=time) for n, time in enumerate(ODD_TIMESTAMPS)]

    await harness.processed(lane, *records)

    kept = [int(headers(output)["kp-timestamp"]) for output in harness.outputs()]
    assert sorted(kept) == sorted([*ODD_TIMESTAMPS] * 2)
    assert {output.timestamp_ms for output in harness.outputs()} == {NO_TIMESTAMP}
    assert harness.failures == []


async def test_entries_are_sent_alone_if_the_changelog_rejects_their_batch_s_timestamp(make_harness, raw):
    harness = make_harness()
    lane = await harness.lane()
    harness.publisher.refusing_current_time.add(harness.ledger)

    await harness.processed(lane, raw(0))

    assert harness.entries().keys() == {0}
    assert harness.failures == []


# --- order


async def test_a_trace_is_scored_and_published_with_its_score(make_harness, raw):
    harness = make_harness(policy=Policy(threshold=0))

    await harness.processed(await harness.lane(), raw(0), raw(1))

    first, second = harness.outputs()
    assert (first.topic, second.topic) == ("contribute", "contribute")
    assert headers(first)["kp-source"] == b"raw-traces/0/0"
    assert (score(first)["nearest"], score(first)["novelty"]) == (None, 0.5)
    assert score(second)["nearest"] == "kp:trace:0/0"
    assert json.loads(second.value)["metadata"]["quality_score"] == score(second)["score"]


async def test_the_text_that_the_settings_choose_is_embedded(make_harness, raw, document):
    step = {"step_id": 0, "type": "tool_call", "tool": {"name": "shell"}, "input": {"command": "ls -la"}}
    seen = {"step_id": 1, "type": "observation", "content": "empty"}
    value = json.dumps(document(steps=[step, seen])).encode()
    harness = make_harness()
    settings = harness.services.settings.model_copy(update={"embedding": EmbeddingSettings(text="agent")})
    harness.services = replace(harness.services, settings=settings)

    await harness.processed(await harness.lane(), raw(0, value))

    assert harness.embedder.texts == ["Fix the failing build shell command ls -la"]


async def test_an_output_is_sent_only_when_its_entry_and_all_earlier_ones_are_confirmed(make_harness, raw):
    harness = make_harness()
    harness.publisher.hold(harness.ledger)
    lane = await harness.lane()

    await feed(lane, raw(0), raw(1, b"no JSON"))
    await harness.until(lambda: len(harness.publisher.waiting(harness.ledger)) == 2)
    await harness.settle()
    assert harness.outputs() == []

    harness.publisher.confirm(harness.ledger)
    await harness.until(harness.outputs)
    await harness.settle()
    assert [headers(output).get("kp-source") for output in harness.outputs()] == [b"raw-traces/0/0"]


async def test_the_watermark_advances_only_with_confirmed_outputs_and_in_offset_order(make_harness, raw):
    harness = make_harness()
    harness.publisher.hold(*harness.scored, harness.dead_letter)
    lane = await harness.lane()
    await feed(lane, raw(0), raw(1, b"no JSON"), raw(2))
    await harness.until(lambda: len(harness.publisher.waiting(*harness.scored, harness.dead_letter)) == 3)

    harness.publisher.confirm(harness.dead_letter)
    await harness.settle()
    assert lane.watermark == 0

    harness.publisher.confirm(*harness.scored)
    await harness.settle()
    assert lane.watermark == 2


async def test_an_undecodable_record_becomes_a_dead_letter_in_order(make_harness, raw):
    harness = make_harness()

    bad = raw(1, None), raw(2, b"{"), raw(3, b"{}"), unread(4), unread(5, "undecodable")
    await harness.processed(await harness.lane(), raw(0), *bad, raw(6))

    outputs = harness.outputs()
    reasons = [headers(output).get("kp-reason") for output in outputs]
    assert reasons == [None, b"empty", b"not_json", b"invalid_trace", b"too_large", b"undecodable", None]
    assert score(outputs[-1])["nearest"] == "kp:trace:0/0"
    assert (outputs[4].key, outputs[4].value) == (None, None)
    assert headers(outputs[4])["__streams.errors.message"] == b"the batch up to 1"
    assert harness.metric("kp_dead_letters_total", reason="empty") == 1


# --- failures of the broker and of the embedder


@pytest.mark.parametrize("failed", ["entry", "output"])
async def test_a_failed_send_stops_the_lane_before_that_record(failed, make_harness, raw):
    harness = make_harness()
    lane = await harness.lane()
    await harness.processed(lane, raw(0))
    harness.publisher.failing.update([harness.ledger] if failed == "entry" else harness.scored)

    await feed(lane, raw(1), raw(2))
    await harness.until(lambda: harness.failures)
    harness.publisher.failing.clear()
    await feed(lane, raw(3))
    await harness.settle()

    assert lane.watermark == 1
    assert {type(error) for error in harness.failures} == {DeliveryError}
    if failed == "entry":
        assert len(harness.outputs()) == 1


async def test_a_stopped_lane_leaves_no_unretrieved_exception(make_harness, raw):
    """The event loop would log each with its traceback: up to 64 for a single failure."""
    unretrieved = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: unretrieved.append(context["message"])
    )
    harness = make_harness()
    harness.publisher.failing.update(harness.scored)
    lane = await harness.lane()
    await feed(lane, raw(0), raw(1), raw(2))
    await harness.until(lambda: harness.failures)
    await harness.settle()

    await lane.drain(20)
    harness.forget()
    del lane
    gc.collect()

    assert unretrieved == []


async def test_a_failing_embedder_stops_the_lane_without_a_dead_letter(make_harness, raw):
    """The record is not at fault: it is scored once the embedder works again."""
    harness = make_harness()
    lane = await harness.lane()
    await harness.processed(lane, raw(0))
    harness.embedder.error = EmbeddingError("out of memory")

    await feed(lane, raw(1), raw(2, b"no JSON"), raw(3))
    await harness.until(lambda: harness.failures)
    await harness.settle()

    assert harness.failures == [harness.embedder.error]
    assert len(harness.outputs()) == lane.watermark == 1
    assert list(harness.entries()) == [0]


async def test_a_scoring_failure_makes_one_dead_letter_and_leaves_the_cache_unchanged(
    make_harness, raw, monkeypatch
):
    def fail_for_one(trace, nearest, policy, counts):
        if trace.id == "kp:trace:0/1":
            raise ZeroDivisionError("by zero")
        return score_trace(trace, nearest, policy, counts)

    monkeypatch.setattr(scorer, "score_trace", fail_for_one)
    harness = make_harness()

    await harness.processed(await harness.lane(), raw(0), raw(1), raw(2))

    _, dead, after = harness.outputs()
    assert headers(dead)["kp-reason"] == b"scoring_failed"
    assert headers(dead)["__streams.errors.exception"] == b"ZeroDivisionError"
    assert score(after)["nearest"] == "kp:trace:0/0"
    assert harness.entries()[1].vector is None
    assert harness.failures == []


async def test_an_output_rejected_only_as_part_of_a_batch_is_sent_alone(make_harness, raw):
    """A broker rejects a batch as a whole, which does not tell which record was at fault."""
    harness = make_harness()
    harness.publisher.refused_in_batch.update(harness.scored)

    await harness.processed(await harness.lane(), raw(0), raw(1))

    assert [headers(output)["kp-source"][-1:] for output in harness.outputs()] == [b"0", b"1"]
    assert harness.metric("kp_publish_retries_total") == 2


async def test_an_output_rejected_alone_becomes_a_dead_letter_after_its_entry_is_updated(make_harness, raw):
    harness = make_harness()
    harness.publisher.refused.update(harness.scored)
    lane = await harness.lane()
    await feed(lane, raw(0))
    harness.publisher.hold(harness.ledger)
    await harness.until(
        lambda: harness.publisher.records(harness.ledger) or harness.publisher.waiting(harness.ledger)
    )
    harness.publisher.confirm(harness.ledger)
    await harness.until(
        lambda: harness.publisher.records(harness.ledger) and harness.publisher.waiting(harness.ledger)
    )
    await harness.settle()
    assert harness.outputs() == []

    harness.publisher.release(harness.ledger)
    await harness.until(lambda: lane.watermark == 1)

    (dead,) = harness.outputs()
    assert dead.value == raw(0).value
    assert headers(dead)["kp-reason"] == b"too_large"
    entry = harness.entries()[0]
    assert (entry.outcome, entry.failure.reason) == ("dead_letter", "too_large")
    assert entry.vector is not None  # it was scored, so later traces are compared with it
    assert harness.metric("kp_traces_total", outcome="dead_letter") == 1
    assert harness.metric("kp_traces_total", outcome="rejected") == 0


async def test_a_dead_letter_rejected_alone_is_sent_with_its_value_cut(make_harness, raw, monkeypatch):
    """Headers hold its length and hash, so that the original can be found in the raw topic."""
    value = b"no JSON" * 1000
    harness = make_harness()
    whole = harness.publisher.send_alone

    async def refuse_large(record):
        if record.topic == harness.dead_letter and len(record.value) > 5000:
            raise TooLargeError("too large")
        return await whole(record)

    monkeypatch.setattr(harness.publisher, "send_alone", refuse_large)
    harness.publisher.refused_in_batch.add(harness.dead_letter)

    await harness.processed(await harness.lane(), raw(0, value), raw(1))

    dead, _ = harness.outputs()
    assert dead.value == value[:1024]
    assert headers(dead)["kp-reason"] == b"not_json"
    assert headers(dead)["kp-value-length"] == b"7000"
    assert headers(dead)["kp-value-sha256"] == sha256(value).hexdigest().encode()


# --- gaps and bounds


async def test_a_wide_gap_is_skipped_when_nothing_is_in_flight(make_harness, raw):
    harness = make_harness()
    lane = await harness.lane()
    await harness.processed(lane, raw(0))
    taking = asyncio.create_task(lane.take(raw(FAR)))
    await harness.until(lambda: harness.commit_requested)
    assert lane.watermark == FAR

    lane.committed(lane.watermark)
    await taking
    await harness.until(lambda: lane.watermark == FAR + 1)

    assert score(harness.outputs()[1])["nearest"] == "kp:trace:0/0"


@pytest.mark.parametrize("limits", [{"in_flight_records": 2}, {"in_flight_bytes": 2000}])
async def test_a_lane_at_its_in_flight_limit_waits_for_a_confirmation(limits, make_harness, raw):
    harness = make_harness(**limits)
    harness.publisher.hold(*harness.scored)
    lane = await harness.lane()
    await feed(lane, raw(0, padding=400), raw(1, padding=400))
    taking = asyncio.create_task(lane.take(raw(2, padding=400)))
    await harness.until(lambda: len(harness.publisher.waiting(*harness.scored)) == 2)
    await harness.settle()
    assert not taking.done()
    assert lane.next_offset == harness.metric("kp_in_flight_records") == 2
    assert harness.metric("kp_in_flight_bytes") == raw(0, padding=400).size * 2

    harness.publisher.confirm(*harness.scored)
    await taking
    harness.publisher.release(*harness.scored)
    await harness.until(lambda: lane.watermark == 3)

    assert harness.metric("kp_in_flight_records") == harness.metric("kp_in_flight_bytes") == 0


async def test_a_record_larger_than_the_byte_limit_is_processed_alone(make_harness, raw):
    harness = make_harness(in_flight_bytes=1024)
    harness.publisher.hold(*harness.scored)
    lane = await harness.lane()
    await feed(lane, raw(0))
    large = asyncio.create_task(lane.take(raw(1, padding=5000)))
    await harness.settle()
    assert not large.done()

    await harness.until(lambda: harness.publisher.waiting(*harness.scored))
    harness.publisher.confirm(*harness.scored)
    await large
    after = asyncio.create_task(lane.take(raw(2)))
    await harness.until(lambda: harness.publisher.waiting(*harness.scored))
    await harness.settle()
    assert not after.done()

    harness.publisher.release(*harness.scored)
    await after
    await harness.until(lambda: lane.watermark == 3)


async def test_a_lane_too_far_ahead_of_its_commit_requests_one_and_waits(make_harness, raw):
    """This bounds what can be redelivered, so that the ledger's window covers it."""
    harness = make_harness(uncommitted_records=2)
    lane = await harness.lane()
    await harness.processed(lane, raw(0), raw(1))
    assert not harness.commit_requested
    taking = asyncio.create_task(lane.take(raw(2)))
    await harness.until(lambda: harness.commit_requested)
    await harness.settle()
    assert not taking.done()

    lane.committed(1)
    await taking
    await harness.until(lambda: lane.watermark == 3)
