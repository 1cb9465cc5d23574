"""Session logs of coding agents: files whose lines are read one by one.

An unknown line is a loss and never fails its session. Lines are not kept, so a file of any size takes the
memory of its largest line and of its traces.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from knowledgepulse_convert.common import boilerplate, ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.packed import PackedMessages
from knowledgepulse_convert.common.reading import (
    count_others,
    parse_time,
    text_or_none,
)

TAKEN_BACK = "messages that were taken back"
"""The path of messages that a session had before the user edited it."""
ANOTHER_FORM = "arguments of another form at a call's start"
"""The path of arguments that differ from those that a call's end, or the request for it, tells."""

_NO_OBJECT = "lines that are no JSON object"
_CUT_LINE = "half a line at the end"
"""The path of a last line that was not written to its end."""
_ANOTHER_SESSION = "lines of another session"
_HOLDERS = ("loglines", "events")
"""Members of objects that hold the lines of a session, as Claude Code's on the web do."""

_RECENT = 100
"""Calls and responses that may be told again: programs do so at once."""

_Value = TypeVar("_Value")


def lines_of(document: Any, losses: Losses) -> Iterator[dict[str, Any]]:
    """Yield the objects of a session: a list or an iterator of lines, or a single object.

    A line that is not JSON comes as its text. If the last one is the beginning of an object, the session was
    still being written, and has not ended.
    """
    other = None
    values = document if isinstance(document, Iterator) else [document]
    for line in (line for value in values for line in lines_in(value, losses)):
        losses.add(_NO_OBJECT, other)
        other = None if isinstance(line, dict) else line
        if other is None and line is not None:
            yield line
    if isinstance(other, str) and other.lstrip().startswith("{"):
        losses.add_unknown(_CUT_LINE, other, {"content": other})
    else:
        losses.add(_NO_OBJECT, other)


def lines_in(value: Any, losses: Losses | None = None) -> list[Any]:
    """Return the lines of a list, which an object may hold, or a single line; count the object's others."""
    if isinstance(value, dict) and "type" not in value:
        for name in _HOLDERS:
            if isinstance(held := value.get(name), list):
                count_others(value, {name}, "", Losses() if losses is None else losses)
                return held
    return value if isinstance(value, list) else [value]


class Transcript:
    """A run, collected line by line."""

    def __init__(self) -> None:
        self.run = ir.Run(PackedMessages())  # complete after `finish`
        self._calls: dict[str, int] = {}  # position of the message, by id of the call
        self._early: dict[str, int] = {}  # position of a response whose call is still to come
        self._open: dict[str, ir.ToolCall] = {}  # the last calls without a response, by id
        self._answers: dict[str, int] = {}  # hashes of the last responses, by id of the call
        self._failed: set[str] = set()  # ids of calls

    @property
    def losses(self) -> Losses:
        """The run's losses."""
        return self.run.losses

    def add(self, role: ir.Role, parts: Iterable[ir.Part], at: datetime | None = None) -> int | None:
        """Add a message, and return its position; None if it tells nothing that earlier ones do not."""
        position = len(self.run.messages)
        early: list[ir.Part] = []
        told: list[ir.Part] = []
        for part in parts:
            if isinstance(part, ir.ToolCall) and part.id is not None:
                if self._open.get(part.id) == part:  # programs tell it again when it runs
                    continue
                early += self._add_call(part.id, part, position)
            elif isinstance(part, ir.ToolCallResponse) and part.id is not None:
                if self._is_answer_again(part.id, part.response):
                    continue
                if part.id not in self._calls:
                    self._early[part.id] = position
            told.append(part)
        if not told:
            return None
        self.run.messages.append(ir.Message(role, tuple(told), at))
        self.add("tool", early, at)
        return position

    def _add_call(self, call_id: str, call: ir.ToolCall, position: int) -> Iterator[ir.Part]:
        """Note a call and its position, and yield its response if that was written before it."""
        if self._early.get(call_id, position) < position:
            yield self._taken(call_id)
        self._calls[call_id] = position
        self._answers.pop(call_id, None)
        _remember(self._open, call_id, call)

    def _is_answer_again(self, call_id: str, response: str) -> bool:
        """Check for the last response to a call."""
        answer = hash(response)
        is_again = self._answers.get(call_id) == answer
        self._open.pop(call_id, None)
        _remember(self._answers, call_id, answer)
        return is_again

    def _taken(self, call_id: str) -> ir.Part:
        """Take out a response that was written before its call."""
        position = self._early.pop(call_id)
        parts = self.run.messages[position].parts
        taken = next(part for part in parts if isinstance(part, ir.ToolCallResponse) and part.id == call_id)
        self.change(position, parts=tuple(part for part in parts if part is not taken))
        return taken

    def reached(self, time: Any) -> datetime | None:
        """Note the time of a line and return it; return None if the value is not a time."""
        at = parse_time(time)
        if at is not None and (self.run.ended_at is None or at > self.run.ended_at):
            self.run.ended_at = at
        return at

    def reached_milliseconds(self, time: Any) -> datetime | None:
        """Note a time in milliseconds since 1970, as ``reached`` does; None if the value is no number."""
        if not isinstance(time, int | float) or isinstance(time, bool):
            return None
        try:
            return self.reached(time / 1000)
        except OverflowError:
            return None

    def began(self, native_id: Any = None, directory: Any = None) -> None:
        """Note the run's id and its working directory, unless earlier lines have told them.

        The lines of another session are a suspect loss: nothing tells them apart in the trace.
        """
        own = str(native_id) if type(native_id) is int else text_or_none(native_id)
        if own and self.run.native_id not in (None, own):
            self.add_session(own)
        self.run.native_id = self.run.native_id or own
        self.run.names = self.run.names or project_of(directory)

    def add_session(self, native_id: str) -> None:
        """Count the beginning of another session, whose messages become this one's."""
        self.losses.add_unknown(_ANOTHER_SESSION, native_id, {"content": native_id})

    def named(self, model: Any) -> None:
        """Note the model of an answer."""
        if isinstance(model, str) and model and model not in self.run.models:
            self.run.models = (*self.run.models, model)

    def take_back(self, position: int) -> None:
        """Remove the messages from a position on."""
        self.losses.add(TAKEN_BACK, ir.contents_of(self.run.messages[position:]), is_known=True)
        del self.run.messages[position:]
        for positions in (self._calls, self._early):
            for call_id in [call_id for call_id, place in positions.items() if place >= position]:
                del positions[call_id]
        self._open.clear()
        self._answers.clear()

    def last_text(self) -> str:
        """Return the agent's last text; an empty one if it has none."""
        answers = (message for message in reversed(self.run.messages) if message.role == "assistant")
        return next(filter(None, (ir.join_texts(message.parts) for message in answers)), "")

    def change(self, position: int, **changes: Any) -> None:
        """Set attributes of an earlier message."""
        self.run.messages[position] = replace(self.run.messages[position], **changes)

    def change_call(self, call_id: str, **changes: Any) -> None:
        """Set attributes of a call, if there is one with this id."""
        if (position := self._calls.get(call_id)) is not None:
            parts = (
                replace(part, **changes) if isinstance(part, ir.ToolCall) and part.id == call_id else part
                for part in self.run.messages[position].parts
            )
            self.change(position, parts=tuple(parts))

    def tell_again(self, call_id: str | None, arguments: Any) -> bool:
        """Set the arguments of an earlier call to those of its end, and return whether there is one.

        Those of its start are a loss if they differ.
        """
        call = self.call_of(call_id)
        if call is not None and arguments is not None and arguments != call.arguments:
            self.losses.add(ANOTHER_FORM, call.arguments)
            self.change_call(call.id or "", arguments=arguments)
        return call is not None

    def call_of(self, call_id: str | None) -> ir.ToolCall | None:
        """Return the last call with an id; None if there is none."""
        position = self._calls.get(call_id or "")
        parts = () if position is None else self.run.messages[position].parts
        return next((part for part in parts if isinstance(part, ir.ToolCall) and part.id == call_id), None)

    def fail(self, call_id: str) -> None:
        """Mark the responses to a call as failed, also those that are still to come."""
        self._failed.add(call_id)

    def finish(self, *, ended: bool | None = None) -> ir.Run:
        """Return the run.

        ``ended``: whether the agent had, if that is recorded; its messages tell it otherwise.
        """
        if ended is False or _CUT_LINE in self.losses:
            if self.run.messages:
                self.add("assistant", [ir.Error(interruption=True)])
        elif ended:
            self.run.ending = self.run.ending or "answered"
        self._mark_failures()
        self._calls.clear()  # the run is in memory for longer
        return self.run

    def _mark_failures(self) -> None:
        for position in range(len(self.run.messages)) if self._failed else ():
            parts = self.run.messages[position].parts
            marked = tuple(
                replace(part, failed=True)
                if isinstance(part, ir.ToolCallResponse) and part.id in self._failed
                else part
                for part in parts
            )
            if marked != parts:
                self.change(position, parts=marked)


class Reader(ABC):
    """Reads the lines of one run.

    Attributes:
        has_ended: whether the agent had ended; None if its messages have to tell. A stream that ends with an
            event has not before it.
    """

    has_ended: bool | None = None

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.losses = self.transcript.losses

    @abstractmethod
    def add(self, value: dict[str, Any]) -> None:
        """Add a line."""

    def finish(self) -> ir.Run:
        """Return the run, after its last line."""
        return self.transcript.finish(ended=self.has_ended)


def run_of_lines(document: Any, reader: Reader) -> Iterator[ir.Run]:
    """Yield the run that a reader makes of a document's lines; nothing if they have no messages."""
    for line in lines_of(document, reader.losses):
        reader.add(line)
    run = reader.finish()
    if run.messages:
        yield run


def _remember(recent: dict[str, _Value], name: str, value: _Value) -> None:
    """Keep a value among the last ones."""
    recent[name] = value
    if len(recent) > _RECENT:
        del recent[next(iter(recent))]


def requests_of(run: ir.Run) -> Iterator[ir.Run]:
    """Split a run at the requests of the user, which are texts that follow a step of the agent.

    The resulting runs are numbered, have the whole run as their parent, and the first one has its losses.
    """
    pieces: list[list[ir.Message]] = [[]]
    answered = False
    for message in run.messages:
        if answered and message.role == "user" and _asks(message):
            pieces.append([])
            answered = False
        answered = answered or message.role == "assistant"
        pieces[-1].append(message)
    for number, messages in enumerate(pieces, start=1):
        last = number == len(pieces)
        times = [message.at for message in messages if message.at is not None]
        yield replace(
            run,
            messages=messages,
            native_id=None if run.native_id is None else f"{run.native_id}/{number}",
            parent_id=run.parent_id or run.native_id,
            ended_at=run.ended_at if last or not times else max(times),
            ending=run.ending if last else None,
            losses=run.losses if number == 1 else Losses(),
        )


def _asks(message: ir.Message) -> bool:
    """Check for a text that is not the program's."""
    texts = [part.content for part in message.parts if isinstance(part, ir.Text)]
    return bool(texts) and any(boilerplate.split(texts)[1])


def project_of(directory: Any) -> tuple[str, ...]:
    """Return the name of a working directory, to look up in a domain map."""
    if not isinstance(directory, str):
        return ()
    return tuple(name for name in [re.split(r"[/\\]", directory.rstrip("/\\"))[-1]] if name)
