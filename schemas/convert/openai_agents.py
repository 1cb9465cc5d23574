"""OpenAI Agents SDK: traces and spans exported by a trace processor.

``result.to_input_list()`` returns Responses items, which
:mod:`knowledgepulse_schemas.convert.openai` converts.

Source: https://openai.github.io/openai-agents-python/tracing/.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from knowledgepulse_schemas.convert.errors import ConversionError
from knowledgepulse_schemas.convert.hub import Error, ModelCall, Run, ToolCall, ToolRun
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.messages import messages_of
from knowledgepulse_schemas.convert.reading import (
    SourceModel,
    as_text,
    count_unread,
    parse_time,
    read,
    unwrap,
)
from knowledgepulse_schemas.convert.tree import Node, latency_ms, nanoseconds, runs_of

NAME = "openai_agents"


class _Error(SourceModel):
    message: str = ""


class _Data(SourceModel):
    type: str
    name: str | None = None
    input: Any = None
    output: Any = None
    server: str | None = None
    mcp_data: dict[str, Any] | None = None


class _Span(SourceModel):
    object: str
    id: str
    trace_id: str | None = None
    parent_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    span_data: _Data | None = None
    error: _Error | None = None
    workflow_name: str | None = None


def recognises(document: Any) -> bool:
    """Check for an exported trace or span, or a list of these."""
    document = unwrap(document, "data")
    if isinstance(document, list):
        return bool(document) and all(recognises(one) for one in document)
    return isinstance(document, dict) and document.get("object") in ("trace", "trace.span")


def runs(document: Any) -> Iterator[Run | ConversionError]:
    """Yield the agent run of each trace.

    Raises:
        ConversionError: an item is neither a trace nor a span.
    """
    document = unwrap(document, "data")
    values = document if isinstance(document, list) else [document]
    read_spans = [read(_Span, one, f"[{number}]") for number, one in enumerate(values)]
    traces = {one.id: one for one in read_spans if one.object == "trace"}
    spans = [one for one in read_spans if one.object == "trace.span"]
    by_trace: dict[str, list[_Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id or span.id, []).append(span)
    roots = (_root(trace_id, traces.get(trace_id), own) for trace_id, own in by_trace.items())
    nodes = (
        Node.of(one.trace_id or one.id, one.id, one.parent_id or "trace", partial(_node, one))
        for one in spans
    )
    yield from runs_of((*roots, *nodes), NAME)


def _root(trace_id: str, trace: _Span | None, own: list[_Span]) -> Node:
    """Return a root node for a trace, which may have several root spans: one agent after another."""
    first = next((one.span_data.name for one in own if one.span_data and one.span_data.type == "agent"), None)
    losses = Losses()
    if trace is not None:
        count_unread(trace, "", losses)
    name = trace.workflow_name if trace is not None else None
    return Node(
        trace_id=trace_id,
        id="trace",
        parent_id=None,
        start=min((nanoseconds(parse_time(one.started_at)) for one in own), default=0),
        end=max((nanoseconds(parse_time(one.ended_at)) for one in own), default=0),
        agent=True,
        agent_id=first or name,
        names=tuple(one for one in (first, name) if one),
        losses=losses,
    )


def _node(span: _Span) -> Node:
    losses = Losses()
    count_unread(span, "", losses)
    data = span.span_data or _Data(type="")
    error = None if span.error is None else Error(span.error.message)
    event: ModelCall | ToolRun | None = None
    start, end = (nanoseconds(parse_time(one)) for one in (span.started_at, span.ended_at))
    if data.type in {"generation", "response"}:
        inputs = messages_of(data.input, "user", "span_data.input", losses)
        outputs = messages_of(data.output, "assistant", "span_data.output", losses)
        event = ModelCall(inputs, outputs, error)
    elif data.type == "function":
        server = (data.mcp_data or {}).get("server")
        answer = None if data.output is None else as_text(data.output)
        call = ToolCall(
            data.name or "",
            data.input,
            mcp_server=server if isinstance(server, str) else None,
            latency_ms=latency_ms(start, end),
        )
        response = error.message if answer is None and error is not None else answer
        event = ToolRun(call, response, failed=error is not None)
    else:
        losses.add(f"span_data.{data.type}", [data.name, data.input, data.output])
    return Node(
        trace_id=span.trace_id or span.id,
        id=span.id,
        parent_id=span.parent_id or "trace",
        start=start,
        end=end,
        agent=data.type == "agent",
        event=event,
        error=error if data.type == "agent" else None,
        losses=losses,
    )
