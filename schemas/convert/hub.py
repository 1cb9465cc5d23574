"""The middle of every conversion: messages in the shape of OpenTelemetry's GenAI semantic conventions.

A source becomes a :class:`Run`; :func:`schemas.convert.trace.to_trace` makes a trace of it. The parts are
those of the conventions (text, reasoning, tool_call, tool_call_response), with one addition: an
:class:`Error`, for what a source flags as failed outside of a tool's response.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from schemas.convert.losses import Losses

Role = Literal["system", "user", "assistant", "tool"]

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""What the vendors call the four roles."""


@dataclass(frozen=True, slots=True)
class Text:
    """What was said."""

    content: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thought before it spoke."""

    content: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; ``arguments`` are an object, or the text that the model wrote for one."""

    name: str
    arguments: Any = None
    id: str | None = None
    mcp_server: str | None = None
    latency_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ToolCallResponse:
    """What a tool answered; ``failed`` only where the source flags it."""

    response: str
    id: str | None = None
    name: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Error:
    """A failure that the source flags outside of a tool's response; ``message`` is what it says of it."""

    message: str = ""


Part = Text | Reasoning | ToolCall | ToolCallResponse | Error


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Labels:
    """What somebody judged of a run: did it succeed, and how sure is the result (0 to 1)."""

    success: bool | None = None
    confidence: float | None = None

    def over(self, other: Labels) -> Labels:
        """Return these labels, with the other's where these say nothing."""
        return Labels(
            success=other.success if self.success is None else self.success,
            confidence=other.confidence if self.confidence is None else self.confidence,
        )


Ending = Literal["without_error", "failed", "submitted"]
"""How a run ended; ``submitted`` is a result that was handed in and that nobody checked."""


@dataclass(slots=True)
class Run:
    """One run of an agent, from whatever source.

    Attributes:
        framework: the source's name; it becomes ``metadata.framework``.
        messages: the conversation, each message once, in time order.
        native_id: the source's own id of the run; without one the trace's id comes from the content.
        ended_at: when it ended.
        ending: how it ended, as far as the source's structure says.
        agent_id: the source's id or name of the agent.
        names: what a domain map may call it: the agent's, the service's, the project's name.
        labels: what the source itself says of success and confidence.
        losses: what of the source had no place.
    """

    framework: str
    messages: list[Message]
    native_id: str | None = None
    ended_at: datetime | None = None
    ending: Ending = "without_error"
    agent_id: str | None = None
    names: tuple[str, ...] = ()
    labels: Labels = field(default_factory=Labels)
    losses: Losses = field(default_factory=Losses)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call of a model as a tracer records it: the whole conversation so far, and what came of it."""

    input: tuple[Message, ...] = ()
    output: tuple[Message, ...] = ()
    error: Error | None = None


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A run of a tool as a tracer records it; ``response`` is None where the content was not recorded."""

    call: ToolCall
    response: str | None = None
    failed: bool = False


def conversation(events: Iterable[ModelCall | ToolRun | Error]) -> list[Message]:
    """Return the messages of a run that was recorded call by call.

    Every model call repeats the conversation before it, so of its input only what is new counts: a tool call
    or response by its id, a text by how often it was said so far. A run of a tool answers the call with its
    id, or the first open call of its name; its flag and its latency go to them.

    Args:
        events: in time order.
    """
    return _Conversation().add(events)


_Said = tuple[str, type[Part], str]
_Place = tuple[int, int]  # of a part: its message, and its number there


class _Conversation:
    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._said: Counter[_Said] = Counter()
        self._calls: dict[str, _Place] = {}
        self._responses: dict[str, _Place] = {}

    def add(self, events: Iterable[ModelCall | ToolRun | Error]) -> list[Message]:
        for event in events:
            if isinstance(event, ToolRun):
                self._add_tool_run(event)
            elif isinstance(event, Error):
                self._append("assistant", (event,))
            else:
                self._add_input(event.input)
                for message in event.output:
                    self._append(message.role, message.parts)
                if event.error is not None:
                    self._append("assistant", (event.error,))
        return self._messages

    def _add_input(self, messages: Iterable[Message]) -> None:
        repeated: Counter[_Said] = Counter()
        for message in messages:
            self._append(
                message.role,
                tuple(part for part in message.parts if self._is_new(message.role, part, repeated)),
            )

    def _is_new(self, role: str, part: Part, repeated: Counter[_Said]) -> bool:
        if isinstance(part, ToolCall) and part.id is not None:
            return part.id not in self._calls
        if isinstance(part, ToolCallResponse) and part.id is not None:
            return part.id not in self._responses
        said = _said(role, part)
        repeated[said] += 1
        return repeated[said] > self._said[said]

    def _append(self, role: Role, parts: tuple[Part, ...]) -> None:
        for number, part in enumerate(parts):
            self._said[_said(role, part)] += 1
            place = len(self._messages), number
            if isinstance(part, ToolCall):
                self._calls[part.id or f"call {len(self._calls)} without an id"] = place
            elif isinstance(part, ToolCallResponse):
                self._responses[part.id or self._open_call(part.name) or f"response {place}"] = place
        if parts:
            self._messages.append(Message(role, parts))

    def _open_call(self, name: str | None) -> str | None:
        """Return the key of the first call of a tool that has no response yet."""
        for key, (message, number) in self._calls.items():
            call = self._messages[message].parts[number] if message < len(self._messages) else None
            if key not in self._responses and isinstance(call, ToolCall) and call.name == name:
                return key
        return None

    def _add_tool_run(self, run: ToolRun) -> None:
        key = run.call.id or self._open_call(run.call.name)
        if key is None or key not in self._calls:
            self._append("assistant", (run.call,))
            key = next(reversed(self._calls))
        else:
            self._change(self._calls[key], mcp_server=run.call.mcp_server, latency_ms=run.call.latency_ms)
        if key in self._responses:
            self._change(self._responses[key], failed=run.failed or None)
        elif run.response is not None or run.failed:
            response = ToolCallResponse(run.response or "", run.call.id, run.call.name, failed=run.failed)
            self._append("tool", (response,))

    def _change(self, place: _Place, **changes: Any) -> None:
        """Set those members of a part that are known."""
        message, number = place
        parts = list(self._messages[message].parts)
        known = {name: value for name, value in changes.items() if value is not None}
        parts[number] = replace(parts[number], **known)
        self._messages[message] = replace(self._messages[message], parts=tuple(parts))


def _said(role: str, part: Part) -> _Said:
    match part:
        case Text() | Reasoning():
            said = part.content.strip()
        case ToolCall():
            said = part.name
        case ToolCallResponse():
            said = part.response.strip()
        case Error():
            said = part.message
    return role, type(part), said
