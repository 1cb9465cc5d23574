"""Exports as the Collector's Kafka exporter writes them, split into spans and joined again."""

from __future__ import annotations

import json

import pytest

from schemas.convert import ConversionError, convert
from support.spans import export, spans_of
from worker.assemble.exports import join, read, split


def converted(documents):
    """Return the converted traces of some documents and what was lost, by id."""
    return {one.trace.id: (one.trace.to_json(), dict(one.losses)) for one in convert(documents, "otlp")}


@pytest.fixture(params=[True, False], ids=["otlp_json", "otlp_proto"])
def value(request, real_traces):
    """A record with the spans of three traces."""
    spans = [span for trace in real_traces[:3] for span in spans_of(trace)]
    return export(spans, as_json=request.param)


def test_spans_have_their_ids_in_hexadecimal(value, real_traces):
    expected = [span for trace in real_traces[:3] for span in spans_of(trace)]

    assert [(one.trace_id, one.span_id, one.is_root) for one in split(value)] == [
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

    assert [json.loads(one.value) for one in split(json.dumps(document).encode())] == [
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": [span]}]}]}
        for span in spans
    ]


def test_a_run_in_both_encodings_is_one_run(real_traces):
    spans = spans_of(real_traces[0])
    records = export(spans[:2]), export(spans[2:], as_json=True)

    joined = join(span.value for value in records for span in split(value))

    assert len(joined) == 2
    assert converted([one for value in joined for one in read(value)]) == converted(read(export(spans)))


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"{}",
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "ab"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "position", "spanId": "ab"}]}]}]}',
        b'{"resourceSpans": 1}',
        b"\x00\x01garbage",
        export(spans_of(b'{"id": "a", "task": {"objective": "b"}, "steps": []}'))[:-3],
    ],
)
def test_what_is_no_export_is_refused(value):
    with pytest.raises(ConversionError):
        split(value)
