"""ATIF: Harbor's Agent Trajectory Interchange Format.

Source: https://www.harborframework.com/docs/agents/trajectory-format (RFC 0001); the types of ``atif``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.contents import Content, parts_of
from knowledgepulse_schemas.convert.definitions import definitions_of
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import SourceModel, parse_time, read_record
from knowledgepulse_schemas.convert.source import of_records

NAME = "atif"

_CONTENT = "steps[].message"
_ROLES: dict[str, hub.Role] = {"system": "system", "user": "user", "agent": "assistant"}


class _ToolCall(SourceModel):
    id: str | None = None
    tool_call_id: str | None = None
    function_name: str
    arguments: Any = None


class _Result(SourceModel):
    source_call_id: str | None = None
    content: str | list[Content] | None = None


class _Observation(SourceModel):
    results: list[_Result]


class _Step(SourceModel):
    step_id: int
    source: str
    timestamp: str | None = None
    message: str | list[Content] = ""
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


def _run(document: Any, path: str) -> hub.Run:
    trajectory, losses = read_record(_Trajectory, document, path)
    messages = [*definitions_of(trajectory.agent.tool_definitions or [], "agent.tool_definitions", losses)]
    ended_at = None
    for step in trajectory.steps:
        ended_at = parse_time(step.timestamp) or ended_at
        if step.is_copied_context:
            copied = hub.contents_of(_messages(step, losses))
            losses.add("steps[] copied from another trajectory", copied)
        else:
            messages += _messages(step, losses)
    return hub.Run(
        NAME,
        messages,
        native_id=trajectory.trajectory_id or trajectory.session_id,
        ended_at=ended_at,
        agent_id=trajectory.agent.name,
        names=(trajectory.agent.name,),
        losses=losses,
    )


def _messages(step: _Step, losses: Losses) -> Iterator[hub.Message]:
    content = parts_of(step.message, _CONTENT, losses)
    calls = (
        hub.ToolCall(one.function_name, one.arguments, one.tool_call_id or one.id)
        for one in step.tool_calls or ()
    )
    role = _ROLES.get(step.source, "assistant")
    yield hub.message(role, hub.reasoning(step.reasoning_content), *content, *calls)
    for result in step.observation.results if step.observation else ():
        text = hub.join_texts(parts_of(result.content, _CONTENT, losses))
        yield hub.message("tool", hub.ToolCallResponse(text, result.source_call_id))


SOURCE = of_records(
    NAME,
    "schema_version agent steps",
    lambda value: isinstance(value, dict) and str(value.get("schema_version")).startswith("ATIF"),
    _run,
)
