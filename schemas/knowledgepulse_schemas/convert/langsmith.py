"""LangSmith: exported runs, flat or nested.

Source: https://docs.langchain.com/langsmith/run-data-format; the types of ``langsmith``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.conversation import ModelCall, ToolRun
from knowledgepulse_schemas.convert.input_format import InputFormat, are_all, runs_within
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.messages import messages_of
from knowledgepulse_schemas.convert.reading import (
    InputModel,
    count_others,
    count_unread,
    parse_json,
    read,
)
from knowledgepulse_schemas.convert.tree import Node, nanoseconds, runs_of, tool_run

NAME = "langsmith"


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


def _nodes(document: Any, root: _Run | None, path: str) -> Iterator[Node]:
    for number, value in enumerate(document if isinstance(document, list) else [document]):
        run = read(_Run, value, f"{path}[{number}]")
        trace_id = run.trace_id or (root.trace_id or root.id if root is not None else run.id)
        yield Node.of(trace_id, run.id, run.parent_run_id, partial(_node, run, trace_id))
        yield from _nodes(run.child_runs or [], root or run, f"{path}[{number}].child_runs")


def _node(run: _Run, trace_id: str) -> Node:
    losses = Losses()
    count_unread(run, "", losses)
    feedback = parse_json(run.feedback_stats)  # a row of the bulk export has texts
    feedback = feedback if isinstance(feedback, dict) else {}
    _count_feedback(feedback, losses)
    error = hub.Error(run.error or "") if run.error or run.status == "error" else None
    root = run.parent_run_id is None
    return Node(
        trace_id=trace_id,
        id=run.id,
        parent_id=run.parent_run_id,
        start=nanoseconds(run.start_time),
        end=nanoseconds(run.end_time),
        agent=root,
        event=_event(run, error, losses),
        error=error if root else None,
        agent_id=run.name or None,
        names=tuple(name for name in (run.name, run.session_name) if name),
        outcome=hub.outcome_of(_scores(feedback)),
        losses=losses,
    )


def _event(run: _Run, error: hub.Error | None, losses: Losses) -> ModelCall | ToolRun | None:
    if run.run_type == "llm" or run.parent_run_id is None:
        inputs = messages_of(run.inputs, "user", "inputs", losses)
        outputs = messages_of(run.outputs, "assistant", "outputs", losses)
        return ModelCall(inputs, outputs, error if run.run_type == "llm" else None)
    if run.run_type in {"tool", "retriever"}:
        return _tool_run(run, error, losses)
    losses.add("runs other than model and tool calls", [run.name, run.inputs, run.outputs])
    return None


def _tool_run(run: _Run, error: hub.Error | None, losses: Losses) -> ToolRun:
    output = run.outputs
    if isinstance(output, dict) and len(output) == 1:
        output = next(iter(output.values()))
    inputs = run.inputs
    if isinstance(inputs, dict) and len(inputs) == 1 and isinstance(inputs.get("input"), str):
        inputs = inputs["input"]  # LangChain records the arguments as the repr of a Python object
    start, end = nanoseconds(run.start_time), nanoseconds(run.end_time)
    return tool_run(run.name, inputs, output, error, losses, start=start, end=end)


def _count_feedback(feedback: dict[str, Any], losses: Losses) -> None:
    """Count the feedback that states no outcome, and of all other feedback the statistics except the mean."""
    for name, stats in feedback.items():
        if isinstance(stats, dict) and hub.is_outcome(name, stats.get("avg")):
            count_others(stats, {"avg"}, f"feedback_stats.{name}", losses)
        else:
            losses.add(f"feedback_stats.{name}", stats)


def _scores(feedback: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the mean of each feedback key."""
    for name, stats in feedback.items():
        if isinstance(stats, dict):
            yield name, stats.get("avg")


def _is_run(value: Any) -> bool:
    return isinstance(value, dict) and "run_type" in value and "id" in value


FORMAT = InputFormat(
    NAME,
    "id run_type inputs outputs",
    lambda document: are_all(_is_run, document, within="runs"),
    lambda document: runs_within(document, "runs", lambda runs: runs_of(_nodes(runs, None, ""), NAME)),
    is_fragment=lambda line: True,
)
