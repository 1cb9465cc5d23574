"""Spans: their parents and attributes, and that tracing errors do not affect records."""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.observe.tracing import Tracing

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
PARENT = f"00-{TRACE:032x}-{SPAN:016x}-01".encode()
UNSAMPLED = PARENT[:-1] + b"0"
CONTENT = b"what an agent wrote"


class Recorder:
    """An in-memory tracer."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider.get_tracer("test"), "a-group")

    def spans(self, **changes):
        """Return the spans of one record by the first word of their names."""
        self._exporter.clear()
        finish(self.tracing, **changes)
        return {span.name.split()[0]: span for span in self._exporter.get_finished_spans()}


def finish(tracing, **changes):
    now = time.monotonic()
    record = {
        "topic": "raw-traces",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 0,
        "key": None,
        "value": CONTENT,
        "headers": [("a", CONTENT), ("traceparent", PARENT)],
    }
    record |= {name: changes.pop(name) for name in record.keys() & changes}
    members = {
        "taken": now - 4,
        "embedded": (now - 3, now - 2),
        "sent": now - 1,
        "output": "contribute",
        "outcome": {"outcome": "contribute", "score": 0.8, "reason": None},
    }
    tracing.finished(RawRecord(**record), **members | changes)


@pytest.fixture
def recorder():
    return Recorder()


def test_a_records_span_has_its_outcome_but_no_content(recorder):
    spans = recorder.spans()

    assert {name: (span.name, span.kind, dict(span.attributes)) for name, span in spans.items()} == {
        "process": (
            "process raw-traces",
            SpanKind.CONSUMER,
            {
                "messaging.system": "kafka",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": "raw-traces",
                "messaging.destination.partition.id": "3",
                "messaging.consumer.group.name": "a-group",
                "messaging.kafka.offset": 42,
                "messaging.message.body.size": len(CONTENT),
                "kp.outcome": "contribute",
                "kp.score": 0.8,
            },
        ),
        "embed": ("embed", SpanKind.INTERNAL, {}),
        "publish": (
            "publish contribute",
            SpanKind.CLIENT,
            {
                "messaging.system": "kafka",
                "messaging.operation.name": "publish",
                "messaging.operation.type": "send",
                "messaging.destination.name": "contribute",
            },
        ),
    }


def test_embedding_and_publishing_are_child_spans_with_their_times(recorder):
    before = time.time()
    spans = recorder.spans()
    after = time.time()
    process, embed, publish = spans["process"], spans["embed"], spans["publish"]

    assert before * 1e9 - 1e6 <= process.end_time <= after * 1e9 + 1e6
    assert {embed.parent.span_id, publish.parent.span_id} == {process.context.span_id}
    offsets = [span.start_time - process.start_time for span in (embed, publish)]
    lengths = [span.end_time - span.start_time for span in (process, embed, publish)]
    assert [round(nanoseconds / 1e9, 1) for nanoseconds in (*offsets, *lengths)] == [1, 3, 4, 1, 1]


def test_a_dead_letter_is_not_an_error_status(recorder):
    outcome = {"outcome": "dead_letter", "score": None, "reason": "empty"}
    span = recorder.spans(value=None, output="dead-letter", outcome=outcome)["process"]

    assert span.status.status_code is StatusCode.UNSET
    attributes = {name: value for name, value in span.attributes.items() if name.startswith("kp.")}
    assert attributes == {"kp.outcome": "dead_letter", "kp.reason": "empty"}
    assert span.attributes["messaging.kafka.message.tombstone"] is True
    assert span.attributes["messaging.message.body.size"] == 0


# --- the producer's context


def test_the_producers_span_is_the_parent(recorder):
    headers = [("traceparent", b"another"), ("traceparent", PARENT), ("tracestate", b"vendor=1")]
    span = recorder.spans(headers=headers)["process"]

    assert (span.context.trace_id, span.parent.span_id) == (TRACE, SPAN)
    assert span.parent.is_remote
    assert span.context.trace_state["vendor"] == "1"


def test_unsampled_traces_have_no_spans(recorder):
    assert recorder.spans(headers=[("traceparent", UNSAMPLED)]) == {}


@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from(["traceparent", "tracestate", "baggage", ""]),
            st.none() | st.binary() | st.sampled_from([PARENT[:-1], PARENT * 300, PARENT.upper()]),
        )
    )
)
def test_an_invalid_context_starts_a_new_trace(headers):
    """Whatever the producer's headers contain."""
    span = Recorder().spans(headers=headers)["process"]

    assert span.parent is None
    assert span.context.trace_id != TRACE


def test_an_error_of_the_tracer_never_reaches_the_lane(recorder, caplog):
    class Broken:
        def start_span(self, *_arguments, **_options):
            raise RuntimeError(CONTENT)

    with caplog.at_level(logging.ERROR):
        finish(Tracing(Broken(), "a-group"))

    assert caplog.messages == ["raw-traces/3/42 has no span"]
