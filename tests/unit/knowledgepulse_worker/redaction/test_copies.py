"""Redacted copies of contributed traces: which traces have one, when, and what stands for one that failed."""

import asyncio
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from knowledgepulse_worker.errors import REDACTION_REASONS, DeliveryError, RedactionError
from knowledgepulse_worker.lane import lane as lane_module
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.entry import Entry
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.record import OutputRecord
from knowledgepulse_worker.redaction.copies import Redaction
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.settings import TopicSettings

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


async def test_the_watermark_waits_for_the_confirmed_copy(make_harness, raw):
    harness = make_harness(policy=EVERYTHING, redact=mask)
    harness.publisher.hold(harness.redacted)
    lane = await harness.lane()

    await lane.take(raw(0))
    await harness.until(lambda: harness.publisher.waiting(harness.redacted))
    await harness.settle()
    assert (lane.watermark, len(harness.outputs())) == (0, 1)

    harness.publisher.release(harness.redacted)
    await harness.until(lambda: lane.watermark == 1)


async def test_an_unconfirmed_copy_stops_the_lane_and_a_successor_publishes_it(make_harness, raw):
    harness = make_harness(policy=EVERYTHING, redact=mask)
    harness.publisher.failing.add(harness.redacted)
    lane = await harness.lane()
    await lane.take(raw(0))
    await harness.until(lambda: harness.failures)
    assert (lane.watermark, [type(error) for error in harness.failures]) == (0, [DeliveryError])
    await lane.close()
    harness.forget()

    harness.publisher.restart()
    await harness.processed(await harness.lane(0, harness.changelog()), raw(0))

    first, second = harness.outputs()
    assert first == second
    assert len(copies(harness)) == 1


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


async def test_a_copy_that_its_topic_refuses_as_too_large_is_a_failed_redaction(make_harness, raw):
    harness = make_harness(policy=EVERYTHING, redact=mask)
    lane = await harness.lane()
    send_alone = harness.publisher.send_alone

    async def refuse(record):
        harness.publisher.refused = (
            {harness.redacted} if record.value and record.topic == "redacted" else set()
        )
        return await send_alone(record)

    harness.publisher.send_alone = refuse

    await harness.processed(lane, raw(0))

    (failed,) = copies(harness)
    assert (failed.value, dict(failed.headers)["kp-redaction-error"]) == (None, b"too_large")


async def test_a_drain_leaves_slow_redactions_to_redelivery(make_harness, raw, monkeypatch):
    """The broker has confirmed everything else, so that the rebalance goes on without an error."""
    free = asyncio.Event()

    async def slow(value):
        await free.wait()
        return await mask(value)

    monkeypatch.setattr(lane_module, "COPIES_LIMIT", 0.01)
    harness = make_harness(policy=EVERYTHING, redact=slow)
    lane = await harness.lane()
    for offset in range(3):
        await lane.take(raw(offset))
    await harness.until(lambda: len(harness.outputs()) == 3)

    await lane.drain(600)
    assert (lane.watermark, copies(harness), harness.failures) == (0, [], [])

    free.set()
    await harness.processed(await harness.lane(0, harness.changelog()), *map(raw, range(3)))
    assert harness.outputs()[3:] == harness.outputs()[:3]
    assert len(copies(harness)) == 3
    assert len(harness.embedder.texts) == 3


async def test_a_drain_waits_for_the_copies_of_a_quick_function(make_harness, raw, monkeypatch):
    """So that an orderly stop repeats nothing."""
    monkeypatch.setattr(lane_module, "COPIES_LIMIT", 600)
    harness = make_harness(policy=EVERYTHING, redact=mask)
    harness.publisher.hold(harness.redacted)
    lane = await harness.lane()
    await lane.take(raw(0))
    await harness.until(lambda: harness.publisher.waiting(harness.redacted))

    draining = asyncio.create_task(lane.drain(600))
    await harness.settle()
    assert not draining.done()
    harness.publisher.release(harness.redacted)
    await draining

    assert lane.watermark == 1


async def test_a_slow_redaction_does_not_hold_back_the_outputs_behind_it(make_harness, raw):
    free = asyncio.Event()

    async def slow(value):
        await free.wait()
        return await mask(value)

    harness = make_harness(policy=EVERYTHING, redact=slow)
    harness.publisher.refused_in_batch.add("contribute")
    lane = await harness.lane()
    for offset in range(3):
        await lane.take(raw(offset))

    await harness.until(lambda: len(harness.outputs()) == 3)
    free.set()
    await harness.until(lambda: lane.watermark == 3)


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

    sent = []

    async def send(record):
        sent.append(record)

    topics = dict.fromkeys(("raw-traces", "redacted"), 1)
    metrics = Metrics(Policy(), 0.1, CollectorRegistry())
    redaction = Redaction(redact, "redacted", Outputs(TopicSettings(), topics), metrics)
    nearest = f"kp:trace:{SECRET}"
    header = Score(0.5, 0.5, 0.5, 0.5, 0.5, (), "code", 0.5, nearest)
    record, entry = raw(0), Entry(0, 0, b"", policy="abc", score=msgspec.json.encode(header))
    output = OutputRecord("contribute", 0, 0, b"key", original, (("h", SECRET.encode()),))

    asyncio.run(redaction.publish(record, entry, output, send))

    (copy,) = sent
    if copy.value is None:
        assert (copy.key, dict(copy.headers)["kp-redaction-error"]) == (None, b"invalid")
    else:
        assert copy.value == answer
        assert "quality_score" in json.loads(answer)["metadata"]
    assert SECRET not in repr(copy)
