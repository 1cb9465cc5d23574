"""Runs of LangSmith, in a list or with ``child_runs``; rows of its bulk export.

Source: https://docs.langchain.com/langsmith/run-data-format; the types of ``langsmith``.
Compared with: the types of ``langsmith`` 0.15.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import hub
from knowledgepulse_convert.common.input_format import InputFormat, are_all, runs_within
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    InputModel,
    count_others,
    parse_json,
    read,
    unread,
)
from knowledgepulse_convert.spans.dialects import Kind, attributes_of, runs_of_spans
from knowledgepulse_convert.spans.genai import evaluation_event
from knowledgepulse_convert.spans.span import Event, Span
from knowledgepulse_convert.spans.tree import nanoseconds

_KINDS: dict[str, Kind] = {"llm": "model", "tool": "tool", "retriever": "tool"}


class _Run(InputModel):
    id: str
    name: str = ""
    run_type: str
    trace_id: str | None = None
    parent_run_id: str | None = None
    start_time: Any = None
    end_time: Any = None
    error: str | None = None
    status: str | None = None
    inputs: Any = None
    outputs: Any = None
    session_name: str | None = None
    feedback_stats: Any = None
    child_runs: list[Any] | None = None


def _spans(document: Any, root: _Run | None, path: str) -> Iterator[Span]:
    for number, value in enumerate(document if isinstance(document, list) else [document]):
        run = read(_Run, value, f"{path}[{number}]")
        trace_id = run.trace_id or (root.trace_id or root.id if root is not None else run.id)
        yield _span(run, trace_id)
        yield from _spans(run.child_runs or [], root or run, f"{path}[{number}].child_runs")


def _span(run: _Run, trace_id: str) -> Span:
    losses = unread(run)
    feedback = parse_json(run.feedback_stats)  # a row of the bulk export has texts
    feedback = feedback if isinstance(feedback, dict) else {}
    kind: Kind | None = "agent" if run.parent_run_id is None else _KINDS.get(run.run_type)
    inputs, output = run.inputs, run.outputs
    if kind == "tool" and isinstance(output, dict) and len(output) == 1:
        output = next(iter(output.values()))
    if kind == "tool" and isinstance(inputs, dict) and len(inputs) == 1:
        text = inputs.get("input")  # LangChain records the arguments as the repr of a Python object
        inputs = text if isinstance(text, str) else inputs
    return Span(
        trace_id=trace_id,
        id=run.id,
        parent_id=run.parent_run_id,
        name=run.name,
        attributes=attributes_of(kind, inputs, output),
        start=nanoseconds(run.start_time),
        end=nanoseconds(run.end_time),
        failed=bool(run.error) or run.status == "error",
        message=run.error or "",
        resource={"service.name": run.session_name},
        events=list(_outcomes(feedback, losses)),
        losses=losses,
    )


def _outcomes(feedback: dict[str, Any], losses: Losses) -> Iterator[Event]:
    """Yield the mean of each feedback key that has one; all other feedback is a loss.

    It is not the agent that states a confidence there.
    """
    for name, stats in feedback.items():
        if isinstance(stats, dict) and hub.is_outcome(name, stats.get("avg")):
            count_others(stats, {"avg"}, f"feedback_stats.{name}", losses)
            yield evaluation_event("feedback.confidence" if name == "confidence" else name, stats["avg"])
        else:
            losses.add(f"feedback_stats.{name}", stats)


def _is_run(value: Any) -> bool:
    return isinstance(value, dict) and "run_type" in value and "id" in value


FORMAT = InputFormat(
    "langsmith",
    __doc__,
    "id run_type inputs outputs",
    lambda document: are_all(_is_run, document, within="runs"),
    lambda document: runs_within(document, "runs", lambda runs: runs_of_spans(_spans(runs, None, ""))),
    is_fragment=lambda line: True,
)
