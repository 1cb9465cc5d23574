"""Wrapped traces on real Kafka: refused, then read by a setting and replayed, and audited at each step."""

from __future__ import annotations

import json

import pytest

from knowledgepulse_worker.records.output_headers import trace_of
from knowledgepulse_worker.tools.audit import audit
from support.commands import invoked
from support.streams import Message, headers_of, score_of
from support.wrapped import plain_trace, wrapped_records

pytestmark = pytest.mark.integration

UNWRAP = ["frame", "/data", "/payload", "/after/payload", "text"]
LEXICAL = {"embedding": {"backend": "lexical"}, "policy": {"threshold": 0.3}}


def messages():
    """Return the recorded forms, whose records differ in their ids."""
    return [
        Message(record.value, record.key, 0, headers=list(record.headers))
        for record in wrapped_records().values()
    ]


async def test_a_setting_and_a_replay_score_what_was_refused_and_the_audit_agrees_at_each_step(
    make_stream, config
):
    """A kill, a replay and two changes of the setting lie between the first record and the last audit."""
    stream = await make_stream(1, **LEXICAL)
    topics = stream.settings.topics
    await stream.publish(messages()[:20])
    await stream.killed(lambda worker: worker.published(5))
    await stream.publish(messages()[20:])
    await stream.scored(await stream.read(topics.raw))
    assert len(await stream.read(topics.contribute)) == 8
    letters = await stream.read(topics.dead_letter)
    assert len(letters) == 33
    assert {"kp-unwrap"} & {name for letter in letters for name, _ in letter.headers} == set()
    assert (await audit(stream.settings)).ok

    replayed = await invoked("dead-letters", "replay", "--config", config(stream.settings))
    assert replayed.exit_code == 0, replayed.stderr
    reading = stream.configured(records={"unwrap": UNWRAP})
    await stream.killed(lambda worker: worker.published(5), settings=reading)
    await stream.publish(messages()[:1])
    await stream.scored(await stream.read(topics.raw), reading)
    outputs = await stream.read(topics.contribute)
    wrapped = [output for output in outputs if "kp-wrapping" in headers_of(output)]
    assert (len(outputs), len(wrapped)) == (23, 14)
    assert {headers_of(output)["kp-wrapping"].split(" ")[0] for output in wrapped} == {"same"}
    again = (await stream.read(topics.dead_letter))[33:]
    assert {headers_of(letter)["kp-unwrap"] for letter in again} == {" ".join(UNWRAP)}
    for output in outputs:
        score = json.loads(trace_of(output))["metadata"]["quality_score"]
        assert score == score_of(output)["score"]
    assert (await audit(reading)).ok

    bare = stream.configured(records={"unwrap": UNWRAP, "output": "bare"})
    event = wrapped_records()["cloudevents-structured"]
    await stream.publish([Message(event.value, event.key, 0, headers=list(event.headers))])
    await stream.scored(await stream.read(topics.raw), bare)
    last = (await stream.read(topics.contribute))[-1]
    assert headers_of(last)["kp-wrapping"] == "bare /data"
    assert [value for name, value in last.headers if name == "content-type"] == [
        b"application/cloudevents+json",
        b"application/json",
    ]
    assert json.loads(last.value).keys() == json.loads(plain_trace()).keys()
    for settings in (stream.settings, reading, bare):
        report = await audit(settings)
        assert report.ok, report
    assert report.waiting == 0
