"""Traces and spans as ``export()`` of the OpenAI Agents SDK gives them to a trace processor.

``result.to_input_list()`` returns Responses items, which
:mod:`knowledgepulse_convert.openai` converts.

Source: https://openai.github.io/openai-agents-python/tracing/.
Compared with: its own types.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all, runs_within
from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.reading import text_or_none, without
from knowledgepulse_convert.spans.dialects import runs_of_spans
from knowledgepulse_convert.spans.records import Placed, Records, placed
from knowledgepulse_convert.spans.tree import nanoseconds

_SPANS = Records(
    id=at("id"),
    trace=at("trace_id"),
    parent=at("parent_id"),
    kind=at("span_data", "type"),
    kinds={"agent": "agent", "generation": "model", "response": "model", "function": "tool"},
    title=at("span_data", "name"),
    start=at("started_at"),
    end=at("ended_at"),
    input=at("span_data", "input"),
    output=at("span_data", "output"),
    error=at("error", "message"),
    service=at("workflow_name"),
    server=at("span_data", "mcp_data", "server"),
)
_KIND, _TITLE = at("span_data", "type"), at("span_data", "name")
_NO_MESSAGES = (
    "the export of the Agents SDK has no messages of the Responses API; use OpenAIChatCompletionsModel, or "
    "an instrumentation of OpenTelemetry"
)


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    records = list(placed(document))
    traces = {str(record.get("id")): record for _, record in records if record.get("object") == "trace"}
    by_trace: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for path, record in records:
        if record.get("object") == "trace.span":
            trace_id = text_or_none(record.get("trace_id")) or str(record.get("id"))
            by_trace.setdefault(trace_id, []).append((path, record))
    for trace_id, own in by_trace.items():
        if any(_is_response(record) for _, record in own):
            yield ConversionError(f"{trace_id}: {_NO_MESSAGES}")
        else:
            told = _told(trace_id, traces.get(trace_id, {}), own)
            yield from runs_of_spans(starmap(_SPANS.span, told))


def _is_response(record: dict[str, Any]) -> bool:
    """Check for a model call by the Responses API, of which the SDK exports only the id."""
    is_told = _SPANS.input.of(record) is not None or _SPANS.output.of(record) is not None
    return _KIND.of(record) == "response" and not is_told


def _told(trace_id: str, trace: dict[str, Any], own: list[tuple[str, dict[str, Any]]]) -> Placed:
    """Yield a root for a trace, which may have several root spans, one agent after another, and its spans."""
    agents = (_TITLE.of(record) for _, record in own if _KIND.of(record) == "agent")
    first, name = next(agents, None), trace.get("workflow_name")
    times = {
        member: choose((record.get(member) for _, record in own), key=nanoseconds)
        for member, choose in (("started_at", min), ("ended_at", max))
    }
    agent = {"type": "agent", "name": first or name or ""}
    root = {"id": "trace", "trace_id": trace_id, "span_data": agent} | times
    yield "", without(trace, "object") | root
    for path, record in own:
        told = without(record, "object") | {"parent_id": record.get("parent_id") or "trace"}
        failure = record.get("error")
        if isinstance(failure, dict) and not failure.get("message"):
            told["error"] = failure | {"message": True}
        yield path, told


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
