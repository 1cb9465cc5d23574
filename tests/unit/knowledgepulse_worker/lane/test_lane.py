"""One partition's pipeline: ordering, failures and bounds."""

import asyncio
import json
import weakref
from dataclasses import replace
from hashlib import sha256

import pytest

from knowledgepulse_kafka.errors import DeliveryError, TooLargeError
from knowledgepulse_kafka.records import NO_TIMESTAMP, Position
from knowledgepulse_worker.errors import EmbeddingError
from knowledgepulse_worker.lane import lane as lane_module
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.records.ledger_records import POSITION_KEY, decode_position
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


async def test_a_trace_s_memory_is_free_once_it_is_scored_although_it_is_not_committed(
    make_harness, raw, monkeypatch
):
    decoded = []

    def decode(value, max_bytes):
        trace = decode_trace(value, max_bytes)
        decoded.append(weakref.ref(trace))
        return trace

    monkeypatch.setattr(lane_module, "decode_trace", decode)
    harness = make_harness()
    lane = await harness.lane()

    await feed(lane, raw(0), raw(1))
    while len(lane.complete()) < 2:
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


async def test_nothing_is_published_before_it_is_committed(make_harness, raw):
    harness = make_harness()
    lane = await harness.lane()
    await feed(lane, raw(0), raw(1, b"no JSON"))
    await harness.until(lambda: len(lane.complete()) == 2)
    assert (harness.publisher.committed, harness.position) == ([], 0)

    await harness.commit(lane)

    assert harness.publisher.transactions == 1
    assert len(harness.outputs()) == harness.position == harness.publisher.positions[0].offset == 2


async def test_what_completes_during_a_commit_belongs_to_the_next(make_harness, raw):
    harness = make_harness()
    harness.publisher.gate.clear()
    lane = await harness.lane()
    await feed(lane, raw(0, b"no JSON"))
    committing = asyncio.create_task(harness.commit(lane))
    await harness.settle()
    await feed(lane, raw(1, b"no JSON"))

    harness.publisher.gate.set()
    await committing

    assert len(harness.outputs()) == harness.position == 1
    await harness.committed(lane, 2)


async def test_a_trace_is_not_scored_before_an_earlier_one(make_harness, raw):
    harness = make_harness()
    harness.embedder.free.clear()
    lane = await harness.lane()
    await feed(lane, raw(0), raw(1, b"no JSON"))
    await harness.settle()
    assert lane.complete() == []

    harness.embedder.free.set()
    await harness.committed(lane, 2)


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


async def test_a_failed_transaction_leaves_everything_as_it_was(make_harness, raw):
    harness = make_harness()
    lane = await harness.lane()
    await harness.processed(lane, raw(0))
    harness.publisher.is_failing = True
    await feed(lane, raw(1))
    await harness.until(lane.complete)

    with pytest.raises(DeliveryError):
        await harness.commit(lane)

    assert len(harness.outputs()) == harness.position == 1
    assert list(harness.entries()) == [0]


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


async def test_an_output_refused_only_as_part_of_a_batch_is_sent_alone(make_harness, raw):
    """A broker refuses a batch as a whole, which does not tell which record was at fault."""
    harness = make_harness()
    harness.publisher.refused_in_batch.update(harness.scored)
    lane = await harness.lane()
    await feed(lane, raw(0), raw(1))
    await harness.until(lambda: len(lane.complete()) == 2)

    await harness.commit(lane)

    assert [headers(output)["kp-source"][-1:] for output in harness.outputs()] == [b"0", b"1"]
    assert (
        harness.publisher.transactions
        == harness.metric("kp_aborted_transactions_total", reason="refused")
        == 1
    )


async def test_an_output_refused_alone_becomes_a_dead_letter_and_keeps_its_vector(make_harness, raw):
    harness = make_harness()
    harness.publisher.refused.update(harness.scored)

    await harness.processed(await harness.lane(), raw(0))

    (dead,) = harness.outputs()
    assert dead.value == raw(0).value
    assert headers(dead)["kp-reason"] == b"too_large"
    assert harness.entries()[0].vector is not None  # it was scored, so later traces are compared with it
    assert harness.metric("kp_traces_total", outcome="dead_letter") == 1
    assert harness.metric("kp_traces_total", outcome="rejected") == 0


async def test_a_record_without_a_key_for_a_compacted_topic_becomes_a_dead_letter(make_harness, raw):
    harness = make_harness()
    harness.publisher.refusing_keyless.update(harness.scored)

    await harness.processed(await harness.lane(), raw(0), replace(raw(1), key=None), raw(2))

    before, dead, after = harness.outputs()
    assert dead.value == raw(1).value
    assert headers(dead)["kp-reason"] == b"refused"
    assert before.topic in harness.scored
    assert after.topic in harness.scored
    assert list(harness.entries()) == [0, 1, 2]
    assert harness.failures == []


async def test_a_transaction_mends_the_refusals_of_all_partitions(make_harness, raw):
    """A topic may come to take only small records, and each transaction costs the time of a commit."""
    harness = make_harness()
    harness.publisher.refused.update(harness.scored)
    assignment = harness.assignment()
    for partition in range(3):
        await assignment.tasks[partition].take(raw(0, partition=partition))

    async def committed():
        return len(await assignment.commit(harness.publisher.publish)) == 3

    while not await committed():
        await asyncio.sleep(0)

    assert [headers(dead)["kp-reason"] for dead in harness.outputs()] == [b"too_large"] * 3
    assert harness.metric("kp_aborted_transactions_total", reason="refused") == 1


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


async def test_a_wide_gap_needs_no_outputs(make_harness, raw):
    harness = make_harness()

    await harness.processed(await harness.lane(), raw(0), raw(FAR))

    assert score(harness.outputs()[1])["nearest"] == "kp:trace:0/0"


@pytest.mark.parametrize("limits", [{"in_flight_records": 2}, {"in_flight_bytes": 2000}])
async def test_a_lane_at_its_in_flight_limit_requests_a_commit_and_waits(limits, make_harness, raw):
    harness = make_harness(**limits)
    lane = await harness.lane()
    await feed(lane, raw(0, padding=400), raw(1, padding=400))
    taking = asyncio.create_task(lane.take(raw(2, padding=400)))
    await harness.until(lambda: len(lane.complete()) == 2)
    await harness.settle()
    assert not taking.done()
    assert lane.taken == lane.in_flight == 2
    assert lane.in_flight_bytes == raw(0, padding=400).size * 2

    await harness.commit(lane)
    await taking
    await harness.committed(lane, 3)

    assert lane.in_flight == lane.in_flight_bytes == 0


@pytest.mark.parametrize("limits", [{"in_flight_records": 4}, {"in_flight_bytes": 4000}])
async def test_a_half_full_lane_requests_a_commit_before_it_has_to_wait(limits, make_harness, raw):
    """With a long commit interval, a worker without a model stood still for a third of the time."""
    harness = make_harness(**limits)
    lane = await harness.lane()
    await feed(lane, raw(0, padding=400))
    await harness.until(lambda: len(lane.complete()) == 1)
    assert not harness.commit_requested

    await feed(lane, raw(1, padding=400))
    await harness.until(lambda: len(lane.complete()) == 2)
    await feed(lane, raw(2, padding=400))

    assert harness.commit_requested


async def test_a_lane_full_of_what_is_not_scored_yet_requests_no_commit(make_harness, raw):
    """Its transactions would hold a record each."""
    harness = make_harness(in_flight_records=6)
    lane = await harness.lane()
    await feed(lane, raw(0))
    await harness.until(lambda: len(lane.complete()) == 1)
    harness.embedder.free.clear()

    await feed(lane, *(raw(number) for number in range(1, 6)))

    assert not harness.commit_requested
    harness.embedder.free.set()


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


# --- the ledger


async def test_a_successor_continues_as_if_nothing_had_happened(make_harness, raw):
    before = make_harness()
    await before.processed(await before.lane(), raw(0), raw(1))
    after = make_harness()

    lane = await after.lane(2, before.changelog())
    await after.processed(lane, raw(2))

    assert score(after.outputs()[0])["nearest"] in {"kp:trace:0/0", "kp:trace:0/1"}
    assert lane.cached == 3


async def test_invalid_entries_are_deleted_by_the_first_transaction_and_by_no_other(make_harness, raw):
    before = make_harness()
    await before.processed(await before.lane(), raw(0), raw(1))
    after = make_harness()
    after.embedder.identity = "another"

    lane = await after.lane(2, before.changelog())
    await after.processed(lane, raw(2))
    await after.processed(lane, raw(3))

    written = after.publisher.records(after.ledger)
    assert [(record.key, record.value is None) for record in written] == [
        (b"0", True),
        (b"1", True),
        (b"0", False),
        (b"position", False),
        (b"1", False),
        (b"position", False),
    ]
    assert after.metric("kp_cache_resets_total", reason="model") == 1


async def test_without_an_embedder_the_ledger_has_only_the_position(make_harness, raw):
    harness = make_harness(embedding=False)

    await harness.processed(await harness.lane(), raw(0))

    [record] = harness.publisher.records(harness.ledger)
    assert (record.key, decode_position(record.value)) == (POSITION_KEY, Position(1))
    assert len(harness.outputs()) == 1
