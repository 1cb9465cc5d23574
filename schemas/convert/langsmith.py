"""LangSmith: exported runs, flat or nested.

Source: https://docs.langchain.com/langsmith/run-data-format; the types of ``langsmith``.
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
from knowledgepulse_schemas.convert.tree import Node, labels_of, latency_ms, nanoseconds, runs_of

NAME = "langsmith"


class _Run(SourceModel):
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
    feedback_stats: dict[str, Any] | None = None
    child_runs: list[Any] | None = None


def recognises(document: Any) -> bool:
    """Check for a run or a list of runs."""
    document = unwrap(document, "runs")
    if isinstance(document, list):
        return bool(document) and all(recognises(one) for one in document)
    return isinstance(document, dict) and "run_type" in document and "id" in document


def runs(document: Any) -> Iterator[Run | ConversionError]:
    """Yield the agent run of each root run.

    Raises:
        ConversionError: an item is not a run.
    """
    yield from runs_of(_nodes(document, None, ""), NAME)


def _nodes(document: Any, root: _Run | None, path: str) -> Iterator[Node]:
    if isinstance(document, dict) and isinstance(document.get("runs"), list):
        document, path = document["runs"], f"{path}.runs"
    for number, value in enumerate(document if isinstance(document, list) else [document]):
        run = read(_Run, value, f"{path}[{number}]")
        trace_id = run.trace_id or (root.trace_id or root.id if root is not None else run.id)
        yield Node.of(trace_id, run.id, run.parent_run_id, partial(_node, run, trace_id))
        yield from _nodes(run.child_runs or [], root or run, f"{path}[{number}].child_runs")


def _node(run: _Run, trace_id: str) -> Node:
    losses = Losses()
    count_unread(run, "", losses)
    error = Error(run.error or "") if run.error or run.status == "error" else None
    event = _event(run, error, losses)
    root = run.parent_run_id is None
    names = tuple(name for name in (run.name, run.session_name) if name)
    return Node(
        trace_id=trace_id,
        id=run.id,
        parent_id=run.parent_run_id,
        start=nanoseconds(parse_time(run.start_time)),
        end=nanoseconds(parse_time(run.end_time)),
        agent=root,
        event=event,
        error=error if root else None,
        agent_id=run.name or None,
        names=names,
        labels=labels_of(_scores(run.feedback_stats)),
        losses=losses,
    )


def _event(run: _Run, error: Error | None, losses: Losses) -> ModelCall | ToolRun | None:
    if run.run_type == "llm" or run.parent_run_id is None:
        inputs = messages_of(run.inputs, "user", "inputs", losses)
        outputs = messages_of(run.outputs, "assistant", "outputs", losses)
        return ModelCall(inputs, outputs, error if run.run_type == "llm" else None)
    if run.run_type in {"tool", "retriever"}:
        return _tool_run(run, error)
    losses.add("runs other than model and tool calls", [run.name, run.inputs, run.outputs])
    return None


def _tool_run(run: _Run, error: Error | None) -> ToolRun:
    output, call_id, failed = _output(run.outputs)
    if output is None and error is not None:
        output = error.message
    start, end = (nanoseconds(parse_time(one)) for one in (run.start_time, run.end_time))
    inputs = run.inputs
    if isinstance(inputs, dict) and len(inputs) == 1 and isinstance(inputs.get("input"), str):
        inputs = inputs["input"]  # LangChain records the arguments as the repr of a Python object
    call = ToolCall(run.name, inputs, call_id, latency_ms=latency_ms(start, end))
    return ToolRun(call, output, failed=failed or error is not None)


def _output(outputs: Any) -> tuple[str | None, str | None, bool]:
    """Return a tool's response, its call's id and its failure flag; a ToolMessage has the last two."""
    if isinstance(outputs, dict) and len(outputs) == 1:
        outputs = next(iter(outputs.values()))
    message = outputs
    if isinstance(message, dict) and isinstance(message.get("kwargs"), dict):
        message = message["kwargs"]
    if isinstance(message, dict) and "tool_call_id" in message:
        call_id = message["tool_call_id"]
        known_id = call_id if isinstance(call_id, str) else None
        return as_text(message.get("content")), known_id, message.get("status") == "error"
    return None if outputs is None else as_text(outputs), None, False


def _scores(feedback: dict[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Yield the mean of each feedback key."""
    for name, stats in (feedback or {}).items():
        if isinstance(stats, dict):
            yield name, stats.get("avg")
