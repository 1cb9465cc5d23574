"""The reader of sessions and messages that a table describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import groupby
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.elements import elements, outside
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all, judged, of_session
from knowledgepulse_convert.common.pattern import Path, at
from knowledgepulse_convert.common.reading import as_text, count_others, each, text_or_none, unwrap
from knowledgepulse_convert.common.session_log import ANOTHER_FORM, Reader, lines_of
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_convert.messages.any_vendor import messages_of
from knowledgepulse_convert.messages.blocks import Parts, is_failed
from knowledgepulse_convert.messages.definitions import definitions_of
from knowledgepulse_convert.sessions.table import ROLES, Block, Line, Table, Texts, VendorMessage

_ENDED = {"completion", "success", "completed", "end_turn", "stop"}
_VERDICTS = {"satisfied": True, "needs_revision": False, "max_iterations_reached": False, "failed": False}
_SECONDS = 1e11
"""Numbers above are times in milliseconds."""
_STATUS = at("status")
_TYPES = (at("event", "type"), at("item", "type"))
"""Where a line's type is told further."""


class TableReader(Reader):
    """Reads the lines of a session that a table describes."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table
        self._pieces: list[ir.Part] = []  # of an answer or of a thought
        self._answered_at: datetime | None = None
        self._open: set[str] = set()  # ids of calls that lines may tell again
        self._last_said = ""  # the agent's last text, without white space
        self._all_said = sha256()  # all of them
        self._known = {str(path) for path in (*table.known, *table.time, table.id)}
        self.has_ended = table.ended

    def add(self, value: dict[str, Any]) -> None:
        """Add a line."""
        kind = "[]" if self._table.within is not None else _kind(value)
        if self._table.id is not None:
            self.transcript.began(self._table.id.of(value))
        line = next((known for known in self._table.lines if known.pattern.fits(value)), None)
        if line is None:
            self.losses.add_unknown(kind, value, {"content": value})
            return
        self._learn(line, value)
        if line.is_beside:
            if line.has_time:
                self._reached_at(value)
            self.losses.add(f"{line.of} {kind}".lstrip(), value)
        else:
            self._add_line(line, value, kind)

    def finish(self) -> ir.Run:
        """Return the run."""
        self._end_pieces()
        return super().finish()

    def _learn(self, line: Line, value: dict[str, Any]) -> None:
        """Note what a line tells of the run."""
        if line.id is not None:
            self.transcript.began(line.id.of(value))
        if line.cwd is not None:
            self.transcript.began(directory=line.cwd.of(value))
        if line.model is not None:
            self.transcript.named(line.model.of(value))
        if line.ended is not None:
            how = line.ended.of(value) if isinstance(line.ended, Path) else line.ended
            self.has_ended = how is True or how in _ENDED if isinstance(how, str | bool) else None
        if line.verdict is not None:
            self.transcript.run.outcome = ir.RunOutcome(_VERDICTS.get(as_text(line.verdict.of(value))))

    def _add_line(self, line: Line, value: dict[str, Any], kind: str) -> None:
        at = self._reached_at(value)
        if line.tools is not None:
            defined = definitions_of(line.tools.of(value) or [], f"{kind}.{line.tools}", self.losses)
            self.transcript.add("system", ir.parts_in(defined), at)
        if line.is_piece:
            for _, part in self._parts(line, value, "assistant", kind):
                self._add_piece(part, at)
        else:
            self._end_pieces()
            if line.role is not None:
                self._add_message(line, line.role, value, kind, at)
        for name, rest in () if line.is_all_read else line.all_places.rest_of(value):
            if name not in self._known:
                self.losses.add(f"{kind}.{name}", rest)
        for error in _problem(line, value):
            message = "" if self._is_said(error.message) else error.message
            self.transcript.add("assistant", [replace(error, message=message)], at)

    def _add_piece(self, piece: ir.Part, at: datetime | None) -> None:
        if self._pieces and type(self._pieces[-1]) is not type(piece):
            self._end_pieces()
        self._pieces.append(piece)
        self._answered_at = at

    def _end_pieces(self) -> None:
        """Add what came in pieces."""
        texts = [piece.content for piece in self._pieces if isinstance(piece, ir.Text | ir.Reasoning)]
        if texts:
            kind = ir.Text if isinstance(self._pieces[0], ir.Text) else ir.Reasoning
            self._tell("assistant", (kind("".join(texts)),), self._answered_at)
        calls = [piece for piece in self._pieces if isinstance(piece, ir.ToolCall)]
        for _, group in groupby(calls, lambda call: call.id):
            begun = list(group)
            arguments = "".join(piece.arguments for piece in begun)
            self._tell("assistant", (replace(begun[0], arguments=arguments),), self._answered_at)
        self._pieces.clear()

    def _tell(self, role: ir.Role, parts: tuple[ir.Part, ...], at: datetime | None) -> None:
        self.transcript.add(role, parts, at)
        if role == "assistant":
            for text in filter(None, (_squeezed(ir.join_texts([part])) for part in parts)):
                self._last_said = text
                self._all_said.update(text.encode(errors="surrogatepass"))

    def _add_message(
        self, line: Line, told: ir.Role | Path, value: dict[str, Any], kind: str, at: datetime | None
    ) -> None:
        name = str(told.of(value)) if isinstance(told, Path) else told
        role = ROLES.get(name, "system")
        if name not in ROLES:
            self.losses.add_unknown(f"{kind}.{told} {name}", "-", {"content": value})
        parts = [(own or role, part) for own, part in self._parts(line, value, role, kind)]
        flags = [flags for path in line.flags if isinstance(flags := path.of(value), dict)]
        failed = any(map(is_failed, flags))
        parts = [
            (own, _failed(self._own(own, part)) if failed else self._own(own, part))
            for own, part in parts
            if not (line.may_restate_call and self._is_restated(part))
            and not (line.may_repeat and self._is_repeated_call(part))
        ]
        for group in dict.fromkeys(own for own, _ in parts):
            message = ir.Message(group, tuple(part for own, part in parts if own == group))
            if not (line.may_repeat and self._is_repeated(message)):
                self._tell(group, message.parts, at)
        if role == "user" and self.has_ended and self._table.ended is None:
            self.has_ended = None

    def _parts(self, line: Line, value: dict[str, Any], role: ir.Role, kind: str) -> Parts:
        """Yield the parts of a line's message, each with the role that it tells."""
        for part in line.all_parts:
            match part:
                case Path():
                    yield from line.read(part.of(value), kind, self.losses, "")
                case Texts():
                    yield from line.read(_typed(part.path.of(value), part.type), kind, self.losses, "")
                case Block():
                    yield from self._block(line, part, value, kind)
                case VendorMessage():
                    told = part.path.of(value)
                    messages = told if isinstance(told, list) else [told] if told else []
                    for message in messages_of(messages, role, kind, self.losses) if messages else ():
                        yield from ((message.role, own) for own in message.parts)

    def _block(self, line: Line, part: Block, value: dict[str, Any], kind: str) -> Parts:
        content, above = part.path.of(value), ".".join([*part.path.names, ""])
        if isinstance(content, dict):
            rest = line.beside_parts.under(*part.path.names).rest_of(content, above)
            block = {name.removeprefix(above): member for name, member in rest if name not in self._known}
            yield from line.read(block, f"{kind}.{part.path}".rstrip("."), self.losses, part.type)
        else:
            self.losses.add_unknown(f"{kind}.{part.path}", content, {"content": content})

    def _is_repeated(self, message: ir.Message) -> bool:
        """Check for the last message, or a text of the agent."""
        match message.parts:
            case (ir.Text(content=text),) if message.role == "assistant":
                return self._is_said(text)
        last = self.transcript.run.messages[-1:]
        return any((earlier.role, earlier.parts) == (message.role, message.parts) for earlier in last)

    def _is_repeated_call(self, part: ir.Part) -> bool:
        """Check for a call with the id of an earlier one."""
        call = self.transcript.call_of(part.id) if isinstance(part, ir.ToolCall) else None
        if call is not None and isinstance(part, ir.ToolCall) and part.arguments != call.arguments:
            self.losses.add(ANOTHER_FORM, part.arguments)
        return call is not None

    def _is_said(self, text: str) -> bool:
        """Check for the agent's last text, or for all of them."""
        squeezed = _squeezed(text)
        digest = sha256(squeezed.encode(errors="surrogatepass")).digest()
        return squeezed == self._last_said or digest == self._all_said.digest()

    def _is_restated(self, part: ir.Part) -> bool:
        """Tell an open call again; return False for any other part."""
        match part:
            case ir.ToolCall(id=str(call_id), arguments=arguments):
                is_open = call_id in self._open
                self._open.add(call_id)
                return is_open and self.transcript.tell_again(call_id, arguments)
            case ir.ToolCallResponse(id=str(call_id)):
                self._open.discard(call_id)
        return False

    def _own(self, role: ir.Role, part: ir.Part) -> ir.Part:
        """Return the user's own text of a part, and a tool's text as its response."""
        if not isinstance(part, ir.Text):
            return part
        if role == "tool":
            return ir.ToolCallResponse(part.content)
        if role == "assistant" and self._table.hidden:
            return ir.Text(part.content.removesuffix(self._table.hidden).rstrip())
        if role != "user" or self._table.wrapper is None:
            return part
        found = [element for element in elements(part.content, self._table.wrapper) if element.closed]
        if not found:
            return part
        self.losses.add("text around requests", outside(part.content, found).strip())
        return ir.Text("\n".join(element.content.strip() for element in found))

    def _reached_at(self, value: dict[str, Any]) -> datetime | None:
        """Note the times of a line, and return the last."""
        times = [self._reached(path.of(value)) for path in self._table.time]
        return next((time for time in reversed(times) if time is not None), None)

    def _reached(self, time: Any) -> datetime | None:
        if isinstance(time, int | float) and time > _SECONDS:
            return self.transcript.reached_milliseconds(time)
        return self.transcript.reached(time)


def _problem(line: Line, value: dict[str, Any]) -> Iterator[ir.Error]:
    """Yield the failure or the interruption that a line tells."""
    message = line.error and line.error.of(value)
    if message is None and not line.stop:
        return
    endings = [told_by(path.of(value)) for path in line.stop or (_STATUS,)]
    if message is not None or any(endings):
        yield ir.Error(as_text(message or None), interruption="cut_off" in endings)


def _failed(part: ir.Part) -> ir.Part:
    return replace(part, failed=True) if isinstance(part, ir.ToolCallResponse) else part


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _kind(value: dict[str, Any]) -> str:
    """Return the name of a line's kind, for the loss report."""
    kinds = (value.get("type", value.get("role")), *(path.of(value) for path in _TYPES))
    return ".".join(str(part) for part in kinds if part) or "lines without a type"


def _typed(value: Any, kind: str) -> Any:
    """Return a text, or objects with texts, as blocks of a type."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_typed(item, kind) for item in value]
    return {**value, "type": kind} if isinstance(value, dict) else {"type": kind, "text": as_text(value)}


def format_of(table: Table) -> InputFormat:
    """Return the format that a table describes."""
    told = partial(
        InputFormat,
        table.name,
        table.text,
        table.members,
        coding_agent=table.coding_agent,
        unrecorded=table.unrecorded,
        places=table.places,
        ids_in_path=table.ids_in_path,
    )
    if table.within is not None:
        messages = _Messages(table)
        return told(messages.fit, messages.runs)
    recognises, runs, is_fragment, streams, needed = of_session(
        table.is_first, lambda lines: _runs(table, lines)
    )

    def is_line(document: Any) -> bool:
        return isinstance(document, dict) and recognises(document)

    own = is_line if table.only_lines else recognises
    return told(own, runs, is_fragment, streams, needed)


def _runs(table: Table, document: Any) -> Iterator[ir.Run]:
    """Yield the run of a session, and behind it those of its subagents, whose lines stand among its own."""
    main, agents = TableReader(table), dict[str, TableReader]()
    for line in lines_of(document, main.losses):
        names = (text_or_none(path.of(line)) for path in table.agent)
        agent = next(filter(None, names), None)
        reader = main if agent is None else agents.setdefault(agent, TableReader(table))
        reader.add(line)
    runs = {agent: reader.finish() for agent, reader in agents.items()}
    run, session = main.finish(), main.transcript.run.native_id
    for agent, started in runs.items():
        session = session or started.native_id
        started.native_id, started.parent_id = f"{session}/{agent}", session
        if not any(message.role == "user" for message in started.messages):
            main.losses.add("subagents without their request", ir.contents_of(started.messages))
            main.losses.merge(started.losses)
            started.messages.clear()
    yield from (each for each in (run, *runs.values()) if each.messages)


class _Messages:
    """Messages in a list or in a record."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def fit(self, document: Any) -> bool:
        """Return whether a document is a list of messages, a record, or a list of records."""
        return self._are_one_run(document) or are_all(self._are_one_run, document)

    def runs(self, document: Any) -> Iterator[ir.Run | ConversionError]:
        """Yield the runs of a document."""
        if self._are_one_run(document) or not isinstance(document, list):
            yield judged(self._run_of, document, "")
        else:
            yield from each(document, lambda record, path: judged(self._run_of, record, path))

    def _are_one_run(self, document: Any) -> bool:
        values = unwrap(document, self._within(document))
        return isinstance(values, list) and are_all(self._table.is_first, values)

    def _within(self, document: Any) -> str:
        """Return the member of a record that holds the messages."""
        names = (self._table.within or ()) if isinstance(document, dict) else ()
        return next((name for name in names if name in document), "")

    def _run_of(self, document: Any, path: str) -> ir.Run:
        if not self._are_one_run(document):
            raise ConversionError(f"{path or 'the document'}: no messages of {self._table.name}")
        reader = TableReader(self._table)
        if isinstance(document, dict):
            own = self._table.id or at("id")
            count_others(document, {self._within(document), *own.names}, "", reader.losses)
            reader.transcript.began(own.of(document))
        for value in unwrap(document, self._within(document)):
            reader.add(value)
        return reader.finish()
