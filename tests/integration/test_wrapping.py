"""Wrapped traces on real Kafka: refused, then read by a setting and replayed, and audited at each step."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE

import pytest
from aiohttp import ClientSession
from yarl import URL

from knowledgepulse_worker.records.output_headers import trace_of
from knowledgepulse_worker.redaction.sdk import SDK_CLEANER, clean
from knowledgepulse_worker.tools.audit import audit
from knowledgepulse_worker.tools.demo.processes import free_ports
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


CANARY = '"subject":"canary of an envelope"'
FORMS = (
    "plain",
    "confluent-json-prefix/own-schema",
    "cloudevents-structured",
    "connect-json-schema-string",
    "connect-json-schema-struct",
    "debezium-envelope",
    "json-in-a-json-string",
)


def marked_messages():
    """Return records whose traces differ in their ids; an envelope that can have a member more has a mark."""
    for number, form in enumerate(FORMS):
        value = wrapped_records()[form].value.replace(b"11111111-", b"%08x-" % number)
        if form != "plain" and value.startswith(b"{"):
            value = value.replace(b"{", b"{%s," % CANARY.encode(), 1)
        yield Message(value, partition=0)


async def labelled(settings, output):
    """Label all traces on the page of `kp-worker policy label`; return what it showed of each, by id."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knowledgepulse_worker.cli.entry", "policy", "label", "--config", settings),
        *("--output", output, "--by", "ann", "--port", str(free_ports(1)[0])),
        stdout=PIPE,
    )
    try:
        page = URL((await process.stdout.readline()).decode().removeprefix("label at ").strip())
        shown = {}
        async with ClientSession(headers={"Origin": str(page.origin())}) as browser:
            state = await (await browser.get(page / "api/trace")).json()
            while (trace := state["trace"]) is not None:
                shown[trace["id"]] = trace
                change = {"revision": state["revision"], "verdict": "keep"}
                state = await (await browser.post(page / "api/label", json=change)).json()
    finally:
        process.terminate()
        await process.wait()
    return shown


async def test_the_redaction_function_and_the_label_page_get_the_trace_alone(make_stream, config, tmp_path):
    """Also of an envelope whose other members would leave with it."""
    stream = await make_stream(
        1,
        **LEXICAL,
        records={"unwrap": UNWRAP},
        topics={"redacted": f"redacted-{tmp_path.name}"},
        redaction={"function": SDK_CLEANER},
    )
    topics = stream.settings.topics
    await stream.publish(marked_messages())
    await stream.scored(await stream.read(topics.raw))
    outputs, copies = await stream.read(topics.contribute), await stream.read(topics.redacted)

    assert sum(CANARY.encode() in output.value for output in outputs) == 4
    assert sum("kp-wrapping" in headers_of(output) for output in outputs) == len(FORMS) - 1
    assert [json.loads(copy.value) for copy in copies] == [
        clean(json.loads(trace_of(output))) for output in outputs
    ]
    for copy in copies:
        assert json.loads(copy.value).keys() == json.loads(plain_trace()).keys()
        assert "kp-wrapping" not in headers_of(copy)
    assert (await audit(stream.settings)).ok

    shown = await labelled(config(stream.settings), tmp_path / "labels.jsonl")
    assert len(shown) == len(FORMS)
    texts = {
        json.dumps([trace[name] for name in ("objective", "steps", "result")]) for trace in shown.values()
    }
    assert len(texts) == 1
    assert json.loads(texts.pop())[0] == json.loads(plain_trace())["task"]["objective"]
    labels = (tmp_path / "labels.jsonl").read_text().splitlines()
    assert {json.loads(line)["id"] for line in labels} == set(shown)
