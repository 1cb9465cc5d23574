"""Spans in OTLP JSON, in protobuf's JSON mapping, or exported from Tempo."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import AliasChoices, Field

from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    CamelModel,
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    read,
    unmapped,
)
from knowledgepulse_convert.spans.span import Event, Span

FAILED = (2, "2", "STATUS_CODE_ERROR", "ERROR")
"""The codes of a failed span."""


class KeyValue(InputModel):
    """An attribute."""

    key: str
    value: Any = None


class _Status(InputModel):
    code: int | str | None = None
    message: str | None = None


class _Event(CamelModel):
    name: str = ""
    time_unix_nano: int | str | None = None
    attributes: list[KeyValue] | None = None


class _Span(CamelModel):
    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    name: str = ""
    start_time_unix_nano: int | str | None = None
    end_time_unix_nano: int | str | None = None
    attributes: list[KeyValue] | None = None
    events: list[_Event] | None = None
    status: _Status | None = None


class _Scope(InputModel):
    spans: list[_Span] = Field(default_factory=list)


class _Attributes(InputModel):
    attributes: list[KeyValue] | None = None


class _Resource(InputModel):
    resource: _Attributes | None = None
    scopes: list[_Scope] | None = Field(
        default=None,
        validation_alias=AliasChoices("scopeSpans", "scope_spans", "instrumentationLibrarySpans"),
    )


class _LogRecord(CamelModel):
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None
    body: Any = None
    attributes: list[KeyValue] | None = None


class _ScopeLogs(CamelModel):
    log_records: list[_LogRecord] = Field(default_factory=list)


class _ResourceLogs(CamelModel):
    scope_logs: list[_ScopeLogs] = Field(default_factory=list)


class _Logs(CamelModel):
    resource_logs: list[_ResourceLogs]


class _Export(InputModel):
    resources: list[_Resource] = Field(
        validation_alias=AliasChoices("resourceSpans", "resource_spans", "batches")
    )


def is_otlp(document: Any) -> bool:
    """Check for an export of spans, or of the log records beside them, in which messages may be.

    Accepts: spans in OTLP JSON or in protobuf's JSON mapping, also one export per line, as from the
        Collector's file exporter. On the command line also protobuf, alone or in that exporter's frames,
        with the ``otel`` extra.
    Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
    Compared with: the Collector 0.155, and public files.
    """
    is_export = isinstance(document, dict) and ("resourceSpans" in document or "resource_spans" in document)
    return is_export or is_logs(document)


def is_logs(document: Any) -> bool:
    """Check for an export of log records."""
    return isinstance(document, dict) and ("resourceLogs" in document or "resource_logs" in document)


def events_in_logs(document: Any, path: str, losses: Losses) -> Iterator[tuple[tuple[str, str], Event]]:
    """Yield the events of GenAI messages in an export of log records, each with its trace's and span's id.

    The conventions' events are log records. They belong to a span like the events in the span itself.

    Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-events/.
    """
    logs = read(_Logs, document, path)
    count_unmapped(logs, "", losses)
    for record in _records(logs):
        body, attributes = _plain(record.body), _attributes(record.attributes)
        if (name := _event_name(record)) is None:
            losses.add("log records without messages", [record.event_name, attributes, body])
            continue
        if not isinstance(body, dict):
            losses.add("logRecords[].body", body)
            body = {}
        attributes.pop("event.name", None)
        yield (_hex(record.trace_id or ""), _hex(record.span_id or "")), Event(name, attributes | body)


def _records(logs: _Logs) -> Iterator[_LogRecord]:
    for resource in logs.resource_logs:
        for scope in resource.scope_logs:
            yield from scope.log_records


def _event_name(record: _LogRecord) -> str | None:
    """Return the name of a GenAI event of a span; None for any other record."""
    name = record.event_name or _attributes(record.attributes).get("event.name")
    return name if isinstance(name, str) and name.startswith("gen_ai.") and record.span_id else None


def is_tempo(document: Any) -> bool:
    """Check for a trace as Tempo exports it.

    Accepts: traces exported from Tempo.
    Source: https://grafana.com/docs/tempo/latest/api_docs/.
    Compared with: public files of 2026.
    """
    if not isinstance(document, dict):
        return False
    return "batches" in document or is_otlp(document.get("trace")) or is_tempo(document.get("trace"))


def spans_of(document: Any, path: str) -> Iterator[Span]:
    """Yield the spans of an export; raise a ConversionError if it is not an OTLP export."""
    beside = Losses()
    if isinstance(document, dict) and isinstance(document.get("trace"), dict):
        count_others(document, {"trace"}, "", beside)
        document = document["trace"]
    export = read(_Export, document, path)
    around_export = (beside, unmapped_around(export))
    for resource in export.resources:
        attributes = _attributes(resource.resource.attributes if resource.resource else None)
        around_resource = (*around_export, unmapped_around(resource, attributes))
        for scope in resource.scopes or ():
            shared = (*around_resource, unmapped_around(scope))
            named = (scope.model_extra or {}).get("scope")
            for span in scope.spans:
                status = span.status or _Status()
                yield Span(
                    trace_id=_hex(span.trace_id),
                    id=_hex(span.span_id),
                    parent_id=_hex(span.parent_span_id) if span.parent_span_id else None,
                    name=span.name,
                    start=_integer(span.start_time_unix_nano),
                    end=_integer(span.end_time_unix_nano),
                    attributes=_attributes(span.attributes),
                    resource=attributes,
                    events=[Event(event.name, _attributes(event.attributes)) for event in span.events or ()],
                    failed=status.code in FAILED,
                    message=status.message or "",
                    scope=as_text(named.get("name")) if isinstance(named, dict) else "",
                    losses=unmapped(span, "spans[]"),
                    shared=shared,
                )


def unmapped_around(reading: InputModel, resource: dict[str, Any] | None = None) -> Losses:
    """Return the dropped values of an object around spans: unknown members, and resource attributes."""
    losses = Losses()
    for name, value in (reading.model_extra or {}).items():
        losses.add(name, value)
    for below in (getattr(reading, name) for name in type(reading).model_fields):
        if isinstance(below, _Attributes):
            count_unmapped(below, "resource", losses)
    for name, value in (resource or {}).items():
        if name != "service.name":
            losses.add(f"resource.{name}", value)
    return losses


def pairs(attributes: Any) -> list[dict[str, Any]]:
    """Return attributes in an object as a list of keys and values."""
    return (
        [{"key": key, "value": value} for key, value in attributes.items()]
        if isinstance(attributes, dict)
        else []
    )


def _attributes(pairs: Sequence[KeyValue] | None) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in pairs or ()}


def _plain(value: Any) -> Any:
    """Convert an OTLP AnyValue to plain JSON."""
    if not isinstance(value, dict):
        return value
    for name, member in value.items():
        match name.replace("_v", "V"):
            case "stringValue" | "boolValue" | "doubleValue" | "bytesValue":
                return member
            case "intValue":
                return _integer(member)
            case "arrayValue" if isinstance(member, dict):
                values = member.get("values")
                return [_plain(item) for item in values] if isinstance(values, list) else []
            case "kvlistValue" if isinstance(member, dict):
                pairs = member.get("values")
                items = [pair for pair in pairs if isinstance(pair, dict)] if isinstance(pairs, list) else []
                return {str(pair.get("key")): _plain(pair.get("value")) for pair in items}
    return None


def _hex(text: str) -> str:
    """Return an id in hexadecimal; protobuf's JSON mapping encodes ids in base64."""
    if len(text) in {12, 24} and text.endswith("="):
        try:
            return base64.b64decode(text, validate=True).hex()
        except binascii.Error:
            return text
    return text.lower()


def _integer(value: Any) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0
