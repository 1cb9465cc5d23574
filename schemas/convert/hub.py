"""The common form that every source is converted to, modelled on OpenTelemetry's GenAI conventions.

A source yields a :class:`Run`, which ``convert.trace.to_trace`` converts to a trace. The message
parts are those of the conventions (text, reasoning, tool_call, tool_call_response), plus :class:`Error` for
failures that a source flags outside of a tool response.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from knowledgepulse_schemas.convert.errors import ConversionError
from knowledgepulse_schemas.convert.losses import Losses

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
"""The vendors' names of the four roles."""

_CUT_OFF = {
    "content_filter",
    "error",
    "length",
    "max_tokens",
    "model_context_window_exceeded",
    "model_length",
    "refusal",
    "safety",
}
"""The vendors' finish reasons of an answer that was refused or cut off, in lower case."""


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text of a message."""

    content: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning text of the model."""

    content: str


_MCP_NAME = re.compile(r"mcp__(.+?)__(.+)", re.DOTALL)
"""The name that many agents give to a tool of an MCP server."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call; ``arguments`` are an object, or its JSON text as written by the model.

    ``mcp__server__tool`` is the ``tool`` of the MCP server ``server``.
    """

    name: str
    arguments: Any = None
    id: str | None = None
    mcp_server: str | None = None
    latency_ms: float | None = None

    def __post_init__(self) -> None:
        """Treat an empty id as missing: some tracers write one for every call. Split an MCP tool's name."""
        object.__setattr__(self, "id", self.id or None)
        _split_mcp_name(self)


@dataclass(frozen=True, slots=True)
class ToolCallResponse:
    """A tool's response; ``failed`` only if the source flags it."""

    response: str
    id: str | None = None
    name: str | None = None
    failed: bool = False
    mcp_server: str | None = None

    def __post_init__(self) -> None:
        """Treat an empty id as missing and split an MCP tool's name, as :class:`ToolCall` does."""
        object.__setattr__(self, "id", self.id or None)
        _split_mcp_name(self)


@dataclass(frozen=True, slots=True)
class Error:
    """A failure that the source flags outside of a tool response.

    After an ``interruption``, by the user or a crash, the agent's next step is no recovery.
    """

    message: str = ""
    interruption: bool = False


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that the model could call; ``parameters`` is the JSON Schema of its arguments.

    A part of the system's messages: like their text, it tells the model what it can do. Its name is the
    model's, ``mcp__server__tool`` included.
    """

    name: str
    description: str = ""
    parameters: Any = None


def _split_mcp_name(part: ToolCall | ToolCallResponse) -> None:
    if part.mcp_server is None and (found := _MCP_NAME.fullmatch(part.name or "")):
        object.__setattr__(part, "mcp_server", found[1])
        object.__setattr__(part, "name", found[2])


Part = Text | Reasoning | ToolCall | ToolCallResponse | Error | ToolDefinition


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation, and its time if the source records one."""

    role: Role
    parts: tuple[Part, ...]
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """Success and confidence (0 to 1) of a run, as judged by a person or an evaluation."""

    success: bool | None = None
    confidence: float | None = None

    def over(self, other: Labels) -> Labels:
        """Return these labels, with unset ones taken from the other's."""
        return Labels(
            success=other.success if self.success is None else self.success,
            confidence=other.confidence if self.confidence is None else self.confidence,
        )


Ending = Literal["without_error", "failed", "submitted"]
"""How a run ended; ``submitted`` is a result that has not been verified."""


@dataclass(slots=True)
class Run:
    """One run of an agent.

    Attributes:
        framework: the source's name; becomes ``metadata.framework``.
        messages: the conversation in time order, without repeated messages.
        native_id: the source's id of the run; without one, the trace's id is derived from the content.
        parent_id: the native id of the run that started this one, such as a subagent's.
        span: OpenTelemetry's trace id and span id of its root, in hexadecimal.
        ended_at: end time.
        ending: how it ended, judged by the source's structure alone.
        agent_id: the source's id or name of the agent.
        names: names to look up in a domain map: the agent's, the service's, the project's.
        models: the models that answered, in the order of their first answers.
        labels: the source's own labels.
        losses: dropped source values.
    """

    framework: str
    messages: list[Message]
    native_id: str | None = None
    parent_id: str | None = None
    span: tuple[str, str] | None = None
    ended_at: datetime | None = None
    ending: Ending = "without_error"
    agent_id: str | None = None
    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    labels: Labels = field(default_factory=Labels)
    losses: Losses = field(default_factory=Losses)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A model call as recorded by a tracer; the input is the whole conversation so far."""

    input: tuple[Message, ...] = ()
    output: tuple[Message, ...] = ()
    error: Error | None = None


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool execution as recorded by a tracer; ``response`` is None if the content was not recorded."""

    call: ToolCall
    response: str | None = None
    failed: bool = False


def role_of(name: str, path: str) -> Role:
    """Return the role with a vendor's name.

    Args:
        name: the vendor's name of the role.
        path: the message's path in the document, for the error.

    Raises:
        ConversionError: the name is unknown.
    """
    if name not in ROLES:
        raise ConversionError(f"{path}.role: {name!r} is none of {', '.join(ROLES)}")
    return ROLES[name]


def cut_off(finish_reason: Any) -> Iterator[Error]:
    """Yield an error if an answer's finish reason says that it was refused or cut off."""
    if isinstance(finish_reason, str) and finish_reason.lower() in _CUT_OFF:
        yield Error()


def join_texts(parts: Iterable[Part]) -> str:
    """Return the visible text of message parts, one part a line."""
    return "\n".join(part.content for part in parts if isinstance(part, Text))


def conversation(
    events: Iterable[ModelCall | ToolRun | Error], earlier: tuple[Message, ...] = ()
) -> list[Message]:
    """Rebuild a run's conversation from its recorded calls.

    The input of every model call repeats the conversation so far; only its new messages are added: tool calls
    and responses by how often their id occurs, texts by how often they do. A tool execution answers the first
    open call with its id, or else of the same tool, and provides the failure flag and the latency.

    Args:
        events: in time order.
        earlier: messages from before the run, which the inputs repeat, too.
    """
    before = sum(bool(message.parts) for message in earlier)
    messages = _Conversation().add([ModelCall(output=earlier), *events])
    return [*(one for one in messages[:before] if one.role == "system"), *messages[before:]]


_Key = tuple[str, type[Part], str]  # role, type and text of a part, or type and id
_Position = tuple[int, int]  # of a part: index of its message, index in the message


@dataclass(slots=True)
class _Call:
    """A call of the conversation, and its response, if it has one."""

    id: str | None
    position: _Position
    response: _Position | None = None


class _Conversation:
    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._seen: Counter[_Key] = Counter()
        self._responses: set[tuple[str, str]] = set()  # id and text
        self._calls: dict[tuple[str, str], deque[_Call]] = {}  # by id and by name; answered ones are dropped
        self._last: dict[str, _Call] = {}  # by id

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
        repeated: Counter[_Key] = Counter()
        for message in messages:
            self._append(
                message.role,
                tuple(part for part in message.parts if self._is_new(message.role, part, repeated)),
            )

    def _is_new(self, role: str, part: Part, repeated: Counter[_Key]) -> bool:
        key = _key(role, part)
        repeated[key] += 1
        if repeated[key] > self._seen[key]:
            return True
        # Agents that each number their calls from 1 share ids, but no inputs.
        return (
            isinstance(part, ToolCallResponse)
            and part.id is not None
            and (part.id, part.response.strip()) not in self._responses
            and self._unanswered("id", part.id) is not None
        )

    def _append(self, role: Role, parts: tuple[Part, ...]) -> None:
        for number, part in enumerate(parts):
            self._seen[_key(role, part)] += 1
            position = len(self._messages), number
            if isinstance(part, ToolCall):
                self._add_call(part, position)
            elif isinstance(part, ToolCallResponse):
                self._add_response(part, position)
        if parts:
            self._messages.append(Message(role, parts))

    def _add_call(self, part: ToolCall, position: _Position) -> None:
        call = _Call(part.id, position)
        self._calls.setdefault(("name", part.name), deque()).append(call)
        if part.id is not None:
            self._calls.setdefault(("id", part.id), deque()).append(call)
            self._last[part.id] = call

    def _add_response(self, part: ToolCallResponse, position: _Position) -> None:
        call = self._unanswered("name", part.name) if part.id is None else self._unanswered("id", part.id)
        if call is not None:
            call.response = position
        if call is not None and call.id is not None and part.id is None:
            self._seen["", ToolCallResponse, call.id] += 1  # inputs repeat it with its id
        if identity := part.id or (call and call.id):
            self._responses.add((identity, part.response.strip()))

    def _unanswered(self, attribute: str, value: str | None) -> _Call | None:
        """Return the first call with an id or a name that has no response."""
        calls = self._calls.get((attribute, value or ""), deque())
        while calls and calls[0].response is not None:
            calls.popleft()
        return calls[0] if calls else None

    def _add_tool_run(self, run: ToolRun) -> None:
        call = self._call_of(run.call)
        if call is None:
            self._append("assistant", (run.call,))
            call = self._call_of(run.call)
        else:
            self._change(call.position, mcp_server=run.call.mcp_server, latency_ms=run.call.latency_ms)
        if call is not None and call.response is not None:
            self._change(call.response, failed=run.failed or None)
        elif run.response is not None or run.failed:
            response = ToolCallResponse(run.response or "", run.call.id, run.call.name, failed=run.failed)
            self._append("tool", (response,))

    def _call_of(self, recorded: ToolCall) -> _Call | None:
        """Return the call that a tool execution answers, or has answered already."""
        if recorded.id is None:
            return self._unanswered("name", recorded.name)
        return self._unanswered("id", recorded.id) or self._last.get(recorded.id)

    def _change(self, position: _Position, **changes: Any) -> None:
        """Set the attributes of a part that are not None."""
        message, number = position
        parts = list(self._messages[message].parts)
        known = {name: value for name, value in changes.items() if value is not None}
        parts[number] = replace(parts[number], **known)
        self._messages[message] = replace(self._messages[message], parts=tuple(parts))


def _key(role: str, part: Part) -> _Key:
    match part:
        case ToolCall(id=str(identity)) | ToolCallResponse(id=str(identity)):
            return "", type(part), identity
        case Text() | Reasoning():
            text = part.content.strip()
        case ToolCall():
            text = part.name
        case ToolCallResponse():
            text = part.response.strip()
        case Error():
            text = part.message
        case ToolDefinition():
            text = part.name
    return role, type(part), text
