"""One partition's pipeline: ordering, failures and bounds."""

import asyncio
import json
import weakref
from dataclasses import replace
from hashlib import sha256

import pytest

from knowledgepulse_kafka.errors import TooLargeError
from knowledgepulse_worker.errors import EmbeddingError
from knowledgepulse_worker.lane import record_reader
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records import decode as decode_module
from knowledgepulse_worker.records.decode import decode_scorable
from knowledgepulse_worker.scoring import score_trace, scorer
from knowledgepulse_worker.settings import EmbeddingSettings
from support.lanes import feed, headers, score, unread

pytestmark = pytest.mark.usefixtures("no_leaks")

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


async def test_a_trace_s_memory_is_free_once_it_is_scored_although_it_is_not_committed(
    make_harness, raw, monkeypatch
):
    decoded = []

    def decode(value, max_bytes, unwrap):
        valid = decode_scorable(value, max_bytes, unwrap)
        decoded.append(weakref.ref(valid.trace))
        return valid

    monkeypatch.setattr(record_reader, "decode_scorable", decode)
    # What is read in one pass cannot be referred to weakly.
    monkeypatch.setattr(decode_module, "scan", lambda _: None)
    monkeypatch.setattr(decode_module, "valid_trace", lambda _: None)
    harness = make_harness()
    lane = await harness.lane()

    await feed(lane, raw(0), raw(1))
    while len(lane.uncommitted.complete()) < 2:
        await asyncio.sleep(0)

    assert [trace() for trace in decoded] == [None, None]


async def test_the_text_that_the_settings_choose_is_embedded(make_harness, raw, document):
    step = {"step_id": 0, "type": "tool_call", "tool": {"name": "shell"}, "input": {"command": "ls -la"}}
    seen = {"step_id": 1, "type": "observation", "content": "empty"}
    value = json.dumps(document(steps=[step, seen])).encode()
    harness = make_harness()
    settings = harness.services.settings.model_copy(update={"embedding": EmbeddingSettings(text="agent")})
    harness.services = replace(harness.services, settings=settings)

    await harness.processed(await harness.lane(), raw(0, value))

    assert harness.embedder.texts == ["Fix the failing build shell command ls -la"]


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
    assert len(harness.outputs()) == harness.position == 1
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
    assert list(harness.entries()) == [0, 2]
    assert harness.failures == []


async def test_a_dead_letter_refused_alone_is_sent_with_its_value_cut(make_harness, raw):
    """Headers hold its length and hash, so that the original can be found in the raw topic."""
    value = b"no JSON" * 1000
    harness = make_harness()

    def problem_of(record):
        if record.topic == harness.dead_letter and len(record.value) > 5000:
            return TooLargeError("too large")
        return None

    replacements = replace(harness.services.replacements, problem_of=problem_of)
    harness.services = replace(harness.services, replacements=replacements)

    await harness.processed(await harness.lane(), raw(0, value), raw(1))

    dead, _ = harness.outputs()
    assert dead.value == value[:1024]
    assert headers(dead)["kp-reason"] == b"not_json"
    assert headers(dead)["kp-value-length"] == b"7000"
    assert headers(dead)["kp-value-sha256"] == sha256(value).hexdigest().encode()
    assert harness.metric("kp_aborted_transactions_total", reason="refused") == 0


async def test_a_record_for_which_there_is_no_replacement_ends_the_process(make_harness, raw):
    harness = make_harness()
    harness.publisher.refused.add(harness.dead_letter)
    lane = await harness.lane()
    await feed(lane, raw(0, b"no JSON"))

    with pytest.raises(TooLargeError):
        await harness.commit(lane)

    assert harness.position == 0


# --- gaps and bounds


@pytest.mark.parametrize("limits", [{"in_flight_records": 4}, {"in_flight_bytes": 4000}])
async def test_a_half_full_lane_requests_a_commit_before_it_has_to_wait(limits, make_harness, raw):
    """With a long commit interval, a worker without a model stood still for a third of the time."""
    harness = make_harness(**limits)
    lane = await harness.lane()
    await feed(lane, raw(0, padding=400))
    await harness.until(lambda: len(lane.uncommitted.complete()) == 1)
    assert not harness.commit_requested

    await feed(lane, raw(1, padding=400))
    await harness.until(lambda: len(lane.uncommitted.complete()) == 2)
    await feed(lane, raw(2, padding=400))

    assert harness.commit_requested


async def test_a_lane_full_of_what_is_not_scored_yet_requests_no_commit(make_harness, raw):
    """Its transactions would hold a record each."""
    harness = make_harness(in_flight_records=6)
    lane = await harness.lane()
    await feed(lane, raw(0))
    await harness.until(lambda: len(lane.uncommitted.complete()) == 1)
    harness.embedder.free.clear()

    await feed(lane, *(raw(number) for number in range(1, 6)))

    assert not harness.commit_requested
    harness.embedder.free.set()


async def test_a_lane_is_scoring_until_all_that_it_took_is_scored(make_harness, raw):
    """A transaction meanwhile would take the processor from the embedder."""
    harness = make_harness()
    harness.embedder.free.clear()
    lane = await harness.lane()
    await feed(lane, raw(0), raw(1))
    assert lane.is_scoring

    harness.embedder.free.set()
    await harness.until(lambda: len(lane.uncommitted.complete()) == 2)
    assert not lane.is_scoring


async def test_a_full_lane_requests_a_commit_once_something_is_complete(make_harness, raw):
    harness = make_harness(in_flight_records=1)
    harness.embedder.free.clear()
    lane = await harness.lane()
    await feed(lane, raw(0))
    taking = asyncio.create_task(lane.take(raw(1)))
    await harness.settle()
    assert not harness.commit_requested

    harness.embedder.free.set()
    await harness.until(lambda: harness.commit_requested)
    await harness.commit(lane)
    await taking


async def test_a_record_larger_than_the_byte_limit_is_processed_alone(make_harness, raw):
    harness = make_harness(in_flight_bytes=1024)
    lane = await harness.lane()
    await feed(lane, raw(0))
    large = asyncio.create_task(lane.take(raw(1, padding=5000)))
    await harness.settle()
    assert not large.done()

    await harness.committed(lane, 1)
    await large
    after = asyncio.create_task(lane.take(raw(2)))
    await harness.settle()
    assert not after.done()

    await harness.committed(lane, 2)
    await after
    await harness.committed(lane, 3)


@pytest.mark.parametrize("limits", [{"in_flight_records": 2}, {"in_flight_bytes": 2000}])
async def test_what_is_committed_makes_room_for_as_much_again(limits, make_harness, raw):
    harness = make_harness(**limits)
    lane = await harness.lane()
    await feed(lane, raw(0, padding=400), raw(1, padding=400))
    await harness.committed(lane, 2)

    again = asyncio.create_task(feed(lane, raw(2, padding=400), raw(3, padding=400)))
    await harness.settle()

    assert again.done()
    await harness.committed(lane, 4)


# --- the ledger
