"""A score as OpenTelemetry's event ``gen_ai.evaluation.result``, in OTLP JSON.

Sources: https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-events.md,
https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from knowledgepulse_worker import __version__
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode import decode_members
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.backends.run_scores import explanation_of

EVENT = "gen_ai.evaluation.result"
METRIC = "knowledgepulse.quality_score"
"""The name of the evaluation metric."""

MAX_TEXT = 1000
"""Maximum number of characters in an attribute."""

_INFO = 9
"""OpenTelemetry's severity number."""

_TraceId = Annotated[str, Meta(pattern=r"^(?!0+\Z)[0-9a-f]{32}\Z")]
_SpanId = Annotated[str, Meta(pattern=r"^(?!0+\Z)[0-9a-f]{16}\Z")]


class SpanContext(msgspec.Struct, frozen=True):
    """The ids of a span, in hexadecimal."""

    trace_id: _TraceId
    span_id: _SpanId


class _Metadata(msgspec.Struct, frozen=True):
    span_context: SpanContext


class _Trace(msgspec.Struct, frozen=True):
    metadata: _Metadata


def span_of(value: bytes) -> SpanContext | None:
    """Return the agent's span, a trace's ``metadata.span_context``; None if it is missing or invalid."""
    try:
        return decode_members(value, _Trace).metadata.span_context
    except InvalidRecordError:
        return None


def otlp_logs(record: ScoredRecord, span: SpanContext, service: str, observed_ns: int) -> bytes:
    """Return an export of logs that contains the event of one score, at the trace's own time.

    Args:
        record: the scored trace.
        span: the agent's span.
        service: the worker's ``service.name``.
        observed_ns: the current time in nanoseconds since the epoch.
    """
    score = record.score
    time_ns = observed_ns if record.timestamp_ms is None else max(0, record.timestamp_ms) * 1_000_000
    if time_ns >= 2**64:  # not in milliseconds, and too large for OTLP
        time_ns = observed_ns
    event = {
        "timeUnixNano": str(time_ns),
        "observedTimeUnixNano": str(observed_ns),
        "severityNumber": _INFO,
        "eventName": EVENT,
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "attributes": _attributes(
            {
                "gen_ai.evaluation.name": METRIC,
                "gen_ai.evaluation.score.value": score.quality_score,
                "gen_ai.evaluation.score.label": score.decision,
                "gen_ai.evaluation.explanation": explanation_of(score),
                "kp.source": record.source,
                "kp.policy": record.policy or "",
            }
        ),
    }
    scope = {"scope": {"name": "knowledgepulse-worker", "version": __version__}, "logRecords": [event]}
    resource = {"resource": {"attributes": _attributes({"service.name": service})}, "scopeLogs": [scope]}
    return msgspec.json.encode({"resourceLogs": [resource]})


def _attributes(values: Mapping[str, str | float]) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": {"stringValue": value[:MAX_TEXT]} if isinstance(value, str) else {"doubleValue": value},
        }
        for key, value in values.items()
    ]
