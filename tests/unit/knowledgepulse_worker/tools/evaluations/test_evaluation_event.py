"""Scores as OpenTelemetry events and spans, parsed with OpenTelemetry's own types."""

import base64
import json
from dataclasses import replace

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData, SeverityNumber
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

from knowledgepulse_convert import Conversion, convert
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.tools.common.scored_records import read_scored_record
from knowledgepulse_worker.tools.evaluations.evaluation_event import (
    SpanIds,
    otlp_logs,
    otlp_spans,
    span_of,
)
from support.conversions import FOLDER, read_cases
from support.otlp import attributes_of, logs_of, spans_of
from support.scored import published
from support.traces import made

TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "0ee19b7ec3c1b173"
NOW = 1_800_000_000_000_000_001
UNIT = st.floats(0, 1)


@pytest.fixture(scope="session")
def scored():
    """Return a scored record with these members of `kp-score`."""

    def make(**members):
        parts = {
            "quality_score": 0.6127,
            "complexity": 1.0,
            "novelty": 0.0151,
            "tool_diversity": 0.3409,
            "outcome_confidence": 0.8,
            "overrides": (),
            "domain": "code",
            "threshold": 0.75,
            "nearest": None,
        } | members
        record = published(7, made().to_json(), Score(**parts), Policy())
        return read_scored_record(record)

    return make


def event_of(record):
    ((_, _, event),) = logs_of(otlp_logs(record, SpanIds(TRACE, SPAN), "a-group", NOW))
    return event


def test_an_event_is_the_agent_spans_with_score_label_and_explanation(scored):
    record = scored(overrides=("recovered",))

    ((resource, scope, event),) = logs_of(otlp_logs(record, SpanIds(TRACE, SPAN), "a-group", NOW))

    assert (event.trace_id.hex(), event.span_id.hex()) == (TRACE, SPAN)
    assert event.event_name == "gen_ai.evaluation.result"
    assert event.severity_number == SeverityNumber.SEVERITY_NUMBER_INFO
    assert (event.time_unix_nano, event.observed_time_unix_nano) == (7_000_000_000, NOW)
    assert attributes_of(event) == {
        gen_ai.GEN_AI_EVALUATION_NAME: "knowledgepulse.quality_score",
        gen_ai.GEN_AI_EVALUATION_SCORE_VALUE: 0.6127,
        gen_ai.GEN_AI_EVALUATION_SCORE_LABEL: "rejected",
        gen_ai.GEN_AI_EVALUATION_EXPLANATION: (
            "complexity 1.0000, novelty 0.0151, tool diversity 0.3409, outcome confidence 0.8000; "
            "override recovered; threshold 0.75 of code"
        ),
        "kp.source": "raw-traces/0/7",
        "kp.policy": Policy().digest,
    }
    assert attributes_of(resource) == {"service.name": "a-group"}
    assert scope.name == "knowledgepulse-worker"


def test_a_span_is_a_child_of_the_agent_s_with_what_the_event_says(scored):
    record, context = scored(overrides=("recovered",)), SpanIds(TRACE, SPAN)
    (event,) = logs_of(otlp_logs(record, context, "a-group", NOW))

    (span,) = spans_of(otlp_spans(record, context, "a-group", NOW))

    assert (span[2].name, span[2].trace_id.hex(), span[2].parent_span_id.hex()) == ("evaluate", TRACE, SPAN)
    assert span[2].start_time_unix_nano == span[2].end_time_unix_nano == event[2].time_unix_nano
    assert span[:2] == event[:2]
    assert attributes_of(span[2]) == attributes_of(event[2])


def test_a_span_has_the_same_id_when_it_is_sent_again_and_another_one_for_another_record(scored):
    def span_id(record, span=SPAN):
        ((_, _, found),) = spans_of(otlp_spans(record, SpanIds(TRACE, span), "a-group", NOW))
        return found.span_id

    record = scored()
    assert span_id(record) == span_id(replace(record, policy="another"))
    others = {span_id(replace(record, source="raw-traces/0/8")), span_id(record, SPAN[::-1])}
    assert len({span_id(record), *others}) == 3
    assert len(span_id(record)) == 8


def test_a_run_that_was_scored_still_converts_to_the_same_trace(scored):
    """It is read again from a backend that has the span."""
    compared = 0
    for document in [case["document"] for case in read_cases(FOLDER / "otlp.jsonl")]:
        spans = document.get("resourceSpans") if isinstance(document, dict) else None
        before = (
            [conversion for conversion in convert(document, "otlp") if isinstance(conversion, Conversion)]
            if spans
            else []
        )
        contexts = [conversion.trace.metadata.span_context for conversion in before]
        added = [
            json.loads(otlp_spans(scored(), SpanIds(context.trace_id, context.span_id), "a-group", NOW))
            for context in contexts
            if context
        ]
        if not added:
            continue
        document["resourceSpans"] = [*spans, *(export["resourceSpans"][0] for export in added)]
        after = [conversion for conversion in convert(document, "otlp") if isinstance(conversion, Conversion)]
        assert [conversion.trace.to_json() for conversion in after] == [
            conversion.trace.to_json() for conversion in before
        ]
        compared += 1
    assert compared


@pytest.mark.parametrize(("timestamp_ms", "expected"), [(NOW, NOW), (-1, 0)])
def test_a_time_that_otlp_cannot_hold_is_replaced(scored, timestamp_ms, expected):
    """Producers set record timestamps, and some take them for nanoseconds."""
    assert event_of(replace(scored(), timestamp_ms=timestamp_ms)).time_unix_nano == expected


def test_a_withheld_trace_says_so(scored):
    said = attributes_of(event_of(scored(quality_score=0.9, withheld="visibility")))

    assert said[gen_ai.GEN_AI_EVALUATION_SCORE_LABEL] == "rejected"
    assert said[gen_ai.GEN_AI_EVALUATION_EXPLANATION].endswith("; withheld for its visibility")


@given(quality=UNIT, threshold=UNIT, domain=st.text(st.characters(exclude_categories=["Cs"])))
def test_every_score_survives_the_way_to_the_official_types(scored, quality, threshold, domain):
    record = scored(quality_score=quality, threshold=threshold, domain=domain)

    said = attributes_of(event_of(record))

    assert said[gen_ai.GEN_AI_EVALUATION_SCORE_VALUE] == quality
    assert said[gen_ai.GEN_AI_EVALUATION_SCORE_LABEL] == record.score.decision


def test_ids_are_hexadecimal_and_integers_are_text_as_otlp_json_demands(scored):
    """Protobuf's own JSON mapping has base64 instead, which the Collector refuses."""
    document = json.loads(otlp_logs(scored(), SpanIds(TRACE, SPAN), "a-group", NOW))

    (event,) = document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert (event["traceId"], event["spanId"]) == (TRACE, SPAN)
    assert (event["timeUnixNano"], event["observedTimeUnixNano"]) == ("7000000000", str(NOW))
    event["traceId"] = base64.b64encode(bytes.fromhex(TRACE)).decode()
    event["spanId"] = base64.b64encode(bytes.fromhex(SPAN)).decode()
    ParseDict(document, LogsData())  # raises an error for an unknown member


def test_an_overlong_text_is_cut(scored):
    """The topic would refuse it, and the command could not go on."""
    value = otlp_logs(scored(domain="x" * 10**6), SpanIds(TRACE, SPAN), "a-group", NOW)
    assert len(value) < 10_000


@pytest.mark.parametrize(
    "context",
    [
        None,
        "00-5b8efff798038103d269b633813fc60c-0ee19b7ec3c1b173-01",
        {"trace_id": TRACE},
        {"trace_id": TRACE, "span_id": None},
        {"trace_id": TRACE.upper(), "span_id": SPAN},
        {"trace_id": TRACE[1:], "span_id": SPAN},
        {"trace_id": f"{TRACE}\n", "span_id": SPAN},
        {"trace_id": "0" * 32, "span_id": SPAN},
        {"trace_id": TRACE, "span_id": "0" * 16},
    ],
)
def test_something_else_is_no_span(context):
    """Earlier releases let it pass."""
    document = json.loads(made().to_json())
    document["metadata"]["span_context"] = context
    assert span_of(json.dumps(document).encode()) is None
