"""Traces and spans as ``export()`` of the OpenAI Agents SDK gives them to a trace processor.

``result.to_input_list()`` returns Responses items, which
:mod:`knowledgepulse_convert.openai` converts.

Source: https://openai.github.io/openai-agents-python/tracing/.
Compared with: its own types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all, runs_within
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    InputModel,
    count_others,
    read,
    text_or_none,
    unmapped,
)
from knowledgepulse_convert.spans.dialects import Kind, attributes_of, runs_of_spans
from knowledgepulse_convert.spans.span import Span
from knowledgepulse_convert.spans.tree import nanoseconds

_KINDS: dict[str, Kind] = {"agent": "agent", "generation": "model", "response": "model", "function": "tool"}
_NO_MESSAGES = (
    "the export of the Agents SDK has no messages of the Responses API; use OpenAIChatCompletionsModel, or "
    "an instrumentation of OpenTelemetry"
)


class _Error(InputModel):
    message: str = ""


class _Data(InputModel):
    type: str
    name: str | None = None
    input: Any = None
    output: Any = None
    server: str | None = None
    mcp_data: dict[str, Any] | None = None


class _Span(InputModel):
    object: str
    id: str
    trace_id: str | None = None
    parent_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    span_data: _Data | None = None
    error: _Error | None = None
    workflow_name: str | None = None


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    values = document if isinstance(document, list) else [document]
    read_spans = [read(_Span, span, f"[{number}]") for number, span in enumerate(values)]
    traces = {span.id: span for span in read_spans if span.object == "trace"}
    spans = [span for span in read_spans if span.object == "trace.span"]
    by_trace: dict[str, list[_Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id or span.id, []).append(span)
    for trace_id, own in by_trace.items():
        if any(map(_is_response, own)):
            yield ConversionError(f"{trace_id}: {_NO_MESSAGES}")
        else:
            root = _root(trace_id, traces.get(trace_id), own)
            yield from runs_of_spans((root, *map(_span, own)))


def _is_response(span: _Span) -> bool:
    """Check for a model call by the Responses API, of which the SDK exports only the id."""
    data = span.span_data
    return data is not None and data.type == "response" and data.input is None and data.output is None


def _root(trace_id: str, trace: _Span | None, own: list[_Span]) -> Span:
    """Return a root for a trace, which may have several root spans: one agent after another."""
    first = next(
        (span.span_data.name for span in own if span.span_data and span.span_data.type == "agent"), None
    )
    name = trace.workflow_name if trace is not None else None
    return Span(
        trace_id=trace_id,
        id="trace",
        parent_id=None,
        name=first or name or "",
        attributes=attributes_of("agent", None, None),
        start=min((nanoseconds(span.started_at) for span in own), default=0),
        end=max((nanoseconds(span.ended_at) for span in own), default=0),
        resource={"service.name": name},
        losses=unmapped(trace) if trace is not None else Losses(),
    )


def _span(span: _Span) -> Span:
    losses = unmapped(span)
    data = span.span_data or _Data(type="")
    mcp_data = data.mcp_data or {}
    count_others(mcp_data, {"server"}, "span_data.mcp_data", losses)
    server = text_or_none(mcp_data.get("server"))
    return Span(
        trace_id=span.trace_id or span.id,
        id=span.id,
        parent_id=span.parent_id or "trace",
        name=data.name or "",
        attributes=attributes_of(_KINDS.get(data.type), data.input, data.output, server),
        start=nanoseconds(span.started_at),
        end=nanoseconds(span.ended_at),
        failed=span.error is not None,
        message=span.error.message if span.error else "",
        losses=losses,
    )


def _is_exported(value: Any) -> bool:
    return isinstance(value, dict) and value.get("object") in ("trace", "trace.span")


FORMAT = InputFormat(
    "openai_agents",
    __doc__,
    "object trace_id span_data",
    lambda document: are_all(_is_exported, document, within="data"),
    lambda document: runs_within(document, "data", _runs),
    is_fragment=lambda line: True,
)
