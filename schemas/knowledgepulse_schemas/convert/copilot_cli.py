"""Sessions of GitHub Copilot CLI: ``~/.copilot/session-state/*/events.jsonl``.

Each line is an event with its ``data``. A message of the assistant has the calls that it requests. There is
no published schema. The rules follow logs of version 1.0.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.input_format import of_lines
from knowledgepulse_schemas.convert.reading import InputModel, count_others, count_unread
from knowledgepulse_schemas.convert.sessions import ANOTHER_FORM, Reader, event_of

NAME = "copilot_cli"

_KINDS = ("session.", "user.", "assistant.", "tool.", "system.", "hook.")
_BOOKKEEPING = ("hook.", "session.", "assistant.turn", "permission.", "subagent")
"""How the kinds of events begin that hold no content of the conversation."""
_AROUND = {"type", "id", "parentId", "agentId", "timestamp", "data"}


class _Request(InputModel):
    id: str | None = Field(default=None, alias="toolCallId")
    name: str
    arguments: Any = None


class _Result(InputModel):
    content: str | None = None


class _Failure(InputModel):
    message: str | None = None


class _Data(InputModel):
    session: str | None = Field(default=None, alias="sessionId")
    context: dict[str, Any] | None = None
    content: str | None = None
    reasoning: str | None = Field(default=None, alias="reasoningText")
    requests: list[_Request] = Field(default_factory=list, alias="toolRequests")
    model: str | None = None
    call: str | None = Field(default=None, alias="toolCallId")
    parent_call: str | None = Field(default=None, alias="parentToolCallId")
    tool: str | None = Field(default=None, alias="toolName")
    arguments: Any = None
    success: bool | None = None
    result: _Result | None = None
    error: _Failure | None = None
    message: str | None = None
    reason: str | None = None


class _Event(InputModel):
    type: str
    id: str | None = None
    parent: str | None = Field(default=None, alias="parentId")
    agent: str | None = Field(default=None, alias="agentId")
    timestamp: Any = None
    data: _Data


def _recognises(line: dict[str, Any]) -> bool:
    if not isinstance(line.get("data"), dict):
        return False
    return str(line.get("type")).startswith(_KINDS) and {"id", "parentId", "timestamp"} <= set(line)


class _Reader(Reader):
    def add(self, value: dict[str, Any]) -> None:
        """Add an event. What a subagent does is a loss, except for the answer that its caller gets."""
        if (event := event_of(_Event, value, self.losses)) is None:
            return
        at = self.transcript.reached(event.timestamp)
        # Later versions name the agent on the event; the main agent's events name none.
        is_subagents = event.agent is not None or event.data.parent_call is not None
        is_read = not is_subagents and self._add_event(event, event.data, at)
        if is_read:
            count_unread(event, event.type, self.losses)
            return
        path = f"subagents' {event.type}" if is_subagents else event.type
        count = self.losses.add if path.startswith(_BOOKKEEPING) else self.losses.add_unknown
        count(path, value["data"])
        count_others(
            value, {"type", "id", "parentId", "agentId", "timestamp", "data"}, event.type, self.losses
        )

    def _add_event(self, event: _Event, data: _Data, at: datetime | None) -> bool:
        """Add an event, and return whether its kind is read."""
        transcript = self.transcript
        match event.type:
            case "session.start":
                context = data.context or {}
                transcript.began(data.session, context.get("cwd"))
                count_others(context, {"cwd"}, "session.start.data.context", self.losses)
            case "user.message":
                transcript.add("user", [hub.Text(data.content or "")], at)
            case "system.message" | "system.notification":
                transcript.add("system", [hub.Text(data.content or "")], at)
            case "assistant.message":
                transcript.named(data.model)
                calls = [hub.ToolCall(one.name, one.arguments, one.id) for one in data.requests]
                texts = [hub.Text(data.content)] if data.content else []
                thoughts = [hub.Reasoning(data.reasoning)] if data.reasoning else []
                transcript.add("assistant", [*thoughts, *texts, *calls], at)
            case "tool.execution_start":
                self._start(data, at)
            case "tool.execution_complete":
                content = (data.result and data.result.content) or ""
                message = (data.error and data.error.message) or ""
                text = "\n".join(filter(None, [content, message]))
                response = hub.ToolCallResponse(text, data.call, failed=data.success is False)
                transcript.add("tool", [response], at)
            case "session.error":
                transcript.add("assistant", [hub.Error(data.message or "")], at)
            case "abort":
                transcript.add("assistant", [hub.Error(data.reason or "", interruption=True)], at)
            case _:
                return False
        return True

    def _start(self, data: _Data, at: datetime | None) -> None:
        """Add a call that no message requested. The start of others repeats their arguments."""
        requested = self.transcript.call_of(data.call)
        if requested is None:
            call = hub.ToolCall(data.tool or "", data.arguments, data.call)
            self.transcript.add("assistant", [call], at)
        elif data.arguments != requested.arguments:
            self.losses.add(ANOTHER_FORM, data.arguments)


FORMAT = of_lines(NAME, "parentId", _recognises, _Reader)
