"""Session logs that a table describes: how a line is told, whose it is, and where its parts are.

A path is the names of members with dots between them. To add a program, write a module with a ``FORMAT`` and
name it in ``input_formats``; the model is ``droid``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

from knowledgepulse_schemas.convert.common import hub
from knowledgepulse_schemas.convert.common.elements import elements
from knowledgepulse_schemas.convert.common.errors import ConversionError
from knowledgepulse_schemas.convert.common.input_format import (
    InputFormat,
    are_all,
    judged,
    of_lines,
)
from knowledgepulse_schemas.convert.common.losses import Losses
from knowledgepulse_schemas.convert.common.reading import as_text, count_others, each, unwrap
from knowledgepulse_schemas.convert.common.session_log import ANOTHER_FORM, Reader
from knowledgepulse_schemas.convert.messages.any_vendor import messages_of
from knowledgepulse_schemas.convert.messages.blocks import Parts, parts_of
from knowledgepulse_schemas.convert.messages.definitions import definitions_of

ROLES: dict[str, hub.Role] = {
    **hub.ROLES,
    "gpt": "assistant",
    "response": "assistant",
    "request": "user",
    "tool_result": "tool",
    "observation": "tool",
    "function_call": "assistant",  # the text is the call
}
"""Names of roles, also those of Pydantic AI's messages and of ShareGPT's."""
_ENDED = {"completion", "success", "completed", "end_turn", "stop"}
_INTERRUPTED = {"abort", "aborted", "cancelled", "MessageAbortedError"}
_FAILED = {"error", "failed", "turn.failed"}
_VERDICTS = {"satisfied": True, "needs_revision": False, "max_iterations_reached": False, "failed": False}
_SECONDS = 1e11
"""Numbers above are times in milliseconds."""


@dataclass(frozen=True)
class Line:
    """A kind of line.

    Attributes:
        where: what it has, by paths: a value, a set of values, a tuple of beginnings, a type, ``...`` for any
            value, or None for no member. Of ``type`` alone, what that is.
        role: the role of its message, or the path of the role after ``=``; None without a message.
        parts: the paths of the message's parts, separated by spaces; with ``:`` and a type if it holds no
            block, but texts of this type; with ``=`` and a type if the object there is a block, or the line
            itself without a path; ``=`` alone for a line that is a message of any vendor.
        sets: paths of what is known of the run: ``id``, ``cwd``, ``model``, ``ended`` for how it ended, which
            may also be true or false, and ``judged`` for the verdict of a grader.
        tools: the path of the definitions of tools.
        error: the path of the message of a failure.
        stop: the paths of the reason why an answer or the run ended, separated by spaces.
        once: whether it may repeat the last message, a call with its id, or the agent's last or whole text.
        again: whether it may tell a call again that is not answered yet, whose arguments it then has.
        piece: whether its text is a piece of an answer or of a thought.
        read: what reads its parts, if they are not blocks of any vendor.
        of: whose line it is, if not the run's.
        beside: whether it is known to hold no part of the conversation, or nothing that other lines do not.
        timed: whether its time counts although it is beside the conversation.
    """

    where: Any
    role: str | None = None
    parts: str = ""
    sets: dict[str, str | bool] = field(default_factory=dict)
    tools: str = ""
    error: str = ""
    stop: str = ""
    once: bool = False
    again: bool = False
    piece: bool = False
    read: Callable[[Any, str, Losses, str], Parts] = parts_of
    of: str = ""
    beside: bool = False
    timed: bool = False

    def __post_init__(self) -> None:
        """Complete the path of the member ``type``."""
        object.__setattr__(
            self, "where", self.where if isinstance(self.where, dict) else {"type": self.where}
        )

    @cached_property
    def paths(self) -> list[tuple[str, str, str]]:
        """The paths of its parts, each with ``:`` or ``=`` and a type, if it has one."""
        found = (re.split("([:=]|$)", part, maxsplit=1) for part in self.parts.split())
        return [(path, mark, kind) for path, mark, kind in found]

    @cached_property
    def beside_parts(self) -> _Paths:
        """The paths of all that is read besides its parts."""
        told = (path for path, wanted in self.where.items() if wanted is not dict)
        return _Paths([*told, self.tools, self.error, *self.stop.split(), *self.sets.values()])

    @cached_property
    def all_paths(self) -> _Paths:
        """The paths of all that is read."""
        role = (self.role or "").removeprefix("=")
        return _Paths([*self.beside_parts.read, role, *(path for path, *_ in self.paths)])


class _Paths:
    """Paths of what is read of an object; what is at none of them is its rest."""

    def __init__(self, paths: Iterable[Any]) -> None:
        self.read = {path for path in paths if isinstance(path, str)}
        self._above = {
            path[:end] for path in self.read for end, character in enumerate(path) if character == "."
        }

    def rest_of(self, value: dict[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
        """Yield what an object has at none of the paths, each with its path."""
        for name, member in value.items():
            path = f"{within}{name}"
            if path in self.read:
                continue
            if path in self._above and isinstance(member, dict):
                yield from self.rest_of(member, f"{path}.")
            else:
                yield path, member


@dataclass(frozen=True)
class Table:
    """A program's sessions.

    Attributes:
        name: the format's name on the command line.
        text: its docstring.
        members: names of members that are typical of the format, separated by spaces.
        first: what one of the format's lines has, as in ``Line.where``; one of several alternatives.
        lines: the kinds of lines, of which the first that fits counts.
        wrapper: the pattern that opens the element around the user's own text, if there is one.
        hidden: what stands at the end of a text for one that was left out.
        at: the path of a line's time; of several, the last one that it has.
        id: the path of the session's id, if each line may have it.
        known: paths of members that say nothing of the run, separated by spaces.
        ended: False for a stream that an event ends; True where a call may be last.
        within: the members of a record that may hold the lines, separated by spaces; empty for a list alone,
            None for the lines of a file.
        coding_agent: whether the program is a coding agent.
    """

    name: str
    text: str | None
    members: str
    first: tuple[dict[str, Any], ...]
    lines: tuple[Line, ...]
    wrapper: re.Pattern[str] | None = None
    hidden: str = ""
    at: str = "timestamp"
    id: str = ""
    known: str = ""
    ended: bool | None = None
    within: str | None = None
    coding_agent: bool = False


class _Reader(Reader):
    def __init__(self, table: Table) -> None:
        super().__init__(table.name)
        self._table = table
        self._pieces: list[hub.Part] = []  # of an answer or of a thought
        self._answered_at: datetime | None = None
        self._open: set[str] = set()  # ids of calls that lines may tell again
        self._last_said = ""  # the agent's last text, without white space
        self._all_said = sha256()  # all of them
        self._known = {*table.known.split(), *table.at.split(), table.id}
        self.has_ended = table.ended

    def add(self, value: dict[str, Any]) -> None:
        """Add a line."""
        kinds = (_kind(value), _at(value, "event.type"), _at(value, "item.type"))
        kind = ".".join(str(part) for part in kinds if part) or "lines without a type"
        if self._table.within is not None:
            kind = "[]"
        self.transcript.began(_at(value, self._table.id))
        line = next((known for known in self._table.lines if fits(value, known.where)), None)
        for name, path in line.sets.items() if line else ():
            self._set(name, _at(value, path) if isinstance(path, str) else path)
        if line is None:
            self.losses.add_unknown(kind, value, {"content": value})
        elif line.beside:
            if line.timed:
                self._reached_at(value)
            self.losses.add(f"{line.of} {kind}".lstrip(), value)
        else:
            self._add_line(line, value, kind)

    def finish(self) -> hub.Run:
        """Return the run."""
        self._end_pieces()
        return super().finish()

    def _add_line(self, line: Line, value: dict[str, Any], kind: str) -> None:
        at = self._reached_at(value)
        if line.tools:
            defined = definitions_of(_at(value, line.tools) or [], f"{kind}.{line.tools}", self.losses)
            self.transcript.add("system", [part for message in defined for part in message.parts], at)
        if line.piece:
            for _, part in self._parts(line, value, "assistant", kind):
                self._add_piece(part, at)
        else:
            self._end_pieces()
        if line.role is not None and not line.piece:
            self._add_message(line, value, kind, at)
        for name, rest in () if line.parts.startswith("=") else line.all_paths.rest_of(value):
            if name not in self._known:
                self.losses.add(f"{kind}.{name}", rest)
        if line.error or line.stop:
            for error in _problem(line, value):
                message = "" if self._is_said(error.message) else error.message
                self.transcript.add("assistant", [replace(error, message=message)], at)

    def _add_piece(self, piece: hub.Part, at: datetime | None) -> None:
        if self._pieces and type(self._pieces[-1]) is not type(piece):
            self._end_pieces()
        self._pieces.append(piece)
        self._answered_at = at

    def _end_pieces(self) -> None:
        """Add what came in pieces."""
        texts = [piece.content for piece in self._pieces if isinstance(piece, hub.Text | hub.Reasoning)]
        if texts:
            kind = hub.Text if isinstance(self._pieces[0], hub.Text) else hub.Reasoning
            self._tell("assistant", (kind("".join(texts)),), self._answered_at)
        self._pieces.clear()

    def _tell(self, role: hub.Role, parts: tuple[hub.Part, ...], at: datetime | None) -> None:
        self.transcript.add(role, parts, at)
        if role == "assistant":
            for text in filter(None, (_squeezed(hub.join_texts([part])) for part in parts)):
                self._last_said = text
                self._all_said.update(text.encode(errors="surrogatepass"))

    def _add_message(self, line: Line, value: dict[str, Any], kind: str, at: datetime | None) -> None:
        _, mark, path = (line.role or "").rpartition("=")
        name = str(_at(value, path)) if mark else path
        role = ROLES.get(name, "system")
        if name not in ROLES:
            self.losses.add_unknown(f"{kind}.{path} {name}", "-", {"content": value})
        parts = [(own or role, part) for own, part in self._parts(line, value, role, kind)]
        parts = [
            (own, self._own(own, part)) for own, part in parts if not (line.again and self._is_again(part))
        ]
        for group in dict.fromkeys(own for own, _ in parts):
            message = hub.Message(group, tuple(part for own, part in parts if own == group))
            if not (line.once and self._is_repeated(message)):
                self._tell(group, message.parts, at)
        if role == "user" and self.has_ended and self._table.ended is None:
            self.has_ended = None

    def _parts(self, line: Line, value: dict[str, Any], role: hub.Role, kind: str) -> Parts:
        """Yield the parts of a line's message, each with the role that it tells."""
        if line.parts == "=":
            for message in messages_of([value], role, kind, self.losses):
                yield from ((message.role, part) for part in message.parts)
            return
        for path, mark, block_type in line.paths:
            content = _at(value, path) if path else value
            if mark != "=":
                yield from line.read(_typed(content, block_type), kind, self.losses, "")
            elif isinstance(content, dict):
                within = f"{path}." if path else ""
                rest = line.beside_parts.rest_of(content, within)
                block = {
                    name.removeprefix(within): member for name, member in rest if name not in self._known
                }
                yield from line.read(block, f"{kind}.{path}".rstrip("."), self.losses, block_type)
            else:
                self.losses.add_unknown(f"{kind}.{path}", content, {"content": content})

    def _is_repeated(self, message: hub.Message) -> bool:
        """Check for the last message, a call with the id of an earlier one, or a text of the agent."""
        match message.parts:
            case (hub.Text(content=text),) if message.role == "assistant":
                return self._is_said(text)
            case (hub.ToolCall(id=str(call_id)) as part,) if call := self.transcript.call_of(call_id):
                self.losses.add(ANOTHER_FORM, part.arguments if part.arguments != call.arguments else None)
                return True
        last = self.transcript.run.messages[-1:]
        return any((earlier.role, earlier.parts) == (message.role, message.parts) for earlier in last)

    def _is_said(self, text: str) -> bool:
        """Check for the agent's last text, or for all of them."""
        squeezed = _squeezed(text)
        digest = sha256(squeezed.encode(errors="surrogatepass")).digest()
        return squeezed == self._last_said or digest == self._all_said.digest()

    def _is_again(self, part: hub.Part) -> bool:
        """Tell an open call again; return False for any other part."""
        match part:
            case hub.ToolCall(id=str(call_id), arguments=arguments):
                is_open = call_id in self._open
                self._open.add(call_id)
                return is_open and self.transcript.tell_again(call_id, arguments)
            case hub.ToolCallResponse(id=str(call_id)):
                self._open.discard(call_id)
        return False

    def _own(self, role: hub.Role, part: hub.Part) -> hub.Part:
        """Return the user's own text of a part, and a tool's text as its response."""
        if isinstance(part, hub.Text) and role == "tool":
            return hub.ToolCallResponse(part.content)
        if isinstance(part, hub.Text) and role == "assistant" and self._table.hidden:
            return hub.Text(part.content.removesuffix(self._table.hidden).rstrip())
        if self._table.wrapper is None or not isinstance(part, hub.Text) or role != "user":
            return part
        own = [
            element.content.strip()
            for element in elements(part.content, self._table.wrapper)
            if element.closed
        ]
        return hub.Text("\n".join(own)) if own else part

    def _set(self, name: str, value: Any) -> None:
        if name == "ended":
            is_known = isinstance(value, str | bool)
            self.has_ended = value is True or value in _ENDED if is_known else None
        elif name == "cwd":
            self.transcript.began(directory=value)
        elif name == "model":
            self.transcript.named(value)
        elif name == "judged":
            self.transcript.run.outcome = hub.RunOutcome(_VERDICTS.get(as_text(value)))
        else:
            self.transcript.began(value)

    def _reached_at(self, value: dict[str, Any]) -> datetime | None:
        """Note the times of a line, and return the last."""
        times = [self._reached(_at(value, path)) for path in self._table.at.split()]
        return next((time for time in reversed(times) if time is not None), None)

    def _reached(self, time: Any) -> datetime | None:
        if isinstance(time, int | float) and time > _SECONDS:
            return self.transcript.reached_milliseconds(time)
        return self.transcript.reached(time)


def _problem(line: Line, value: dict[str, Any]) -> Iterator[hub.Error]:
    """Yield the failure or the interruption that a line tells."""
    message = _at(value, line.error or "-")
    reasons = [as_text(_at(value, path)) for path in (line.stop or "status").split()]
    if message is None and not line.stop:
        return
    if not _INTERRUPTED.isdisjoint(reasons):
        yield hub.Error(as_text(message), interruption=True)
    elif message is not None or not _FAILED.isdisjoint(reasons):
        yield hub.Error(as_text(message))
    else:
        for reason in reasons:
            yield from hub.cut_off(reason)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _kind(value: dict[str, Any]) -> Any:
    return value.get("type", value.get("role"))


def _typed(value: Any, kind: str) -> Any:
    """Return a text, or objects with texts, as blocks of a type; anything unchanged without one."""
    if not kind or value is None:
        return value
    if isinstance(value, list):
        return [_typed(item, kind) for item in value]
    return {**value, "type": kind} if isinstance(value, dict) else {"type": kind, "text": as_text(value)}


def _at(value: Any, path: str) -> Any:
    if "." not in path:
        return value.get(path) if isinstance(value, dict) else None
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _is_first(table: Table, value: Any) -> bool:
    return any(fits(value, first) for first in table.first)


def fits(value: Any, where: dict[str, Any]) -> bool:
    """Return whether a value has what ``Line.where`` says."""
    for path, wanted in where.items():
        found = _at(value, path)
        if isinstance(wanted, type):
            is_found = isinstance(found, wanted)
        elif isinstance(wanted, set | frozenset):
            is_found = (found is None or isinstance(found, str)) and found in wanted
        elif wanted is ...:
            is_found = path in value
        elif isinstance(wanted, tuple):
            is_found = isinstance(found, str) and found.startswith(wanted)
        else:
            is_found = found == wanted
        if not is_found:
            return False
    return True


def document_format_of(table: Table) -> InputFormat:
    """Return the format of messages in a list or in a record."""

    def within(document: Any) -> str:
        names = (table.within or "").split() if isinstance(document, dict) else ()
        return next((name for name in names if name in document), "")

    def recognises(document: Any) -> bool:
        values = unwrap(document, within(document))
        return isinstance(values, list) and are_all(partial(_is_first, table), values)

    def run_of(document: Any, path: str) -> hub.Run:
        if not recognises(document):
            raise ConversionError(f"{path or 'the document'}: no messages of {table.name}")
        reader = _Reader(table)
        if isinstance(document, dict):
            count_others(document, {within(document), "id"}, "", reader.losses)
            reader.transcript.began(document.get("id"))
        for value in unwrap(document, within(document)):
            reader.add(value)
        return reader.finish()

    def runs(document: Any) -> Iterator[hub.Run | ConversionError]:
        if recognises(document) or not isinstance(document, list):
            yield judged(run_of, document, "")
        else:
            yield from each(document, lambda record, path: judged(run_of, record, path))

    return InputFormat(
        table.name,
        table.text,
        table.members,
        lambda document: recognises(document) or are_all(recognises, document),
        runs,
        coding_agent=table.coding_agent,
    )


def messages_format_of(
    name: str,
    text: str | None,
    members: str,
    message: dict[str, Any],
    role: str,
    parts: str,
    at: str = "-",
    **options: Any,
) -> InputFormat:
    """Return the format of messages that are all alike; ``options`` are those of a table."""
    line = Line(message, role, parts, stop="finish_reason")
    return document_format_of(Table(name, text, members, (message,), (line,), at=at, ended=True, **options))


def format_of(table: Table) -> InputFormat:
    """Return the format of a program's sessions."""
    return of_lines(
        table.name,
        table.text,
        table.members,
        partial(_is_first, table),
        lambda name: _Reader(table),
        coding_agent=table.coding_agent,
    )


def lines_format_of(table: Table) -> InputFormat:
    """Return a format that only lines have: a list of them is another format."""
    own = format_of(table)
    return replace(own, recognises=lambda document: isinstance(document, dict) and own.recognises(document))
