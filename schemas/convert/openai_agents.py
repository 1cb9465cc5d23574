"""The OpenAI Agents SDK: the traces and spans that a trace processor exports.

What ``result.to_input_list()`` gives are Responses items: :mod:`schemas.convert.openai` reads those.

Source: https://openai.github.io/openai-agents-python/tracing/.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from schemas.convert.errors import ConversionError
from schemas.convert.hub import Error, ModelCall, Run, ToolCall, ToolRun
from schemas.convert.losses import Losses
from schemas.convert.messages import messages_of
from schemas.convert.reading import Reading, as_text, lose_unread, parse_time, read
from schemas.convert.tree import Node, nanoseconds, runs_of

NAME = "openai_agents"


class _Error(Reading):
    message: str = ""


class _Data(Reading):
    type: str
    name: str | None = None
    input: Any = None
    output: Any = None
    server: str | None = None
    mcp_data: dict[str, Any] | None = None


class _Span(Reading):
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
    """Tell whether the document is an exported trace or span, or a list of these."""
    if isinstance(document, list):
        return bool(document) and all(recognises(one) for one in document)
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        return recognises(document["data"])
    return isinstance(document, dict) and document.get("object") in {"trace", "trace.span"}


def runs(document: Any) -> Iterator[Run | ConversionError]:
    """Yield the run of each trace.

    Raises:
        ConversionError: something in the document is neither a trace nor a span.
    """
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        document = document["data"]
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
    """Return a node for a trace: its spans may have several beginnings, an agent after another."""
    first = next((one.span_data.name for one in own if one.span_data and one.span_data.type == "agent"), None)
    losses = Losses()
    if trace is not None:
        lose_unread(trace, "", losses)
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
    lose_unread(span, "", losses)
    data = span.span_data or _Data(type="")
    error = None if span.error is None else Error(span.error.message)
    event: ModelCall | ToolRun | None = None
    start, end = (nanoseconds(parse_time(one)) for one in (span.started_at, span.ended_at))
    if data.type in {"generation", "response"}:
        given = messages_of(data.input, "user", "span_data.input", losses)
        said = messages_of(data.output, "assistant", "span_data.output", losses)
        event = ModelCall(given, said, error)
    elif data.type == "function":
        server = (data.mcp_data or {}).get("server")
        answer = None if data.output is None else as_text(data.output)
        call = ToolCall(
            data.name or "",
            data.input,
            mcp_server=server if isinstance(server, str) else None,
            latency_ms=(end - start) / 1e6 if end > start > 0 else None,
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
