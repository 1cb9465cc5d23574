"""What ``gemini --output-format stream-json`` prints: a session's events, one per line.

An answer comes in pieces, with ``delta``.

Source: https://github.com/google-gemini/gemini-cli, ``packages/core/src/output/types.ts``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.input_format import of_lines
from knowledgepulse_schemas.convert.reading import InputModel, as_text, count_unread
from knowledgepulse_schemas.convert.sessions import Reader, event_of

NAME = "gemini_stream"

_MEMBERS = {
    "init": {"session_id", "timestamp", "model"},
    "message": {"role", "content", "timestamp"},
    "tool_use": {"tool_name", "tool_id", "parameters"},
    "tool_result": {"tool_id", "status", "timestamp"},
    "result": {"status", "timestamp"},
}
"""The members that each type of event has."""


class _Failure(InputModel):
    type: str | None = None
    message: str | None = None


class _Event(InputModel):
    type: str
    timestamp: Any = None
    session_id: str | None = None
    model: str | None = None
    role: str | None = None
    content: str | None = None
    delta: bool | None = None
    tool_name: str | None = None
    tool_id: str | None = None
    parameters: Any = None
    status: str | None = None
    output: Any = None
    error: _Failure | None = None
    message: str | None = None


def _recognises(line: dict[str, Any]) -> bool:
    members = _MEMBERS.get(str(line.get("type")))
    return members is not None and members <= set(line)


class _Stream(Reader):
    has_ended = False

    def __init__(self, framework: str) -> None:
        super().__init__(framework)
        self._answer: list[str] = []  # pieces of the answer
        self._answered_at: datetime | None = None

    def add(self, value: dict[str, Any]) -> None:
        """Add an event."""
        if (event := event_of(_Event, value, self.losses)) is None:
            return
        at = self.transcript.reached(event.timestamp)
        count_unread(event, event.type, self.losses)
        if event.type == "message" and event.role == "assistant" and event.delta:
            self._answer.append(event.content or "")
            self._answered_at = at
            return
        self._end_answer()
        self._add_event(event, at)

    def finish(self) -> hub.Run:
        """Return the run; without its result, it was cut off."""
        self._end_answer()
        return super().finish()

    def _end_answer(self) -> None:
        if self._answer:
            self.transcript.add("assistant", [hub.Text("".join(self._answer))], self._answered_at)
            self._answer.clear()

    def _add_event(self, event: _Event, at: datetime | None) -> None:
        transcript = self.transcript
        if event.type == "init":
            self.has_ended = False
            transcript.began(event.session_id)
            transcript.named(event.model)
        elif event.type == "message":
            role: hub.Role = "user" if event.role == "user" else "assistant"
            transcript.add(role, [hub.Text(event.content or "")], at)
        elif event.type == "tool_use":
            call = hub.ToolCall(event.tool_name or "", event.parameters, event.tool_id)
            transcript.add("assistant", [call], at)
        elif event.type == "tool_result":
            transcript.add("tool", [self._response(event)], at)
        elif event.type == "result":
            self.has_ended = True
            if event.status == "error":
                transcript.add("assistant", [hub.Error((event.error and event.error.message) or "")], at)
        else:  # warnings and errors after which it went on, since a result says how it ended
            self.losses.add(event.type, [event.message, event.content, event.output])

    def _response(self, event: _Event) -> hub.ToolCallResponse:
        """Return a call's response; an error may repeat the output."""
        output = as_text(event.output)
        message = (event.error and event.error.message) or ""
        self.losses.add("tool_result.error.type", event.error and event.error.type)
        texts = [output] if message in output else [output, message]
        return hub.ToolCallResponse(
            "\n".join(filter(None, texts)), event.tool_id, failed=event.status == "error"
        )


FORMAT = of_lines(NAME, "type timestamp tool_id", _recognises, _Stream)
