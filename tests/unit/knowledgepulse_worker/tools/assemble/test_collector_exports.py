"""Exports as the Collector's Kafka exporter writes them, split into spans and joined again."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from knowledgepulse_convert import ConversionError, convert
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.tools.assemble.collector_exports import join, read, split
from support.spans import export, spans_of


def converted(documents):
    """Return the converted traces of some documents and what was lost, by id."""
    return {
        conversion.trace.id: (conversion.trace.to_json(), dict(conversion.losses))
        for conversion in convert(documents, "otlp")
    }


@pytest.fixture(params=[True, False], ids=["otlp_json", "otlp_proto"])
def value(request, real_traces):
    """A record with the spans of three traces."""
    spans = [span for trace in real_traces[:3] for span in spans_of(trace)]
    return export(spans, as_json=request.param)


def test_spans_have_their_ids_in_hexadecimal(value, real_traces):
    expected = [span for trace in real_traces[:3] for span in spans_of(trace)]

    assert [(word.trace_id, word.span_id, word.is_root) for word in split(value)] == [
        (span.trace_id.hex(), span.span_id.hex(), not span.parent_span_id) for span in expected
    ]


def test_spans_joined_again_convert_to_the_same(value):
    (joined,) = join(span.value for span in split(value))

    assert converted(read(joined)) == converted(read(value))
    assert len(converted(read(value))) == 3


def test_each_span_alone_keeps_its_resource_and_scope():
    scope = {"name": "tracer", "version": "1"}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "x"}}]}
    spans = [{"traceId": "AB" * 16, "spanId": "CD" * 8, "name": name} for name in ("one", "two")]
    document = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]}

    assert [json.loads(word.value) for word in split(json.dumps(document).encode())] == [
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": [span]}]}]}
        for span in spans
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"{}",
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "ab"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "position", "spanId": "ab"}]}]}]}',
        b'{"resourceSpans": 1}',
        b"\x00\x01garbage",
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "%s", "spanId": "\xff"}]}]}]}'
        % (b"ab" * 16),
        b'{"resourceSpans": [{"scopeSpans": [{"spans": []}]}], "other": "\xff"}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "%s", "spanId": "%s"}]}]}]}'
        % (b"0" * 32, b"ab" * 8),
        export(spans_of(b'{"id": "a", "task": {"objective": "b"}, "steps": []}'))[:-3],
    ],
)
def test_what_is_no_export_is_refused(value):
    with pytest.raises(ConversionError):
        split(value)


def test_json_may_begin_with_a_newline(real_traces):
    value = export(spans_of(real_traces[0]), as_json=True)

    assert split(b"\n" + value) == split(value)


def test_protobuf_that_begins_like_json_is_protobuf(real_traces):
    """A newline is the tag of its first field, and "{" a length of 123 bytes."""
    (span, *_) = spans_of(real_traces[0])
    span = Span(trace_id=span.trace_id, span_id=span.span_id)
    while not (value := export([span])).startswith(b"\n{"):
        span.name += "x"

    (part,) = split(value)

    assert part.span_id == span.span_id.hex()
    assert read(*join([part.value])) == read(value)


@pytest.mark.parametrize("parent", ["", "0" * 16])
def test_a_span_without_a_parent_is_the_root(parent):
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "parentSpanId": parent}
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}

    assert [word.is_root for word in split(json.dumps(document).encode())] == [True]


@pytest.mark.parametrize("as_json", [True, False])
def test_spans_that_each_repeat_a_large_resource_are_too_large(as_json):
    spans = [Span(trace_id=b"\1" * 16, span_id=number.to_bytes(8)) for number in range(1, 101)]
    value = export(spans, service="x" * 10_000, as_json=as_json)

    assert len(split(value, 2_000_000)) == 100
    with pytest.raises(InvalidRecordError, match="its spans, each with its resource, exceed"):
        split(value, 500_000)


def test_log_records_of_spans_are_split_and_joined_again():
    """Google's ADK writes the messages of its spans there; records of no span belong to no run."""
    record = {"traceId": "AB" * 16, "spanId": "CD" * 8, "eventName": "gen_ai.choice"}
    records = [record | {"body": body} for body in ("one", "two")]
    resource = {"attributes": []}
    document = {
        "resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [*records, {"body": "other"}]}]}]
    }

    split_records = split(json.dumps(document).encode())

    assert [word.trace_id for word in split_records] == ["ab" * 16] * 2
    assert len({word.span_id for word in split_records}) == len(records)
    assert [json.loads(value) for value in join(word.value for word in split_records)] == [
        {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [each]}]} for each in records]}
    ]
