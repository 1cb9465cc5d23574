"""Spans in OTLP JSON, as backends return them: with members in camel case or in snake case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class SpanTimes(NamedTuple):
    """When a run's spans ended.

    Attributes:
        has_ended: whether the root has ended; backends get most spans only then.
        last_ms: the end of the last span, in milliseconds since the epoch.
    """

    has_ended: bool
    last_ms: int


def times_of(spans: Sequence[Mapping[str, Any]], started_ms: int) -> SpanTimes:
    """Return when spans ended; at the start of the run, if there are none."""
    ends = [(_member(span, "parent_span_id", "parentSpanId"), _end(span)) for span in spans]
    has_ended = any(end and not parent for parent, end in ends)
    return SpanTimes(has_ended, max((end for _, end in ends), default=0) or started_ms)


def otlp_document(spans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return an export of spans whose resource is not known."""
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def span_trace_id(span: Mapping[str, Any]) -> str:
    """Return the trace id of a span; empty if there is none."""
    return str(_member(span, "trace_id", "traceId") or "")


def traced_run(trace: Mapping[str, Any]) -> str | None:
    """Return OpenTelemetry's trace id of a trace's run, from its `metadata.span_context`, if it has one."""
    match trace["metadata"].get("span_context"):
        case {"trace_id": str(run)} if run:
            return run
    return None


def plain_value(value: Mapping[str, Any]) -> Any:
    """Return the plain JSON of an OTLP value with members in snake case."""
    for name, member in value.items():
        if name == "array_value":
            return [plain_value(item) for item in member.get("values", ())]
        if name == "kvlist_value":
            return {pair["key"]: plain_value(pair.get("value", {})) for pair in member.get("values", ())}
        return member
    return None


def _end(span: Mapping[str, Any]) -> int:
    return int(_member(span, "end_time_unix_nano", "endTimeUnixNano") or 0) // 1_000_000


def _member(span: Mapping[str, Any], *names: str) -> Any:
    return next((span[name] for name in names if name in span), None)
