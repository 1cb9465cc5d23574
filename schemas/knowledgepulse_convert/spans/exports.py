"""Spans in the backends' export formats: OTLP JSON, Tempo, Jaeger, Phoenix, OpenTelemetry's SDK."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    read,
    unmapped,
    without,
)
from knowledgepulse_convert.spans import ai_sdk, dialects, genai, openinference, otlp
from knowledgepulse_convert.spans.span import Event, Span
from knowledgepulse_convert.spans.tree import Node, nanoseconds, runs_of

OTLP = "otlp"

_CALL = re.compile(
    r"^gen_ai\.|(?:\b|_)(?:(?:tool|llm|prompt|completion)s?(?:\b|_|[A-Z])|messages\b)", re.ASCII
)
"""What names of attributes have that say of a model or a tool that it was called."""
_NO_CALLS = ("create_agent", "embeddings")
"""Operations of services that call neither."""
_UNKNOWN = {None, "UNKNOWN", "internal"}
"""Phoenix' and any-agent's kind of spans that do not follow OpenInference."""
_HIDDEN = "HIDDEN:non-empty"
_REDACTED = ("<REDACTED>", "__REDACTED__", _HIDDEN)
"""What Claude Code, OpenInference and Koog write for content that they may not record."""
_FLAT = ("trace_id", "span_id")
_NANOSECONDS = 1e17
"""Numbers above are times in nanoseconds."""
_JAEGER_STATUS = {"error", "otel.status_code", "otel.status_description"}


class _Reference(InputModel):
    kind: str | None = Field(default=None, alias="refType")
    trace_id: str | None = Field(default=None, alias="traceID")
    span_id: str = Field(alias="spanID")


class _Tag(otlp.KeyValue):
    type: str | None = None


class _Log(InputModel):
    timestamp: int = 0
    fields: list[_Tag] = Field(default_factory=list)


class _JaegerSpan(InputModel):
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


class _Process(InputModel):
    service: str | None = Field(default=None, alias="serviceName")
    tags: list[_Tag] | None = None


class _JaegerTrace(InputModel):
    spans: list[_JaegerSpan]
    processes: dict[str, _Process] | None = None


class _Jaeger(InputModel):
    data: list[_JaegerTrace]


_SpanId = Annotated[str, BeforeValidator(lambda value: f"{value:016x}" if type(value) is int else value)]
"""An id, which any-agent writes as a number."""


class _Context(InputModel):
    trace_id: _SpanId
    span_id: _SpanId


class _Status(InputModel):
    status_code: str | None = Field(default=None, validation_alias=AliasChoices("status_code", "code"))
    description: str | None = Field(default=None, validation_alias=AliasChoices("description", "message"))


class _SdkResource(InputModel):
    attributes: dict[str, Any] | None = None


class _PhoenixEvent(InputModel):
    name: str = Field(default="", validation_alias=AliasChoices("name", "event_name"))
    attributes: dict[str, Any] | None = None


class _MlflowData(InputModel):
    spans: list[dict[str, Any]]


class _MlflowTrace(InputModel):
    info: dict[str, Any]
    data: _MlflowData


class _PhoenixSpan(InputModel):
    context: _Context
    name: str = ""
    kind: str | None = Field(default=None, alias="span_kind")
    parent_id: _SpanId | None = Field(
        default=None, validation_alias=AliasChoices("parent_id", "parent_span_id")
    )
    start: Any = Field(default=None, alias="start_time")
    end: Any = Field(default=None, alias="end_time")
    status_code: str | None = None
    status_message: str | None = None
    status: _Status | None = None  # of the SDK, which also writes the resource
    attributes: dict[str, Any] | None = None
    events: list[_PhoenixEvent] | None = Field(
        default=None, validation_alias=AliasChoices("events", "span_events")
    )
    resource: _SdkResource | None = None


def has_calls(export: Any) -> bool:
    """Return whether a span says that a model or a tool was called, whatever instrumentation wrote it.

    Raises:
        ConversionError: the export is not OTLP.
    """
    return any(
        span.attributes.get(genai.OPERATION) not in _NO_CALLS
        and any(_CALL.search(name) or '"role"' in as_text(value) for name, value in span.attributes.items())
        for span in otlp.spans_of(export, "")
    )


def has_agent(export: Any) -> bool:
    """Return whether an export has a call of an agent; raise a ConversionError if it is not OTLP."""
    return any(_node_of(span).agent for span in otlp.spans_of(export, ""))


def _runs(
    document: Any, spans_of: Callable[[Any, str], Iterator[Span]]
) -> Iterator[ir.Run | ConversionError]:
    """Yield the agent runs of an export, or of a list of exports that share traces."""
    documents = document if isinstance(document, list) else [document]
    spans = [
        span
        for number, item in enumerate(documents)
        if not otlp.is_logs(item)
        for span in spans_of(item, f"[{number}]" if isinstance(document, list) else "")
    ]
    for span in spans:
        span.hidden = _HIDDEN in span.attributes.values()
        span.attributes = {name: value for name, value in span.attributes.items() if value not in _REDACTED}
    _add_events(spans, documents)
    yield from runs_of(map(_node_of, dialects.with_failures(spans)))


def _add_events(spans: list[Span], documents: list[Any]) -> None:
    """Add the events in log records to their spans; others are a loss."""
    by_id = {(span.trace_id, span.id): span for span in spans}
    for logs in filter(otlp.is_logs, documents):
        if not spans:
            raise ConversionError(
                "log records are not read without their spans: convert both in a file, or the agent's session"
            )
        losses = spans[0].losses
        for ids, event in otlp.events_in_logs(logs, "", losses):
            if ids in by_id:
                by_id[ids].events.append(event)
            else:
                losses.add("events of spans that are not in the file", event.attributes)


def _node_of(span: Span) -> Node:
    conventions = next(
        (each for each in (openinference, ai_sdk, genai, dialects) if each.follows(span)), genai
    )
    return Node.of(span.trace_id, span.id, span.parent_id, lambda: conventions.node(span))


def _jaeger(document: Any, path: str) -> Iterator[Span]:
    export = read(_Jaeger, document, path)
    around_export = otlp.unmapped_around(export)
    for trace in export.data:
        around_trace = otlp.unmapped_around(trace)
        processes = {name: _resource_of(process) for name, process in (trace.processes or {}).items()}
        for span in trace.spans:
            resource, around_process = processes.get(span.process_id or "", ({}, Losses()))
            tags = {tag.key: tag.value for tag in span.tags or ()}
            logs = [{tag.key: tag.value for tag in log.fields} for log in span.logs or ()]
            parents = [
                reference.span_id
                for reference in span.references or ()
                if reference.kind in (None, "CHILD_OF")
            ]
            yield Span(
                trace_id=span.trace_id,
                id=span.span_id,
                parent_id=span.parent_id or next(iter(parents), None),
                name=span.name,
                start=span.start * 1000,
                end=(span.start + span.duration) * 1000,
                attributes=without(tags, *_JAEGER_STATUS),
                resource=resource,
                events=[Event(str(log.pop("event", "")), log) for log in logs],
                failed=tags.get("error") in (True, "true") or tags.get("otel.status_code") in otlp.FAILED,
                message=str(tags.get("otel.status_description", "")),
                losses=unmapped(span, "spans[]"),
                shared=(around_export, around_trace, around_process),
            )


def _resource_of(process: _Process) -> tuple[dict[str, Any], Losses]:
    """Return the attributes of a process as those of a resource, and the losses."""
    resource = {tag.key: tag.value for tag in process.tags or ()}
    losses = otlp.unmapped_around(process, resource)
    for tag in process.tags or ():
        count_unmapped(tag, "resource.tags[]", losses)
    return {**resource, "service.name": process.service}, losses


def _phoenix(document: Any, path: str) -> Iterator[Span]:
    values, beside = [document], Losses()
    name = _list_in(document)
    if name:
        values = document[name]
        count_others(document, {name}, "", beside)
    if not isinstance(values, list):
        raise ConversionError(f"{path}.{name}: not a list of spans".lstrip("."))
    for number, value in enumerate(values):
        span = read(_PhoenixSpan, _nested_context(value), f"{path}[{number}]")
        attributes = dict(span.attributes or {})
        if span.kind not in _UNKNOWN and not _is_sdk(value):
            attributes.setdefault(openinference.KIND, span.kind)
        resource = (span.resource.attributes if span.resource else None) or {}
        status = span.status or _Status(status_code=span.status_code, description=span.status_message)
        yield Span(
            trace_id=span.context.trace_id.removeprefix("0x"),
            id=span.context.span_id.removeprefix("0x"),
            parent_id=span.parent_id.removeprefix("0x") if span.parent_id else None,
            name=span.name,
            start=nanoseconds(_phoenix_time(span.start)),
            end=nanoseconds(_phoenix_time(span.end)),
            attributes=attributes,
            events=[Event(event.name, event.attributes or {}) for event in span.events or ()],
            resource=resource,
            failed=(status.status_code or "").upper() in otlp.FAILED,
            message=status.description or "",
            losses=unmapped(span, "spans[]"),
            shared=(beside, otlp.unmapped_around(span.resource or _SdkResource(), resource)),
        )


def _mlflow(document: Any, path: str) -> Iterator[Span]:
    """Read a trace of MLflow: its spans are OTLP's, with attributes in an object, and judged in ``info``."""
    trace = read(_MlflowTrace, document, path)
    around = otlp.unmapped_around(trace)
    count_others(trace.info, {"assessments"}, "info", around)
    count_unmapped(trace.data, "data", around)
    spans = [
        {**span, "attributes": otlp.pairs(span.get("attributes")), "events": []} for span in trace.data.spans
    ]
    read_spans = list(otlp.spans_of({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, path))
    known = {span.id for span in read_spans}
    for span in read_spans:
        for assessment in trace.info.get("assessments") or ():
            of = assessment.get("span_id") if isinstance(assessment, dict) else None
            if span.id == of or (span.parent_id is None and of not in known):
                span.events.append(_assessed(assessment))
        span.shared = (*span.shared, around)
        yield span


def _assessed(assessment: Any) -> Event:
    """Return an assessment of MLflow as the conventions' event."""
    rest = dict(assessment) if isinstance(assessment, dict) else {"assessment": assessment}
    feedback = rest.pop("feedback", None)
    feedback = dict(feedback) if isinstance(feedback, dict) else {"feedback": feedback}
    score = feedback.pop("value", None) if rest.get("valid") is not False else None  # it was corrected
    event = genai.evaluation_event(rest.pop("assessment_name", None), score)
    return Event(event.name, event.attributes | rest | feedback)


def _phoenix_time(value: Any) -> Any:
    """Return a time as others write it; pandas writes milliseconds since 1970, the SDK nanoseconds."""
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    return value / (1e9 if value > _NANOSECONDS else 1000)


def _nested_context(value: Any) -> Any:
    """Return a span in the REST API's form; data frames have columns such as ``context.span_id``."""
    if isinstance(value, dict) and isinstance(parent := value.get("parent"), dict):  # any-agent's
        value = value | {"parent": without(parent, "span_id"), "parent_id": parent.get("span_id")}
    if _is_flat(value):
        return without(value, *_FLAT) | {"context": {name: value[name] for name in _FLAT}}
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


def _is_flat(span: Any) -> bool:
    """Check for a span with its ids beside its attributes, as the evaluations of Strands keep it."""
    return (
        isinstance(span, dict)
        and {*_FLAT, "name"} <= span.keys()
        and isinstance(span.get("attributes"), dict)
    )


def _list_in(document: Any) -> str:
    """Return the name of the member that holds spans: ``data`` in an API's response."""
    is_record = isinstance(document, dict)
    return next((name for name in ("data", "spans") if is_record and name in document), "")


def _first(document: Any) -> Any:
    """Return the first of the spans that an object holds, or the document itself if it holds none."""
    name = _list_in(document)
    values = document[name] if name else None
    return values[0] if isinstance(values, list) and values else document


def _is_phoenix(document: Any) -> bool:
    """Check for a span of Phoenix.

    Accepts: spans from Phoenix's REST API, or a data frame's records; spans with their ids beside their
        attributes, as Strands' evaluations keep them; a trace of any-agent.
    Source: https://arize.com/docs/phoenix.
    Compared with: Phoenix 20.26, the types of any-agent 1.18, and public files.
    """
    span = _first(document)
    context = span.get("context") if isinstance(span, dict) else None
    return (
        isinstance(span, dict)
        and not _is_sdk(span)
        and (
            "context.span_id" in span
            or _is_flat(span)
            or (isinstance(context, dict) and "span_id" in context)
        )
    )


def _is_sdk(span: Any) -> bool:
    """Check for a span as OpenTelemetry's SDK prints it.

    Accepts: spans as OpenTelemetry's SDK prints them (``ConsoleSpanExporter``, ``span.to_json()``).
    Source: ``to_json`` of ``opentelemetry.sdk.trace.ReadableSpan``.
    Compared with: its source.
    """
    return isinstance(span, dict) and str(span.get("kind")).startswith("SpanKind.") and "context" in span


def _is_mlflow(document: Any) -> bool:
    """Check for a trace of MLflow.

    Accepts: traces of MLflow with their assessments.
    Source: https://mlflow.org/docs/latest/genai/tracing/.
    Compared with: MLflow 3.17.
    """
    match document:
        case {"info": dict(), "data": {"spans": [{"attributes": dict()}, *_]}}:
            return True
    return False


def _is_jaeger(document: Any) -> bool:
    """Check for an export of Jaeger.

    Accepts: traces exported from Jaeger.
    Source: https://www.jaegertracing.io/docs/latest/apis/.
    Compared with: public files of 2026.
    """
    trace = _first(document)
    return trace is not document and isinstance(trace, dict) and "spans" in trace


def _format(
    name: str,
    members: str,
    recognises: Callable[[Any], bool],
    spans_of: Callable[[Any, str], Iterator[Span]],
) -> InputFormat:
    """Return a format of exports: a file may have several, which share traces.

    The docstring of ``recognises`` says what it is.
    """
    return InputFormat(
        name,
        recognises.__doc__,
        members,
        lambda document: are_all(recognises, document),
        lambda document: _runs(document, spans_of),
        is_fragment=lambda line: True,
    )


FORMATS = (
    _format(OTLP, "resourceSpans", otlp.is_otlp, otlp.spans_of),
    _format("tempo", "batches", otlp.is_tempo, otlp.spans_of),
    _format("jaeger", "traceID spanID operationName", _is_jaeger, _jaeger),
    _format("phoenix", "context span_kind attributes", _is_phoenix, _phoenix),
    _format("otel_sdk", "context kind attributes resource", _is_sdk, _phoenix),
    _format("mlflow", "info data", _is_mlflow, _mlflow),
)
