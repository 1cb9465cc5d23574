"""Spans in the backends' export formats: OTLP JSON, Tempo, Jaeger, Phoenix.

Sources: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding,
https://www.jaegertracing.io/docs/latest/apis/, https://arize.com/docs/phoenix.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pydantic import AliasChoices, Field

from knowledgepulse_schemas.convert import genai, openinference
from knowledgepulse_schemas.convert.errors import ConversionError
from knowledgepulse_schemas.convert.hub import Run
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import SourceModel, count_unread, read
from knowledgepulse_schemas.convert.source import Source
from knowledgepulse_schemas.convert.span import Event, Span
from knowledgepulse_schemas.convert.tree import Node, nanoseconds, runs_of

OTLP, TEMPO, JAEGER, PHOENIX = "otlp", "tempo", "jaeger", "phoenix"

_JAEGER_STATUS = {"error", "otel.status_code", "otel.status_description"}
_FAILED = (2, "2", "STATUS_CODE_ERROR", "ERROR")


def _either(name: str, *others: str) -> Any:
    """Return a field with a camel-case name in OTLP JSON and other names elsewhere."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return Field(default=None, validation_alias=AliasChoices(name, snake, *others))


class _KeyValue(SourceModel):
    key: str
    value: Any = None


class _Status(SourceModel):
    code: int | str | None = None
    message: str | None = None


class _OtlpEvent(SourceModel):
    name: str = ""
    time: int | str | None = _either("timeUnixNano")
    attributes: list[_KeyValue] | None = None


class _OtlpSpan(SourceModel):
    trace_id: str = Field(validation_alias=AliasChoices("traceId", "trace_id"))
    span_id: str = Field(validation_alias=AliasChoices("spanId", "span_id"))
    parent_id: str | None = _either("parentSpanId")
    name: str = ""
    start: int | str | None = _either("startTimeUnixNano")
    end: int | str | None = _either("endTimeUnixNano")
    attributes: list[_KeyValue] | None = None
    events: list[_OtlpEvent] | None = None
    status: _Status | None = None


class _Scope(SourceModel):
    spans: list[_OtlpSpan] = Field(default_factory=list)


class _Attributes(SourceModel):
    attributes: list[_KeyValue] | None = None


class _Resource(SourceModel):
    resource: _Attributes | None = None
    scopes: list[_Scope] | None = _either("scopeSpans", "instrumentationLibrarySpans")


class _Otlp(SourceModel):
    resources: list[_Resource] = Field(
        validation_alias=AliasChoices("resourceSpans", "resource_spans", "batches")
    )


class _Reference(SourceModel):
    kind: str | None = Field(default=None, alias="refType")
    trace_id: str | None = Field(default=None, alias="traceID")
    span_id: str = Field(alias="spanID")


class _Tag(_KeyValue):
    type: str | None = None


class _Log(SourceModel):
    timestamp: int = 0
    fields: list[_Tag] = Field(default_factory=list)


class _JaegerSpan(SourceModel):
    trace_id: str = Field(alias="traceID")
    span_id: str = Field(alias="spanID")
    name: str = Field(default="", alias="operationName")
    parent_id: str | None = Field(default=None, alias="parentSpanID")
    references: list[_Reference] | None = None
    start: int = Field(default=0, alias="startTime")
    duration: int = 0
    tags: list[_Tag] | None = None
    logs: list[_Log] | None = None
    process_id: str | None = Field(default=None, alias="processID")


class _Process(SourceModel):
    service: str | None = Field(default=None, alias="serviceName")
    tags: list[_Tag] | None = None


class _JaegerTrace(SourceModel):
    spans: list[_JaegerSpan]
    processes: dict[str, _Process] | None = None


class _Jaeger(SourceModel):
    data: list[_JaegerTrace]


class _Context(SourceModel):
    trace_id: str
    span_id: str


class _PhoenixEvent(SourceModel):
    name: str = ""
    attributes: dict[str, Any] | None = None


class _PhoenixSpan(SourceModel):
    context: _Context
    name: str = ""
    kind: str | None = Field(default=None, alias="span_kind")
    parent_id: str | None = None
    start: Any = Field(default=None, alias="start_time")
    end: Any = Field(default=None, alias="end_time")
    status_code: str | None = None
    status_message: str | None = None
    attributes: dict[str, Any] | None = None
    events: list[_PhoenixEvent] | None = None


def _source_of(document: Any) -> str | None:
    """Detect the export format of a document, or of a list of documents in the same format."""
    if not isinstance(document, list):
        return next((name for name, recognises in _FORMATS.items() if recognises(document)), None)
    found = {_source_of(one) for one in document}
    return found.pop() if len(found) == 1 else None


def _runs(document: Any, source: str) -> Iterator[Run | ConversionError]:
    """Yield the agent runs of an export, or of a list of exports that share traces."""
    documents = document if isinstance(document, list) else [document]
    spans_of = {OTLP: _otlp, TEMPO: _otlp, JAEGER: _jaeger, PHOENIX: _phoenix}[source]
    spans = [
        span
        for number, one in enumerate(documents)
        for span in spans_of(one, f"[{number}]" if isinstance(document, list) else "")
    ]
    yield from runs_of(map(_node_of, spans), source)


def _node_of(span: Span) -> Node:
    conventions = openinference if openinference.follows(span) else genai
    return Node.of(span.trace_id, span.id, span.parent_id, lambda: conventions.node(span))


def has_agent(export: Any) -> bool:
    """Return whether a span of an OTLP export is a call of an agent.

    Raises:
        ConversionError: it is no OTLP export.
    """
    return any(_node_of(span).agent for span in _otlp(export, ""))


def _otlp(document: Any, path: str) -> Iterator[Span]:
    if isinstance(document, dict) and isinstance(document.get("trace"), dict):
        document = document["trace"]
    export = read(_Otlp, document, path)
    for resource in export.resources:
        attributes = _attributes(resource.resource.attributes if resource.resource else None)
        for scope in resource.scopes or ():
            shared = _unread_around([export, resource, scope], attributes)
            for span in scope.spans:
                status = span.status or _Status()
                yield Span(
                    trace_id=_hex(span.trace_id),
                    id=_hex(span.span_id),
                    parent_id=_hex(span.parent_id) if span.parent_id else None,
                    name=span.name,
                    start=_integer(span.start),
                    end=_integer(span.end),
                    attributes=_attributes(span.attributes),
                    resource=attributes,
                    events=[Event(one.name, _attributes(one.attributes)) for one in span.events or ()],
                    failed=status.code in _FAILED,
                    message=status.message or "",
                    losses=_unread(span, "spans[]"),
                    shared=shared,
                )


def _jaeger(document: Any, path: str) -> Iterator[Span]:
    export = read(_Jaeger, document, path)
    for trace in export.data:
        for span in trace.spans:
            process = (trace.processes or {}).get(span.process_id or "", _Process())
            resource = {tag.key: tag.value for tag in process.tags or ()}
            tags = {tag.key: tag.value for tag in span.tags or ()}
            logs = [{one.key: one.value for one in log.fields} for log in span.logs or ()]
            parents = [one.span_id for one in span.references or () if one.kind in (None, "CHILD_OF")]
            yield Span(
                trace_id=span.trace_id,
                id=span.span_id,
                parent_id=span.parent_id or next(iter(parents), None),
                name=span.name,
                start=span.start * 1000,
                end=(span.start + span.duration) * 1000,
                attributes={name: value for name, value in tags.items() if name not in _JAEGER_STATUS},
                resource={**resource, "service.name": process.service},
                events=[Event(str(log.pop("event", "")), log) for log in logs],
                failed=tags.get("error") in (True, "true") or tags.get("otel.status_code") in _FAILED,
                message=str(tags.get("otel.status_description", "")),
                losses=_unread(span, "spans[]"),
                shared=_unread_around([export, trace, process], resource),
            )


def _phoenix(document: Any, path: str) -> Iterator[Span]:
    values = document.get("data", [document]) if isinstance(document, dict) else [document]
    if not isinstance(values, list):
        raise ConversionError(f"{path}.data: not a list of spans".lstrip("."))
    for number, value in enumerate(values):
        span = read(_PhoenixSpan, _nested_context(value), f"{path}[{number}]")
        attributes = dict(span.attributes or {})
        if span.kind is not None:
            attributes.setdefault(openinference.KIND, span.kind)
        yield Span(
            trace_id=span.context.trace_id,
            id=span.context.span_id,
            parent_id=span.parent_id,
            name=span.name,
            start=nanoseconds(_phoenix_time(span.start)),
            end=nanoseconds(_phoenix_time(span.end)),
            attributes=attributes,
            events=[Event(one.name, one.attributes or {}) for one in span.events or ()],
            failed=span.status_code in _FAILED,
            message=span.status_message or "",
            losses=_unread(span, "spans[]"),
        )


def _phoenix_time(value: Any) -> Any:
    """Return a time as others write it; pandas writes milliseconds since 1970."""
    return value / 1000 if isinstance(value, int) and not isinstance(value, bool) else value


def _nested_context(value: Any) -> Any:
    """Return a span in the REST API's form; data frames have columns such as ``context.span_id``."""
    if not isinstance(value, dict) or "context.span_id" not in value:
        return value
    nested: dict[str, Any] = {"context": {}, "attributes": {}}
    for name, member in value.items():
        group, _, rest = name.partition(".")
        if group in nested and rest:
            nested[group][rest] = member
        else:
            nested[name] = member
    return nested


def _first(document: Any) -> Any:
    """Return the first item under an API response's ``data``, or the document itself if it has none."""
    data = document.get("data") if isinstance(document, dict) else None
    return data[0] if isinstance(data, list) and data else document


def _is_phoenix(document: Any) -> bool:
    span = _first(document)
    context = span.get("context") if isinstance(span, dict) else None
    return isinstance(span, dict) and (
        "context.span_id" in span or (isinstance(context, dict) and "span_id" in context)
    )


def _is_jaeger(document: Any) -> bool:
    trace = _first(document)
    return trace is not document and isinstance(trace, dict) and "spans" in trace


def _is_otlp(document: Any) -> bool:
    return isinstance(document, dict) and ("resourceSpans" in document or "resource_spans" in document)


def _is_tempo(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    return "batches" in document or _is_otlp(document.get("trace")) or _is_tempo(document.get("trace"))


_FORMATS: dict[str, Callable[[Any], bool]] = {
    OTLP: _is_otlp,
    TEMPO: _is_tempo,
    JAEGER: _is_jaeger,
    PHOENIX: _is_phoenix,
}


def _unread(span: SourceModel, path: str) -> Losses:
    losses = Losses()
    count_unread(span, path, losses)
    return losses


def _unread_around(readings: list[SourceModel], resource: dict[str, Any]) -> Losses:
    """Count the dropped values around a span: unknown members, and resource attributes."""
    losses = Losses()
    for reading in readings:
        for name, value in (reading.model_extra or {}).items():
            losses.add(name, value)
        for below in (getattr(reading, name) for name in type(reading).model_fields):
            if isinstance(below, _Attributes):
                count_unread(below, "resource", losses)
    for name, value in resource.items():
        if name != "service.name":
            losses.add(f"resource.{name}", value)
    return losses


def _attributes(pairs: Sequence[_KeyValue] | None) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in pairs or ()}


def _plain(value: Any) -> Any:
    """Convert an OTLP AnyValue to plain JSON."""
    if not isinstance(value, dict):
        return value
    for name, one in value.items():
        match name.replace("_v", "V"):
            case "stringValue" | "boolValue" | "doubleValue" | "bytesValue":
                return one
            case "intValue":
                return _integer(one)
            case "arrayValue" if isinstance(one, dict):
                values = one.get("values")
                return [_plain(item) for item in values] if isinstance(values, list) else []
            case "kvlistValue" if isinstance(one, dict):
                pairs = one.get("values")
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


def _source(name: str, members: str) -> Source:
    return Source(
        name,
        members,
        lambda document: _source_of(document) == name,
        partial(_runs, source=name),
        is_fragment=lambda line: True,
    )


SOURCES = (
    _source(OTLP, "resourceSpans"),
    _source(TEMPO, "batches"),
    _source(JAEGER, "traceID spanID operationName"),
    _source(PHOENIX, "context span_kind attributes"),
)
