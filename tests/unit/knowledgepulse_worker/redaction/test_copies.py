"""Redacted copies of contributed traces: which traces have one, when, and what stands for one that failed."""

import asyncio
import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.errors import TooLargeError
from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_worker.errors import REDACTION_REASONS, RedactionError
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.ledger_records import Entry
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.redaction.copies import Redaction
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.settings import TopicSettings
from support.lanes import feed

EVERYTHING = Policy(threshold=0)
SECRET = "canary-of-a-trace"


async def mask(value):
    """Redact a scored trace."""
    trace = json.loads(value)
    trace["id"] = f"{trace['id']}-masked"
    trace.pop("free")
    return json.dumps(trace).encode()


def refusing(reason):
    async def redact(value):
        raise RedactionError(reason)

    return redact


def copies(harness):
    return harness.publisher.records(harness.redacted)


async def test_a_contributed_trace_has_a_redacted_copy_besides_its_unchanged_output(make_harness, raw):
    plain, redacting = make_harness(policy=EVERYTHING), make_harness(policy=EVERYTHING, redact=mask)

    for harness in (plain, redacting):
        await harness.processed(await harness.lane(), raw(0))

    assert redacting.outputs() == plain.outputs()
    (output,), (copy,) = redacting.outputs(), copies(redacting)
    assert (copy.topic, copy.key, copy.partition) == ("redacted", b"kp:trace:0/0-masked", 0)
    assert copy.timestamp_ms == output.timestamp_ms
    assert json.loads(await mask(output.value)) == json.loads(copy.value)
    assert json.loads(copy.value)["metadata"]["quality_score"] > 0
    assert copy.headers == output.headers[-3:], "the producer's headers may hold content"
    assert redacting.metric("kp_redactions_total", result="ok") == 1
    assert redacting.metric("kp_stage_seconds_count", stage="redact") == 1


async def test_other_outputs_have_no_copy(make_harness, raw):
    """Nor has a trace that its topic refuses, as it becomes a dead letter."""
    harness = make_harness(policy=Policy(threshold=1), redact=mask)
    refused = make_harness(policy=EVERYTHING, redact=mask)
    refused.publisher.refused.add("contribute")

    await harness.processed(await harness.lane(), raw(0), raw(1, b"no JSON"))
    await refused.processed(await refused.lane(), raw(0))

    assert [output.topic for output in harness.outputs()] == ["rejected", "dead-letter"]
    assert [output.topic for output in refused.outputs()] == ["dead-letter"]
    assert copies(harness) == copies(refused) == []


@pytest.mark.parametrize("reason", REDACTION_REASONS)
async def test_a_failed_redaction_leaves_a_record_without_content_and_the_rest_goes_on(
    make_harness, raw, reason, caplog
):
    calls = []

    async def redact(value):
        calls.append(value)
        return await (refusing(reason) if len(calls) == 1 else mask)(value)

    harness = make_harness(policy=EVERYTHING, redact=redact)

    await harness.processed(await harness.lane(), raw(0), raw(1))

    assert [output.topic for output in harness.outputs()] == ["contribute", "contribute"]
    failed, copy = copies(harness)
    assert (failed.key, failed.value) == (None, None)
    assert failed.headers == (
        ("kp-source", b"raw-traces/0/0"),
        ("kp-policy", EVERYTHING.digest.encode()),
        ("kp-redaction-error", reason.encode()),
    )
    assert copy.key == b"kp:trace:0/1-masked"
    assert harness.metric("kp_redactions_total", result=reason) == 1
    assert f"raw-traces/0/0: not redacted: {reason}" in caplog.text


async def test_a_trace_is_a_dead_letter_if_not_even_the_failure_of_its_redaction_can_be_published(
    make_harness, raw
):
    """The record that tells the failure has no key, which a compacted topic requires."""
    harness = make_harness(policy=EVERYTHING, redact=refusing("raised"))
    harness.publisher.refusing_keyless.add(harness.redacted)

    await harness.processed(await harness.lane(), raw(0), raw(1))

    assert [dict(output.headers)["kp-reason"] for output in harness.outputs()] == [b"refused", b"refused"]
    assert copies(harness) == []
    assert harness.failures == []


async def test_a_copy_that_its_topic_refuses_as_too_large_is_a_failed_redaction(make_harness, raw):
    harness = make_harness(policy=EVERYTHING, redact=mask)

    def problem_of(record):
        return TooLargeError("too large") if record.topic == harness.redacted and record.value else None

    replacements = replace(harness.services.replacements, problem_of=problem_of)
    harness.services = replace(harness.services, replacements=replacements)

    await harness.processed(await harness.lane(), raw(0))

    (failed,) = copies(harness)
    assert (failed.value, dict(failed.headers)["kp-redaction-error"]) == (None, b"too_large")


async def test_a_stop_leaves_slow_redactions_to_the_next_owner(make_harness, raw):
    """So that the rebalance goes on without an error."""
    free = asyncio.Event()

    async def slow(value):
        await free.wait()
        return await mask(value)

    harness = make_harness(policy=EVERYTHING, redact=slow)
    lane = await harness.lane()
    await feed(lane, *map(raw, range(3)))
    await harness.until(lambda: len(harness.embedder.texts) == 3)
    await harness.settle()

    await harness.commit(lane)
    lane.close()
    assert (harness.position, copies(harness), harness.failures) == (0, [], [])

    free.set()
    await harness.processed(await harness.lane(0, harness.changelog()), *map(raw, range(3)))
    assert len(copies(harness)) == len(harness.outputs()) == 3


async def test_a_full_lane_requests_a_commit_once_a_copy_is_there(make_harness, raw):
    """Otherwise it would stand still until the commit interval is over."""
    free = asyncio.Event()

    async def slow(value):
        await free.wait()
        return await mask(value)

    harness = make_harness(policy=EVERYTHING, redact=slow, in_flight_records=1)
    lane = await harness.lane()
    await feed(lane, raw(0))
    taking = asyncio.create_task(lane.take(raw(1)))
    await harness.until(lambda: harness.commit_requested)  # it is scored
    harness.commit_requested = False

    free.set()
    await harness.until(lambda: harness.commit_requested)
    await harness.commit(lane)
    await taking


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(
    answer=st.binary() | JSON.map(lambda value: json.dumps(value).encode()),
    keeps=st.booleans(),
    data=st.data(),
)
def test_whatever_the_function_returns_the_value_is_that_or_nothing(document, raw, answer, keeps, data):
    """The value is never published unredacted: what is published is a scored trace of the function's."""
    original = json.dumps(document(free=SECRET)).encode()
    if keeps:  # a trace, but for a member that may be missing or something else
        trace = document()
        trace["metadata"] = {**trace["metadata"], "quality_score": 0.5}
        place = data.draw(st.sampled_from([trace, trace["metadata"], trace["outcome"]]))
        name = data.draw(st.sampled_from(sorted(place)))
        if data.draw(st.booleans()):
            place[name] = data.draw(JSON)
        else:
            del place[name]
        answer = json.dumps(trace).encode()

    async def redact(value):
        assert value == original
        return answer

    topics = dict.fromkeys(("raw-traces", "redacted"), 1)
    metrics = Metrics(Policy(), 0.1, CollectorRegistry())
    redaction = Redaction(redact, "redacted", Outputs(TopicSettings(), topics), metrics)
    nearest = f"kp:trace:{SECRET}"
    header = Score(0.5, 0.5, 0.5, 0.5, 0.5, (), "code", 0.5, nearest)
    record, entry = raw(0), Entry(0, 0, policy="abc", score=msgspec.json.encode(header))
    output = OutputRecord("contribute", 0, 0, b"key", original, (("h", SECRET.encode()),))

    copy = asyncio.run(redaction.copy(record, entry, output))

    if copy.value is None:
        assert (copy.key, dict(copy.headers)["kp-redaction-error"]) == (None, b"invalid")
    else:
        assert copy.value == answer
        assert "quality_score" in json.loads(answer)["metadata"]
    assert SECRET not in repr(copy)
