"""A run's conversation, rebuilt from recorded calls whose inputs repeat the earlier messages."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import parse_json


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A model call as recorded by a tracer. Its input is the whole conversation so far.

    ``whole``: whether the tracer recorded no messages, only what the call was given and what it returned.
    """

    input: tuple[ir.Message, ...] = ()
    output: tuple[ir.Message, ...] = ()
    error: ir.Error | None = None
    whole: bool = False

    def with_inner(self, inner: ModelCall | ToolRun) -> ModelCall:
        """Return the call with the failure that another tracer knows, whose span is within this one."""
        if isinstance(inner, ToolRun) or not inner.output or self.error is not None:
            return self
        errors = (part for part in ir.parts_in(inner.output) if isinstance(part, ir.Error))
        error = inner.error or next(errors, None)
        return replace(self, error=error)


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool execution as recorded by a tracer.

    ``response`` is the result, or else the message of the failure, in the tracer's words: the model may have
    seen others. It is None if neither was recorded. ``is_answer`` is as that of a `ir.ToolCallResponse`.
    """

    call: ir.ToolCall
    response: str | None = None
    failed: bool = False
    is_answer: bool = False

    def with_inner(self, inner: ModelCall | ToolRun) -> ToolRun:
        """Return the execution with what another tracer, whose span is within this one, knows of it."""
        if isinstance(inner, ModelCall) or self.call.name != inner.call.name:
            return self
        call = replace(self.call, id=self.call.id or inner.call.id)
        response = inner.response if self.response is None else self.response
        return ToolRun(call, response, self.failed or inner.failed, self.is_answer or inner.is_answer)


def conversation(
    events: Iterable[ModelCall | ToolRun | ir.Error],
    earlier: tuple[ir.Message, ...] = (),
    losses: Losses | None = None,
) -> list[ir.Message]:
    """Rebuild a run's conversation from its recorded calls.

    The input of every model call repeats the conversation so far, and only its new messages are added. A text
    is new if it occurs more often than before. A call is known by its id, else by its name and arguments, in
    order; a response is that of the call with its id, else of the first open call before it. A tool execution
    is a call of its own only if no message has it. It provides the failure flag and the latency.

    Args:
        events: The recorded calls in order.
        earlier: Messages from before the run, which the inputs repeat, too.
        losses: The report that gets the texts of tracers in whose place the model saw others.
    """
    before = sum(bool(message.parts) for message in earlier)
    messages = _Conversation(Losses() if losses is None else losses).add([ModelCall(output=earlier), *events])
    return [*(message for message in messages[:before] if message.role == "system"), *messages[before:]]


_HANDOFF = re.compile(r"\A(?:transfer|handoff)[ _]to[ _]")
_Key = tuple[str, ...]  # what texts or calls have in common
_Position = tuple[list[ir.Part], int]  # of a part: those of its message, and the index among them


@dataclass(slots=True, eq=False)
class _Call:
    """A call of the conversation.

    Attributes:
        ids: its ids in messages and spans.
        was_run: whether a span of its execution was found.
        response: the position of its response.
        told: whether the response is in the words of the execution's span, as no message has had it.
    """

    part: ir.ToolCall
    position: _Position
    ids: set[str] = field(default_factory=set)
    was_run: bool = False
    response: _Position | None = None
    told: bool = False


@dataclass(slots=True)
class _Reading:
    """How far a call's input or output has been read.

    Attributes:
        input: the messages of an input; None for an output, which repeats nothing.
        texts: the texts so far.
        calls: the calls so far.
        open: those of them that have no response so far.
        answered: those of them that have one, by their id.
        next: the index of the first known call that may follow, by what the calls have in common.
        thoughts: the agent's new messages since the last call, which an output did not tell.
    """

    input: tuple[ir.Message, ...] | None = None
    texts: Counter[_Key] = field(default_factory=Counter)
    calls: set[_Call] = field(default_factory=set)
    open: list[_Call] = field(default_factory=list)
    answered: set[_Call] = field(default_factory=set)
    next: dict[_Key, int] = field(default_factory=dict)
    thoughts: list[list[ir.Part]] = field(default_factory=list)
    _ids: Counter[_Key] = field(default_factory=Counter)

    def repeats(self, key: _Key) -> int:
        """Return how often an input has the id of a call."""
        if not self._ids:
            calls = (part for part in ir.parts_in(self.input or ()) if isinstance(part, ir.ToolCall))
            self._ids.update(key for call in calls if call.id for key in _ids(call))
        return self._ids[key]


class _Calls:
    """The calls of a conversation, by what those have in common that tell them again."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, list[_Call]] = {}

    def add(self, call: _Call) -> None:
        """Add a call, with its id if it has one."""
        for key in (("all",), ("name", _tool(call.part.name)), like(call.part)):
            self._by_key.setdefault(key, []).append(call)
        self.identify(call, call.part.id)

    def identify(self, call: _Call, identity: str | None) -> None:
        """Add an id of a call; its first one becomes that of the call and of its response."""
        if identity is None or identity in call.ids:
            return
        if call.part.id is None:
            call.part = _changed(call.position, id=identity)
        call.ids.add(identity)
        for key in _ids(replace(call.part, id=identity)):
            self._by_key.setdefault(key, []).append(call)

    def left(self, part: ir.ToolCall, reading: _Reading) -> _Call | None:
        """Return the call that an output repeats although its input has the response.

        OpenInference writes the calls of the Agent Development Kit over each other, in one span.
        """
        known = self._by_key.get(("id", part.id), []) if part.id else []
        return next((c for c in known if c in reading.answered and like(c.part) == like(part)), None)

    def repeated(self, part: ir.ToolCall, reading: _Reading) -> _Call | None:
        """Return the known call that an input repeats."""
        keys = _ids(part) if part.id is not None else ()
        for key in keys:
            if (call := self._next(key, reading)) is not None:
                return call
        named, key = self._by_key.get(("name", _tool(part.name)), []), ("following", part.name)
        following = reading.next.get(key, 0)  # nearly always the one, and found without its JSON
        if not keys and following < len(named) and named[following].part.arguments == part.arguments:
            reading.next[key] = following + 1
            if named[following] not in reading.calls:
                return named[following]
        return self._next(like(part), reading)

    def _next(self, key: _Key, reading: _Reading) -> _Call | None:
        """Return the first known call with something in common that an input has not repeated so far.

        Of calls that share an id, as when agents each number theirs from 1, it repeats the last ones.
        """
        calls = self._by_key.get(key, [])
        first = reading.next.get(key, 0)
        if not first and len(calls) > 1:
            first = max(0, len(calls) - (reading.repeats(key) or len(calls)))
        for index in range(first, len(calls)):
            reading.next[key] = index + 1
            if calls[index] not in reading.calls:
                return calls[index]
        return None

    def answered(self, part: ir.ToolCallResponse, reading: _Reading) -> _Call | None:
        """Return the call that a response answers: by its id, else by the name, else the first open one."""
        known = self._by_key.get(("id", part.id), []) if part.id else []
        call = next((call for call in reading.open if part.id in call.ids), None)
        if call is not None:
            reading.answered.add(call)
        elif not known:
            named = (call for call in reading.open if call.part.name == part.name)
            call = next(named, reading.open[0] if reading.open else None)
        if call is not None:
            reading.open.remove(call)
            return call
        if not part.id and not part.name:
            return self._retold(part, reading)
        known = known or self._by_key.get(("name", _tool(part.name or "")), [])
        unanswered = (call for call in known if call.response is None)
        return next(unanswered, known[-1] if part.id and known else None)

    def _retold(self, part: ir.ToolCallResponse, reading: _Reading) -> _Call | None:
        """Return the call whose response is in that of an input which tells the calls in texts alone.

        If it has those of several calls, one behind the other, each keeps its own.
        """
        rest = part.response
        found: list[_Call] = []
        for call in self._by_key.get(("all",), []):
            told = _part(call.response).response if call.response is not None else ""
            follows = rest.lstrip().startswith(told) if found else told in rest
            if told and follows and call not in reading.calls:
                rest = rest.partition(told)[2]
                found.append(call)
        reading.calls.update(found)
        for call in found if found[1:] else ():
            call.told = False
        return next(iter(found), None)

    def executed(self, recorded: ir.ToolCall) -> _Call | None:
        """Return the call of a tool execution: by its id, else by name and arguments, else by name."""
        known = self._by_key.get(("id", recorded.id), []) if recorded.id else []
        alike = self._by_key.get(like(recorded), []) if not known else []
        named = self._by_key.get(("name", _tool(recorded.name)), []) if not known else []
        waiting = (call for call in (*known, *alike, *named) if not call.was_run and call.response is None)
        answered = (call for call in (*known, *alike) if not call.was_run)
        return next(waiting, None) or next(answered, None) or next(reversed(known), None)


class _Conversation:
    def __init__(self, losses: Losses) -> None:
        self._messages: list[tuple[ir.Role, list[ir.Part]]] = []
        self._seen: Counter[_Key] = Counter()  # texts
        self._calls = _Calls()
        self._runs: dict[int, _Call] = {}  # by the identity of an execution's call, which may respond later
        self._losses = losses

    def add(self, events: Iterable[ModelCall | ToolRun | ir.Error]) -> list[ir.Message]:
        for event in events:
            if isinstance(event, ToolRun):
                self._add_tool_run(event)
            elif isinstance(event, ir.Error):
                self._append("assistant", (event,), _Reading())
            else:
                self._add_model_call(event)
        return [ir.Message(role, tuple(parts)) for role, parts in self._messages]

    def _add_model_call(self, event: ModelCall) -> None:
        given = _Reading(event.input)
        returned = _Reading(answered=given.answered)
        for message in event.input:
            self._append(message.role, message.parts, given)
        for message in event.output:
            self._append(message.role, message.parts, returned)
        if event.error is not None:
            self._append("assistant", (event.error,), returned)

    def _append(self, role: ir.Role, parts: Iterable[ir.Part], reading: _Reading) -> None:
        """Add a message with those of the parts that are no repeats."""
        self._messages.append((role, []))
        for part in parts:
            if isinstance(part, ir.ToolCall):
                self._add_call(part, reading)
            elif isinstance(part, ir.ToolCallResponse) and (call := self._calls.answered(part, reading)):
                self._add_response(call, part)
            else:
                self._add_text(role, part, reading)
        parts = self._messages[-1][1]
        if not parts:
            self._messages.pop()
        elif role == "assistant" and reading.input is not None:
            reading.thoughts.append(parts)

    def _put(self, part: ir.Part) -> _Position:
        parts = self._messages[-1][1]
        parts.append(part)
        return parts, len(parts) - 1

    def _add_text(self, role: ir.Role, part: ir.Part, reading: _Reading) -> None:
        key = _text(role, part)
        reading.texts[key] += 1
        if reading.input is None or reading.texts[key] > self._seen[key]:
            self._seen[key] += 1
            self._put(part)

    def _add_call(self, part: ir.ToolCall, reading: _Reading) -> None:
        call = (self._calls.left if reading.input is None else self._calls.repeated)(part, reading)
        if call is None:
            call = self._new_call(part)
        else:
            self._calls.identify(call, part.id)
            self._count_arguments(part, call.part)
            if reading.input is not None:
                self._move(reading, call.position[0])
        reading.thoughts = []
        reading.calls.add(call)
        reading.open.append(call)

    def _move(self, reading: _Reading, before: list[ir.Part]) -> None:
        """Move what the agent said before a repeated call, as inputs may hold more than outputs."""
        for thought in reading.thoughts:
            message = self._messages.pop(self._index(thought))
            self._messages.insert(self._index(before), message)

    def _index(self, parts: list[ir.Part]) -> int:
        return next(index for index, (_, own) in enumerate(self._messages) if own is parts)

    def _new_call(self, part: ir.ToolCall) -> _Call:
        call = _Call(part, self._put(part))
        self._calls.add(call)
        return call

    def _add_response(self, call: _Call, part: ir.ToolCallResponse) -> None:
        if call.response is None:
            self._calls.identify(call, part.id)
            self._respond(call, part)
            return
        kept = _changed(call.response, failed=part.failed or None)
        if not call.told or not part.response:
            self._count_other(part.response, kept.response)
        else:
            self._count_other(kept.response, part.response)
            _changed(call.response, response=part.response)
            call.told = False

    def _respond(self, call: _Call, response: ir.ToolCallResponse) -> None:
        call.response = self._put(replace(response, id=call.part.id))

    def _count_other(self, told: str, seen: str) -> None:
        """Count a response that is told otherwise than the model saw it at first."""
        if told not in seen and parse_json(told) != parse_json(seen):
            self._losses.add("responses in other words than the model's", told)

    def _count_arguments(self, told: ir.ToolCall, call: ir.ToolCall) -> None:
        """Count the arguments of a call that are told otherwise than at first."""
        if told.arguments != call.arguments and like(told) != like(call):
            self._losses.add("arguments in other words than the model's", told.arguments)

    def _add_tool_run(self, run: ToolRun) -> None:
        call = self._runs.get(id(run.call)) or self._calls.executed(run.call)
        if call is None:
            self._messages.append(("assistant", []))
            call = self._new_call(run.call)
        else:
            self._count_arguments(run.call, call.part)
        call.was_run = True
        self._runs[id(run.call)] = call
        self._calls.identify(call, run.call.id)
        call.part = _changed(call.position, mcp_server=run.call.mcp_server, latency_ms=run.call.latency_ms)
        if call.response is not None:
            response = _changed(call.response, failed=run.failed or None, is_answer=run.is_answer or None)
            self._count_other(run.response or "", response.response)
        elif run.response is not None or run.failed:
            self._messages.append(("tool", []))
            response = ir.ToolCallResponse(
                run.response or "", None, call.part.name, run.failed, is_answer=run.is_answer
            )
            self._respond(call, response)
            call.told = True


def _part(position: _Position) -> Any:
    parts, number = position
    return parts[number]


def _changed(position: _Position, **changes: Any) -> Any:
    """Set the attributes of a part that are not None, and return it."""
    parts, number = position
    if known := {name: value for name, value in changes.items() if value is not None}:
        parts[number] = replace(parts[number], **known)
    return parts[number]


def hands_over(call: ir.ToolCall) -> bool:
    """Check for a call that gives the conversation to another agent."""
    return _HANDOFF.match(call.name) is not None


@lru_cache
def _tool(name: str) -> str:
    """Return a tool's name; the one that hands over to another agent has several."""
    return re.sub(r"\W", "_", _HANDOFF.sub("to_", name)).lower()


def _ids(call: ir.ToolCall) -> tuple[_Key, _Key]:
    """Return what calls with an id have in common, at first calls of the same tool."""
    return ("id", str(call.id), call.name), ("id", str(call.id))


def like(call: ir.ToolCall) -> tuple[str, ...]:
    """Return what calls of a tool with the same arguments have in common; tracers may write only a value."""
    arguments = parse_json(call.arguments)
    if isinstance(arguments, dict) and len(arguments) == 1:
        (arguments,) = arguments.values()
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or None, sort_keys=True)
    return "like", call.name, text


def _text(role: str, part: ir.Part) -> _Key:
    text = part.name if isinstance(part, ir.ToolDefinition | ir.ToolCall) else ir.text_of(part)
    return role, type(part).__name__, text.strip()
