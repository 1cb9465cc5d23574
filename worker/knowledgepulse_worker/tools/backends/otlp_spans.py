"""Spans in OTLP JSON, as backends return them: with members in camel case or in snake case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from knowledgepulse_worker.tools.backends.backend import clamped
from knowledgepulse_worker.tools.backends.pages import row_of

_SNAKE_CASE = {
    "traceId": "trace_id",
    "parentSpanId": "parent_span_id",
    "endTimeUnixNano": "end_time_unix_nano",
}


class Attribute(msgspec.Struct):
    """An attribute of a span; its value is an OTLP value with a member in snake case."""

    key: str
    value: dict[str, Any] = {}


class Span(msgspec.Struct):
    """The members of a span that are read here."""

    trace_id: str | None = None
    parent_span_id: str | None = None
    end_time_unix_nano: int | float | str | None = None
    attributes: list[Attribute] = []


class SpanTimes(NamedTuple):
    """When a run's spans ended.

    Attributes:
        has_ended: whether the root has ended; backends get most spans only then.
        last_ms: the end of the last span, in milliseconds since the epoch.
    """

    has_ended: bool
    last_ms: int


def span_of(row: Any) -> Span:
    """Return a span; raise a RunError if it has another form."""
    members = {_SNAKE_CASE.get(name, name): member for name, member in row_of(row, dict[str, Any]).items()}
    return row_of(members, Span)


def times_of(spans: Sequence[Span], started_ms: int) -> SpanTimes:
    """Return when spans ended; at the start of the run, if there are none."""
    ends = [(span.parent_span_id, _end(span)) for span in spans]
    has_ended = any(end and not parent for parent, end in ends)
    return SpanTimes(has_ended, max((end for _, end in ends), default=0) or started_ms)


def otlp_document(spans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return an export of spans whose resource is not known."""
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def plain_value(value: Mapping[str, Any]) -> Any:
    """Return the plain JSON of an OTLP value with members in snake case."""
    for name, member in value.items():
        if name == "array_value":
            return [plain_value(item) for item in member.get("values", ())]
        if name == "kvlist_value":
            return {pair["key"]: plain_value(pair.get("value", {})) for pair in member.get("values", ())}
        return member
    return None


def _end(span: Span) -> int:
    """Return the end in milliseconds since the epoch; 0 if there is none, or if it is no time."""
    try:
        return clamped(int(span.end_time_unix_nano or 0) // 1_000_000)
    except (ValueError, OverflowError):
        return 0
