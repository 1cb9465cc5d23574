"""A run's conversation, rebuilt from recorded calls whose inputs repeat the earlier messages."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from knowledgepulse_schemas.convert.common import hub


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A model call as recorded by a tracer. Its input is the whole conversation so far."""

    input: tuple[hub.Message, ...] = ()
    output: tuple[hub.Message, ...] = ()
    error: hub.Error | None = None


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool execution as recorded by a tracer. ``response`` is None if its content was not recorded."""

    call: hub.ToolCall
    response: str | None = None
    failed: bool = False


def conversation(
    events: Iterable[ModelCall | ToolRun | hub.Error], earlier: tuple[hub.Message, ...] = ()
) -> list[hub.Message]:
    """Rebuild a run's conversation from its recorded calls.

    The input of every model call repeats the conversation so far, and only its new messages are added. A call
    or a response is new if its id occurs more often than before, a text if the text does. A tool execution
    answers the first open call with its id, or else the first open call of the same tool. It provides the
    failure flag and the latency.

    Args:
        events: The recorded calls in time order.
        earlier: Messages from before the run, which the inputs repeat, too.
    """
    before = sum(bool(message.parts) for message in earlier)
    messages = _Conversation().add([ModelCall(output=earlier), *events])
    return [*(message for message in messages[:before] if message.role == "system"), *messages[before:]]


_Key = tuple[str, type[hub.Part], str]  # role, type and text of a part, or type and id
_Position = tuple[int, int]  # of a part: index of its message, index in the message


@dataclass(slots=True)
class _Call:
    """A call of the conversation, and its response if it has one."""

    id: str | None
    position: _Position
    response: _Position | None = None


class _Conversation:
    def __init__(self) -> None:
        self._messages: list[hub.Message] = []
        self._seen: Counter[_Key] = Counter()
        self._responses: set[tuple[str, str]] = set()  # id and text
        self._calls: dict[tuple[str, str], deque[_Call]] = {}  # by id and by name; answered ones are dropped
        self._last: dict[str, _Call] = {}  # by id

    def add(self, events: Iterable[ModelCall | ToolRun | hub.Error]) -> list[hub.Message]:
        for event in events:
            if isinstance(event, ToolRun):
                self._add_tool_run(event)
            elif isinstance(event, hub.Error):
                self._append("assistant", (event,))
            else:
                self._add_input(event.input)
                for message in event.output:
                    self._append(message.role, message.parts)
                if event.error is not None:
                    self._append("assistant", (event.error,))
        return self._messages

    def _add_input(self, messages: Iterable[hub.Message]) -> None:
        repeated: Counter[_Key] = Counter()
        for message in messages:
            self._append(
                message.role,
                tuple(part for part in message.parts if self._is_new(message.role, part, repeated)),
            )

    def _is_new(self, role: str, part: hub.Part, repeated: Counter[_Key]) -> bool:
        key = self._key(role, part)
        repeated[key] += 1
        if repeated[key] > self._seen[key]:
            return True
        # Agents that each number their calls from 1 share ids, but no inputs.
        return (
            isinstance(part, hub.ToolCallResponse)
            and part.id is not None
            and (part.id, part.response.strip()) not in self._responses
            and self._unanswered("id", part.id) is not None
        )

    def _key(self, role: str, part: hub.Part) -> _Key:
        """Return the key of a part; some tracers record the id of a response, but not that of its call."""
        if isinstance(part, hub.ToolCallResponse) and part.id and ("id", part.id) not in self._calls:
            return _key(role, replace(part, id=None))
        return _key(role, part)

    def _append(self, role: hub.Role, parts: tuple[hub.Part, ...]) -> None:
        for number, part in enumerate(parts):
            self._seen[self._key(role, part)] += 1
            position = len(self._messages), number
            if isinstance(part, hub.ToolCall):
                self._add_call(part, position)
            elif isinstance(part, hub.ToolCallResponse):
                self._add_response(part, position)
        if parts:
            self._messages.append(hub.Message(role, parts))

    def _add_call(self, part: hub.ToolCall, position: _Position) -> None:
        call = _Call(part.id, position)
        self._calls.setdefault(("name", part.name), deque()).append(call)
        if part.id is not None:
            self._calls.setdefault(("id", part.id), deque()).append(call)
            self._last[part.id] = call

    def _add_response(self, part: hub.ToolCallResponse, position: _Position) -> None:
        call = self._unanswered("name", part.name) if part.id is None else self._unanswered("id", part.id)
        if call is not None:
            call.response = position
        if call is not None and call.id is not None and part.id is None:
            self._seen["", hub.ToolCallResponse, call.id] += 1  # inputs repeat it with its id
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
            response = hub.ToolCallResponse(run.response or "", run.call.id, run.call.name, failed=run.failed)
            self._append("tool", (response,))

    def _call_of(self, recorded: hub.ToolCall) -> _Call | None:
        """Return the call that a tool execution answers or has already answered."""
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


def _key(role: str, part: hub.Part) -> _Key:
    match part:
        case hub.ToolCall(id=str(identity)) | hub.ToolCallResponse(id=str(identity)):
            return "", type(part), identity
        case hub.Text() | hub.Reasoning():
            text = part.content.strip()
        case hub.ToolCall():
            text = part.name
        case hub.ToolCallResponse():
            text = part.response.strip()
        case hub.Error():
            text = part.message
        case hub.ToolDefinition():
            text = part.name
    return role, type(part), text
