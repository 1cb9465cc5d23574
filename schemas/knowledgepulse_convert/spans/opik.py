"""Spans of Opik, from its API or its SDK; files of ``opik export``, which have a trace with its spans.

Source: https://www.comet.com/docs/opik/reference/rest-api; the types of ``opik``.
Compared with: runs of ``opik`` 2.2, and the types of its API.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common.pattern import any_of, at
from knowledgepulse_convert.common.reading import as_list, without
from knowledgepulse_convert.spans.records import Placed, Records, placed

_SPANS = Records(
    id=at("id"),
    trace=at("trace_id"),
    parent=at("parent_span_id"),
    kind=at("type"),
    kinds={"llm": "model", "tool": "tool"},
    title=at("name"),
    start=at("start_time"),
    end=at("end_time"),
    input=at("input"),
    output=at("output"),
    error=at("error"),
    scores=at("feedback_scores"),
    service=at("project_name"),
)
_is_span = any_of(
    {"id": str, "trace_id": str, "start_time": ..., "type": {"llm", "general", "tool", "guardrail"}}
)
_is_export = any_of({"trace": dict, at("trace", "id"): str, "spans": list})


def _records(document: Any) -> Placed:
    for path, item in placed(document):
        if _is_export(item):
            yield from _exported(item, path)
        else:
            yield path, _told(item)


def _exported(export: dict[str, Any], path: str) -> Placed:
    """Yield the spans of a trace, below the trace unless they have one root, which tells the same."""
    trace = export["trace"]
    spans = [(place, dict(span)) for place, span in placed(export["spans"], f"{path}.spans")]
    roots = [span for _, span in spans if span.get("parent_span_id") is None]
    others = without(export, "trace", "spans")
    if len(roots) == 1:
        root = roots[0]
        told = {f"trace.{name}": value for name, value in trace.items() if root.get(name) != value}
        judged = [*as_list(root.get("feedback_scores")), *as_list(told.pop("trace.feedback_scores", None))]
        root |= without(told, "trace.id") | {"feedback_scores": judged} | others
    else:
        yield f"{path}.trace", _told(trace | {"trace_id": trace["id"]} | others)
        for root in roots:
            root["parent_span_id"] = trace["id"]
    yield from ((place, _told(span)) for place, span in spans)


def _told(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without the object that the SDK puts around a tool's text."""
    failure = record.get("error_info")
    if isinstance(failure, dict):
        record = record | {"error": failure.get("message") or failure.get("exception_type") or True}
    match record:
        case {"type": "tool", "output": {"output": returned, **others}} if not others:
            record = record | {"output": returned}
    return record


FORMAT = _SPANS.format(
    "opik",
    __doc__,
    lambda item: _is_span(item) or _is_export(item),
    members="trace_id parent_span_id project_name start_time",
    within="content",
    records=_records,
)
