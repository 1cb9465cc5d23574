"""Outputs of wrapped traces, and what leaves of them: the score, the headers, and nothing of an envelope."""

import asyncio
import json

import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.decode import decode_whole, with_quality_score
from knowledgepulse_worker.records.ledger_records import Entry
from knowledgepulse_worker.records.output_headers import trace_of, unwrapped
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.score_header import encode_score
from knowledgepulse_worker.records.wrapping import ValueRead
from knowledgepulse_worker.redaction.copies import Redaction
from knowledgepulse_worker.scoring import score_trace
from knowledgepulse_worker.settings import RecordSettings, TopicSettings
from knowledgepulse_worker.tools.common.scored_records import read_counted
from knowledgepulse_worker.tools.policies.republish import send_rescored
from knowledgepulse_worker.tools.policies.scored_topics import ScoredTopics
from knowledgepulse_worker.tools.terminal.arguments import Period
from support import letters
from support.wrapped import plain_trace, wrapped_records
from support.written import Written

ALL = ("frame", "/data", "/payload", "/after/payload", "text")
WRAPPED = [
    "confluent-json-prefix/own-schema",
    "cloudevents-structured",
    "connect-json-schema-string",
    "debezium-envelope",
    "json-in-a-json-string",
]
TOPICS = TopicSettings()
COUNTS = dict.fromkeys([*TOPICS.model_dump().values(), "redacted"], 1)
NEW = Policy(threshold=0.9)


def built(form, output="same", more=()):
    """Return the raw record, its entry and its output."""
    wrapped = wrapped_records()[form]
    record = RawRecord(TOPICS.raw, 0, 7, 1_000, wrapped.key, wrapped.value, (*wrapped.headers, *more))
    read = decode_whole(record.value, 2**20, ALL)
    score = score_trace(read.trace, None, Policy())
    entry = Entry(7, 1_000, decision="contribute", score=encode_score(score), policy=Policy().digest)
    builder = Outputs(TOPICS, COUNTS, RecordSettings(unwrap=ALL, output=output))
    return record, entry, builder.build(record, entry, ValueRead(read.score_place, steps=read.steps)), score


@pytest.mark.parametrize("form", WRAPPED)
def test_an_output_is_wrapped_as_before_or_bare_and_says_how_it_was_read(form):
    record, _, same, score = built(form)
    _, _, bare, _ = built(form, "bare")
    expected = with_quality_score(plain_trace(), score.quality_score)

    assert json.loads(bare.value) == json.loads(expected) == json.loads(trace_of(same))
    steps = dict(same.headers)["kp-wrapping"].split(b" ", 1)[1]
    assert same.headers[-1] == ("kp-wrapping", b"same " + steps)
    assert bare.headers[-1] == ("kp-wrapping", b"bare " + steps)
    assert same.headers[: len(record.headers)] == bare.headers[: len(record.headers)] == record.headers


@pytest.mark.parametrize(
    ("headers", "added"),
    [
        ([], []),
        ([("Content-Type", b"application/json; charset=utf-8")], []),
        ([("contentType", b"text/plain")], [("contentType", b"application/json")]),
        ([("Content-Type", None)], [("Content-Type", b"application/json")]),
        ([("CONTENT-TYPE", b"a/b"), ("CONTENT-TYPE", b"application/json")], []),
    ],
)
def test_a_header_that_would_lie_on_a_bare_output_is_followed_by_a_right_one(headers, added):
    record, _, bare, _ = built("outbox-envelope", "bare", more=headers)
    _, _, same, _ = built("outbox-envelope", more=headers)

    assert list(bare.headers[len(record.headers) : -4]) == added
    assert len(same.headers) == len(record.headers) + 4


@pytest.mark.parametrize("form", WRAPPED)
def test_a_redacted_copy_gets_the_trace_alone(form):
    record, entry, output, _ = built(form)
    seen = []

    async def redact(value):
        seen.append(value)
        return value

    metrics = Metrics(Policy(), 0.1, CollectorRegistry())
    redaction = Redaction(redact, "redacted", Outputs(TOPICS, COUNTS), metrics)
    copy = asyncio.run(redaction.copy(record, entry, output))

    assert copy.value == seen[0] == trace_of(output)
    assert json.loads(copy.value).keys() == json.loads(plain_trace()).keys()
    assert "kp-wrapping" not in dict(copy.headers)


@pytest.mark.parametrize("form", WRAPPED)
def test_a_command_reads_the_trace_of_an_output_and_rescores_it_where_it_is(form):
    _, _, output, _ = built(form)
    record = letters.consumed(output, partition=0, offset=0)
    sent = []

    class Publisher:
        async def send_record(self, new):
            sent.append(new)
            delivery = asyncio.get_running_loop().create_future()
            delivery.set_result(None)
            return delivery

    async def rescored():
        topics = [Topic(name, 1, 10**6) for name in ("contribute", "rejected")]
        reader = Written("contribute", "rejected", records=[record]).reader
        scored = ScoredTopics(reader, topics, lambda *_: None)
        targets = dict(zip(("contribute", "rejected"), topics, strict=True))
        await send_rescored(scored, Period(), NEW, targets, Publisher())

    assert read_counted(record).content.objective == "Fix the failing build"
    asyncio.run(rescored())
    (new,) = sent
    assert new.topic == "rejected"
    assert (new.value, [name for name, _ in new.headers]) == (
        output.value,
        [name for name, _ in output.headers],
    )
    assert dict(new.headers)["kp-policy"] == NEW.digest.encode()
    assert dict(new.headers)["kp-wrapping"] == dict(output.headers)["kp-wrapping"]


def test_what_an_export_reads_has_nothing_of_the_envelope():
    _, _, output, _ = built("cloudevents-structured")
    raw = RawRecord(output.topic, 0, 0, 0, output.key, output.value, output.headers)

    read = unwrapped(raw)

    assert b"specversion" in raw.value
    assert b"specversion" not in read.value
    assert [name for name, _ in read.headers][-3:] == ["kp-source", "kp-score", "kp-policy"]
