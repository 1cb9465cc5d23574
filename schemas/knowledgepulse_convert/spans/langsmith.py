"""Runs of LangSmith, in a list or with ``child_runs``; rows of its bulk export.

Source: https://docs.langchain.com/langsmith/run-data-format; the types of ``langsmith``.
Compared with: the types of ``langsmith`` 0.15.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.pattern import any_of, at
from knowledgepulse_convert.common.reading import as_list, parse_json, without
from knowledgepulse_convert.spans.records import Placed, Records, placed

_TOOLS = ("tool", "retriever")
_RUNS = Records(
    id=at("id"),
    trace=at("trace_id"),
    parent=at("parent_run_id"),
    kind=at("run_type"),
    kinds={"agent": "agent", "llm": "model", **dict.fromkeys(_TOOLS, "tool")},
    title=at("name"),
    start=at("start_time"),
    end=at("end_time"),
    input=at("inputs"),
    output=at("outputs"),
    error=at("error"),
    scores=at("means"),
    service=at("session_name"),
)


def _records(document: Any, above: str = "", trace: Any = None) -> Placed:
    """Yield runs, each before those below it."""
    for path, run in placed(document, above):
        own = run.get("trace_id") or trace or run.get("id")
        yield path, _told(without(run, "child_runs") | {"trace_id": own})
        yield from _records(as_list(run.get("child_runs")), f"{path}.child_runs", own)


def _told(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run without what LangChain and LangSmith put around its values."""
    if run.get("parent_run_id") is None:
        run["run_type"] = "agent"
    elif run.get("run_type") in _TOOLS:
        match run.get("outputs"):
            case dict(members) if len(members) == 1:
                run["outputs"] = next(iter(members.values()))
        match run.get("inputs"):
            case {"input": str(arguments), **others} if not others:  # the repr of a Python object
                run["inputs"] = arguments
    if run.pop("status", None) == "error":
        run["error"] = run.get("error") or True
    feedback = parse_json(run.pop("feedback_stats", None))  # a row of the bulk export has texts
    return run | _judged(feedback) if isinstance(feedback, dict) else run


def _judged(feedback: dict[str, Any]) -> dict[str, Any]:
    """Return the mean of each feedback key that states an outcome, beside all other feedback.

    It is not the agent that states a confidence there.
    """
    means: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, stats in feedback.items():
        mean = stats.get("avg") if isinstance(stats, dict) else None
        if ir.is_outcome(name, mean):
            means["feedback.confidence" if name == "confidence" else name] = mean
            others |= {f"feedback_stats.{name}.{member}": stats[member] for member in without(stats, "avg")}
        else:
            others[f"feedback_stats.{name}"] = stats
    return {"means": means, **others}


FORMAT = _RUNS.format(
    "langsmith",
    __doc__,
    any_of({"run_type": ..., "id": ...}),
    members="id run_type inputs outputs",
    within="runs",
    records=_records,
)
