"""A score as OpenTelemetry's event ``gen_ai.evaluation.result`` and as a span ``evaluate``, in OTLP JSON.

The conventions have the event alone. Most trace backends show only spans, so the score is also a child of the
agent's span, with the event's attributes (https://github.com/open-telemetry/semantic-conventions-genai/issues/33).

Sources: https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-events.md,
https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from knowledgepulse_worker import __version__
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode import decode_members
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.backends.run_scores import explanation_of

EVENT = "gen_ai.evaluation.result"
SPAN = "evaluate"
METRIC = "knowledgepulse.quality_score"
"""The name of the evaluation metric."""

MAX_TEXT = 1000
"""Maximum number of characters in an attribute."""

_INFO = 9
"""OpenTelemetry's severity number."""

_INTERNAL = 1
"""OpenTelemetry's span kind."""

_TraceId = Annotated[str, Meta(pattern=r"^(?!0+\Z)[0-9a-f]{32}\Z")]
_SpanId = Annotated[str, Meta(pattern=r"^(?!0+\Z)[0-9a-f]{16}\Z")]


class SpanIds(msgspec.Struct, frozen=True):
    """The ids of a span, in hexadecimal."""

    trace_id: _TraceId
    span_id: _SpanId


class _Metadata(msgspec.Struct, frozen=True):
    span_context: SpanIds


class _Trace(msgspec.Struct, frozen=True):
    metadata: _Metadata


def span_of(value: bytes) -> SpanIds | None:
    """Return the agent's span, a trace's ``metadata.span_context``; None if it is missing or invalid."""
    try:
        return decode_members(value, _Trace).metadata.span_context
    except InvalidRecordError:
        return None


def otlp_logs(record: ScoredRecord, span: SpanIds, service: str, observed_ns: int) -> bytes:
    """Return an export of logs that contains the event of one score, at the trace's own time.

    Args:
        record: the scored trace.
        span: the agent's span.
        service: the worker's ``service.name``.
        observed_ns: the current time in nanoseconds since the epoch.
    """
    event = {
        "timeUnixNano": str(_time_ns(record, observed_ns)),
        "observedTimeUnixNano": str(observed_ns),
        "severityNumber": _INFO,
        "eventName": EVENT,
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "attributes": _score_attributes(record),
    }
    return _export("Logs", "logRecords", event, service)


def otlp_spans(record: ScoredRecord, span: SpanIds, service: str, observed_ns: int) -> bytes:
    """Return an export of spans that contains the span of one score, at the trace's own time.

    Its id depends only on the agent's span and the raw record, so that a backend that gets it twice has it
    once. The arguments are those of :func:`otlp_logs`.
    """
    time_ns = str(_time_ns(record, observed_ns))
    score = {
        "traceId": span.trace_id,
        "spanId": sha256(f"{span.trace_id} {span.span_id} {record.source}".encode()).hexdigest()[:16],
        "parentSpanId": span.span_id,
        "name": SPAN,
        "kind": _INTERNAL,
        "startTimeUnixNano": time_ns,
        "endTimeUnixNano": time_ns,
        "attributes": _score_attributes(record),
    }
    return _export("Spans", "spans", score, service)


def _time_ns(record: ScoredRecord, observed_ns: int) -> int:
    """Return a trace's time in nanoseconds; the current time, if OTLP cannot hold it."""
    if record.timestamp_ms is None:
        return observed_ns
    time_ns = max(0, record.timestamp_ms) * 1_000_000
    return time_ns if time_ns < 2**64 else observed_ns


def _score_attributes(record: ScoredRecord) -> list[dict[str, Any]]:
    score = record.score
    return _attributes(
        {
            "gen_ai.evaluation.name": METRIC,
            "gen_ai.evaluation.score.value": score.quality_score,
            "gen_ai.evaluation.score.label": score.decision,
            "gen_ai.evaluation.explanation": explanation_of(score),
            "kp.source": record.source,
            "kp.policy": record.policy or "",
        }
    )


def _export(kind: str, members: str, member: dict[str, Any], service: str) -> bytes:
    scope = {"scope": {"name": "knowledgepulse-worker", "version": __version__}, members: [member]}
    resource = {"resource": {"attributes": _attributes({"service.name": service})}, f"scope{kind}": [scope]}
    return msgspec.json.encode({f"resource{kind}": [resource]})


def _attributes(values: Mapping[str, str | float]) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": {"stringValue": value[:MAX_TEXT]} if isinstance(value, str) else {"doubleValue": value},
        }
        for key, value in values.items()
    ]
