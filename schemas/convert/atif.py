"""ATIF: Harbor's Agent Trajectory Interchange Format.

Source: https://www.harborframework.com/docs/agents/trajectory-format (RFC 0001); the types of ``atif``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_schemas.convert.definitions import definitions_of
from knowledgepulse_schemas.convert.errors import ConversionError
from knowledgepulse_schemas.convert.hub import (
    Message,
    Part,
    Reasoning,
    Role,
    Run,
    Text,
    ToolCall,
    ToolCallResponse,
    join_texts,
)
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import SourceModel, count_unread, each, parse_time, read

NAME = "atif"

_ROLES: dict[str, Role] = {"system": "system", "user": "user", "agent": "assistant"}


class _Content(SourceModel):
    type: str
    text: str | None = None


class _ToolCall(SourceModel):
    id: str | None = None
    tool_call_id: str | None = None
    function_name: str
    arguments: Any = None


class _Result(SourceModel):
    source_call_id: str | None = None
    content: str | list[_Content] | None = None


class _Observation(SourceModel):
    results: list[_Result]


class _Step(SourceModel):
    step_id: int
    source: str
    timestamp: str | None = None
    message: str | list[_Content] = ""
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    observation: _Observation | None = None
    is_copied_context: bool | None = None


class _Agent(SourceModel):
    name: str
    tool_definitions: list[Any] | None = None


class _Trajectory(SourceModel):
    schema_version: str
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: _Agent
    steps: list[_Step]


def recognises(document: Any) -> bool:
    """Check for a trajectory with this format's version, or a list of these."""
    if isinstance(document, list):
        return bool(document) and all(recognises(one) for one in document)
    return isinstance(document, dict) and str(document.get("schema_version")).startswith("ATIF")


def runs(document: Any) -> Iterator[Run | ConversionError]:
    """Yield the run of each trajectory, or an error in its place."""
    yield from each(document, _run)


def _run(document: Any, path: str) -> Run:
    trajectory = read(_Trajectory, document, path)
    losses = Losses()
    count_unread(trajectory, "", losses)
    messages = [*definitions_of(trajectory.agent.tool_definitions or [], "agent.tool_definitions", losses)]
    ended_at = None
    for step in trajectory.steps:
        ended_at = parse_time(step.timestamp) or ended_at
        if step.is_copied_context:
            losses.add(
                "steps[] copied from another trajectory",
                [part.content for part in _texts(step.message, losses)],
            )
        else:
            messages += _messages(step, losses)
    return Run(
        NAME,
        messages,
        native_id=trajectory.trajectory_id or trajectory.session_id,
        ended_at=ended_at,
        agent_id=trajectory.agent.name,
        names=(trajectory.agent.name,),
        losses=losses,
    )


def _messages(step: _Step, losses: Losses) -> Iterator[Message]:
    parts: list[Part] = [Reasoning(step.reasoning_content)] if step.reasoning_content else []
    parts += _texts(step.message, losses)
    for call in step.tool_calls or ():
        parts.append(ToolCall(call.function_name, call.arguments, call.tool_call_id or call.id))
    yield Message(_ROLES.get(step.source, "assistant"), tuple(parts))
    for result in step.observation.results if step.observation else ():
        text = join_texts(_texts(result.content or "", losses))
        yield Message("tool", (ToolCallResponse(text, result.source_call_id),))


def _texts(content: str | list[_Content], losses: Losses) -> list[Text]:
    if isinstance(content, str):
        return [Text(content)]
    for part in content:
        if part.type != "text":
            losses.add(f"steps[].message[].{part.type}", part.text or "-")
    return [Text(part.text or "") for part in content if part.type == "text"]
