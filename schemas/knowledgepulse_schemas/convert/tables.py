"""Session logs that a table describes: how a line is told, whose it is, and where its parts are.

A path is the names of members with dots between them. To add a program, write a :class:`Table`, record a
session in ``tests/data/conversions``, and name the table in :data:`TABLES` and in docs/producers/convert.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.blocks import parts_of
from knowledgepulse_schemas.convert.elements import elements
from knowledgepulse_schemas.convert.errors import ConversionError
from knowledgepulse_schemas.convert.input_format import InputFormat, are_all, judged, of_lines
from knowledgepulse_schemas.convert.messages import messages_of
from knowledgepulse_schemas.convert.reading import as_text, count_others, each
from knowledgepulse_schemas.convert.sessions import Reader
from knowledgepulse_schemas.convert.words import words

ROLES: dict[str, hub.Role] = {
    **hub.ROLES,
    "gpt": "assistant",
    "response": "assistant",
    "request": "user",
    "tool_result": "tool",
    "observation": "tool",
}
"""Names of roles, also those of Pydantic AI's messages and of ShareGPT's."""
_ENDED = {"completion", "success", "completed", "end_turn", "stop"}
_INTERRUPTED = {"aborted", "cancelled"}
_SECONDS = 1e11
"""Numbers above are times in milliseconds."""


@dataclass(frozen=True)
class Line:
    """A kind of line.

    Attributes:
        where: members that it has, by their paths: a value, a set of values, or a type; None for no member.
        role: the role of its message, or the path of the role after ``=``; None without a message.
        parts: the paths of the message's parts, separated by spaces, each with ``:`` and a type if it holds
            no block, but texts of this type; after ``=``, the type of the part that the line is; ``=`` alone
            for a line that is a message of any vendor.
        at: the path of its time.
        sets: paths of what is known of the run: ``id``, ``cwd``, ``model``, and ``ended`` for how it ended.
        error: the path of the message of a failure.
        once: whether another line may repeat the message, so that it counts once.
        beside: whether it is known to hold no part of the conversation, or nothing that other lines do not.
    """

    where: dict[str, Any]
    role: str | None = None
    parts: str = ""
    at: str = "timestamp"
    sets: dict[str, str] = field(default_factory=dict)
    error: str = ""
    once: bool = False
    beside: bool = False


@dataclass(frozen=True)
class Table:
    """A program's sessions.

    Attributes:
        name: the format's name on the command line.
        members: names of members that are typical of the format, separated by spaces.
        first: what one of the format's lines has, as in ``Line.where``; one of several alternatives.
        lines: the kinds of lines, of which the first that fits counts.
        wrapper: the pattern that opens the element around the user's own text, if there is one.
    """

    name: str
    members: str
    first: tuple[dict[str, Any], ...]
    lines: tuple[Line, ...]
    wrapper: re.Pattern[str] | None = None


CURSOR = Table(  # ~/.cursor/projects/*/agent-transcripts/*.jsonl: without times and results
    "cursor",
    "role message",
    ({"role": {"user", "assistant"}, "message": dict, "message.role": None, "type": None, "uuid": None},),
    (
        Line({"role": {"user", "assistant"}}, "=role", "message.content"),
        Line({"type": "turn_ended"}, sets={"ended": "status"}, error="error"),
    ),
    wrapper=re.compile("<(user_query)>"),
)
DROID = Table(  # ~/.factory/sessions/*.jsonl
    "droid",
    "type id cwd version",
    ({"type": "session_start", "id": str, "cwd": str},),
    (
        Line({"type": "session_start"}, sets={"id": "id", "cwd": "cwd"}),
        Line({"type": "message", "message.visibility": "llm_only"}, "system", "message.content"),
        Line({"type": "message"}, "=message.role", "message.content", sets={"model": "modelId"}),
        Line({"type": {"todo_state", "session_end", "compaction_state"}}, beside=True),
    ),
)
_KIMI_BESIDE = words(
    """
    metadata turn.prompt turn.steer turn.ended config.update profile.bind usage.record full_compaction.begin
    full_compaction.complete full_compaction.cancel plan_mode.enter plan_mode.exit plan_mode.cancel
    plugin.session_start runtime.set_binding token_counting.measured token_counting.turn_recorded llm.request
    llm.tools_snapshot tools.set_active_tools tools.update_store permission.set_mode
    permission.record_approval_result mcp.tools_discovered file_history.tracked file_history.checkpoint
    """
)
KIMI = Table(  # ~/.kimi/sessions/*/*/agents/*/wire.jsonl, of protocol 1.4 and 1.5
    "kimi",
    "type protocol_version",
    ({"type": "metadata", "protocol_version": str},),
    (
        Line({"type": "turn.prompt", "origin.kind": "user"}, "user", "input", "time", once=True),
        Line(
            {"type": "context.append_message", "message.origin.kind": {"user", None}},
            "=message.role",
            "message.content",
            "time",
            once=True,
        ),
        Line(
            {"type": "context.append_message", "message.origin.name": "subagent"},
            "=message.role",
            "message.content",
            "time",
        ),
        Line({"type": "turn.cancel"}, at="time", sets={"ended": "type"}),
        Line({"type": "context.append_message"}, "system", "message.content", "time"),
        Line(
            {"type": "context.append_loop_event", "event.type": "step.end"},
            at="time",
            sets={"ended": "event.finishReason"},
        ),
        Line({"type": "context.append_loop_event", "event.type": "step.begin"}, at="time", beside=True),
        Line({"type": "context.append_loop_event"}, "assistant", "event", "time"),
        Line({"type": "context.apply_compaction"}, "system", "summary", "time"),
        Line({"type": _KIMI_BESIDE}, beside=True),
    ),
)
_MANAGED_BESIDE = words(
    "agent.thinking session.status_running session.status_terminated span.model_request_start"
    " span.model_request_end"
)
MANAGED = Table(  # the events of a session of Claude's Managed Agents
    "claude_managed",
    "id type processed_at",
    (
        {
            "type": {"user.message", "agent.message", "agent.thinking", "agent.tool_use"},
            "id": str,
            "uuid": None,
        },
    ),
    (
        Line({"type": "user.message"}, "user", "content", "processed_at"),
        Line({"type": "agent.message"}, "assistant", "content", "processed_at"),
        Line(
            {"type": {"agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"}},
            "assistant",
            "=tool_use",
            "processed_at",
        ),
        Line(
            {"type": {"agent.tool_result", "agent.mcp_tool_result", "user.custom_tool_result"}},
            "tool",
            "=tool_result",
            "processed_at",
        ),
        Line({"type": {"session.status_idle"}}, at="processed_at", sets={"ended": "stop_reason.type"}),
        Line({"type": {"session.error"}}, at="processed_at", error="error.message"),
        Line({"type": _MANAGED_BESIDE}, beside=True),
    ),
)
DROID_STREAM = Table(  # what `droid exec --output-format stream-json` prints
    "droid_stream",
    "type session_id role text",
    (
        {"type": "message", "session_id": str, "role": str, "text": str},
        {"type": "system", "subtype": "init", "reasoning_effort": str},
    ),
    (
        Line({"type": "message"}, "=role", "text", sets={"id": "session_id"}),
        Line({"type": "tool_call"}, "assistant", "=tool_call", sets={"id": "session_id"}),
        Line({"type": "tool_result"}, "tool", "=tool_result"),
        Line({"type": "completion"}, "assistant", "finalText", sets={"ended": "type"}, once=True),
        Line({"type": "error"}, error="message"),
        Line({"type": "system"}, sets={"id": "session_id", "cwd": "cwd", "model": "model"}),
    ),
)
GROK = Table(  # ~/.grok/sessions/*/chat_history.jsonl
    "grok",
    "type content prompt_index",
    (
        {"type": "user", "prompt_index": int},
        {"type": "user", "synthetic_reason": str},
        {"type": "assistant", "model_fingerprint": str},
    ),
    (
        Line({"type": "user", "synthetic_reason": str}, "system", "content"),
        Line({"type": {"system", "user"}}, "=type", "content"),
        Line({"type": "reasoning"}, "assistant", "summary:reasoning"),
        Line({"type": "assistant"}, "assistant", "content tool_calls", sets={"model": "model_id"}),
        Line({"type": "tool_result"}, "tool", "=tool_result"),
    ),
)
ANTIGRAVITY = Table(  # the transcripts of Antigravity's command line: results have no ids
    "antigravity",
    "step_index source type status",
    ({"step_index": int, "source": str, "type": str, "status": str},),
    (
        Line({"type": "USER_INPUT"}, "user", "content", "created_at"),
        Line({"type": "PLANNER_RESPONSE"}, "assistant", "thinking:thinking content tool_calls", "created_at"),
        Line({"source": "MODEL"}, "tool", "content", "created_at"),
        Line({"source": "SYSTEM", "content": str}, "system", "content", "created_at"),
        Line({"source": "SYSTEM"}, beside=True),
    ),
    wrapper=re.compile("<(USER_REQUEST)>"),
)
QWEN = Table(  # ~/.qwen/projects/*/chats/*.jsonl
    "qwen_code",
    "uuid parentUuid sessionId message",
    (
        {"uuid": str, "sessionId": str, "message.parts": list},
        {"uuid": str, "sessionId": str, "systemPayload": dict},
    ),
    (
        Line({"type": "user", "subtype": "notification"}, "system", "message.parts"),
        Line(
            {"type": {"user", "assistant", "tool_result"}},
            "=type",
            "message.parts",
            sets={"id": "sessionId", "cwd": "cwd", "model": "model"},
        ),
        Line({"type": "system"}, beside=True),
    ),
)
_CHAT = {"role": set(hub.ROLES), "message": None, "type": None, "parts": None}
CHAT_LINES = Table(  # such as `kimi -p --output-format stream-json` prints, and its former context.jsonl
    "chat_lines",
    "role content",
    tuple(_CHAT | one for one in ({"content": str}, {"content": list}, {"tool_calls": list})),
    (
        Line({"role": {"meta", "_checkpoint", "_usage"}}, sets={"id": "session_id"}, beside=True),
        Line({"role": "_system_prompt"}, "system", "content"),
        Line(_CHAT, "=role", "="),
    ),
)
TABLES = (CURSOR, DROID, DROID_STREAM, KIMI, MANAGED, QWEN, GROK, ANTIGRAVITY)


class _Reader(Reader):
    def __init__(self, table: Table) -> None:
        super().__init__(table.name)
        self._table = table

    def add(self, value: dict[str, Any]) -> None:
        """Add a line."""
        losses = self.losses
        kind = ".".join(
            str(one) for one in (value.get("type", value.get("role")), _at(value, "event.type")) if one
        )
        line = next((one for one in self._table.lines if _fits(value, one.where)), None)
        if line is None or line.beside:
            (losses.add if line else losses.add_unknown)(kind, value, *([] if line else [{"content": value}]))
            return
        at = self._reached(_at(value, line.at))
        for name, path in line.sets.items():
            self._set(name, _at(value, path))
        read = [*line.where, line.at, line.error, *line.sets.values()]
        if line.role is not None:
            read += [line.role.removeprefix("="), *(path.partition(":")[0] for path in line.parts.split())]
            self._add_message(line, value, kind, at)
        for name, rest in _without(value, [path.split(".") for path in read if path]).items():
            losses.add(f"{kind}.{name}", None if line.parts.startswith("=") else rest)
        if line.error and (problem := _at(value, line.error)) is not None:
            interrupted = value.get("status") in _INTERRUPTED
            self.transcript.add("assistant", [hub.Error(str(problem), interruption=interrupted)], at)

    def _add_message(self, line: Line, value: dict[str, Any], kind: str, at: datetime | None) -> None:
        name = line.role or ""
        role = ROLES.get(str(_at(value, name[1:]) if name.startswith("=") else name), "system")
        if line.parts == "=":
            messages = messages_of([value], role, kind, self.losses)
            parts = [(one.role, part) for one in messages for part in one.parts]
        else:
            whole = line.parts.startswith("=")
            paths = [path.partition(":") for path in line.parts.split()]
            content = (
                {**value, "type": line.parts[1:]}
                if whole
                else [_typed(_at(value, path), kind) for path, _, kind in paths]
            )
            parts = [(own or role, part) for own, part in parts_of(content, kind, self.losses)]
        parts = [(own, self._own(own, part)) for own, part in parts]
        for group in dict.fromkeys(own for own, _ in parts):
            message = hub.Message(group, tuple(part for own, part in parts if own == group))
            if not (line.once and self._is_repeated(message)):
                self.transcript.add(group, message.parts, at)
        self.has_ended = None if role == "user" else self.has_ended

    def _is_repeated(self, message: hub.Message) -> bool:
        last = self.transcript.run.messages[-1:]
        return any((one.role, one.parts) == (message.role, message.parts) for one in last)

    def _own(self, role: hub.Role, part: hub.Part) -> hub.Part:
        """Return the user's own text of a part, and a tool's text as its response."""
        if isinstance(part, hub.Text) and role == "tool":
            return hub.ToolCallResponse(part.content)
        if self._table.wrapper is None or not isinstance(part, hub.Text) or role != "user":
            return part
        own = [one.content.strip() for one in elements(part.content, self._table.wrapper) if one.closed]
        return hub.Text("\n".join(own)) if own else part

    def _set(self, name: str, value: Any) -> None:
        if name == "ended":
            self.has_ended = value in _ENDED if isinstance(value, str) else None
        elif name == "cwd":
            self.transcript.began(directory=value)
        elif name == "model":
            self.transcript.named(value)
        else:
            self.transcript.began(value)

    def _reached(self, time: Any) -> datetime | None:
        if isinstance(time, int | float) and time > _SECONDS:
            return self.transcript.reached_milliseconds(time)
        return self.transcript.reached(time)


def _typed(value: Any, kind: str) -> Any:
    """Return a text, or objects with texts, as blocks of a type; anything else unchanged."""
    if not kind or value is None:
        return value
    if isinstance(value, list):
        return [_typed(one, kind) for one in value]
    return {**value, "type": kind} if isinstance(value, dict) else {"type": kind, "text": as_text(value)}


def _at(value: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _fits(value: Any, where: dict[str, Any]) -> bool:
    for path, wanted in where.items():
        found = _at(value, path)
        if isinstance(wanted, type):
            is_found = isinstance(found, wanted)
        elif isinstance(wanted, set | frozenset):
            is_found = found is None or isinstance(found, str)
            is_found = is_found and found in wanted
        else:
            is_found = found == wanted
        if not is_found:
            return False
    return True


def _without(value: Any, paths: Iterable[list[str]]) -> dict[str, Any]:
    """Return the members of an object at none of the paths."""
    rest: dict[str, Any] = dict(value)
    for name in {path[0] for path in paths}:
        below = [path[1:] for path in paths if path[0] == name]
        if name in rest and all(below) and isinstance(rest[name], dict):
            rest[name] = _without(rest[name], below)
        else:
            rest.pop(name, None)
    return rest


@dataclass(frozen=True)
class Chat:
    """Messages of a framework, in a list or in a record.

    Attributes:
        name: the format's name on the command line.
        members: names of members that are typical of the format, separated by spaces.
        within: the member of a record that holds the messages; empty for a list alone.
        message: what each message has, as in ``Line.where``.
        role: the path of a message's role.
        parts: the path of its parts.
    """

    name: str
    members: str
    within: str
    message: dict[str, Any]
    role: str
    parts: str


CHATS = (
    Chat("pydantic_ai", "parts kind", "", {"kind": {"request", "response"}, "parts": list}, "kind", "parts"),
    Chat(
        "agent_framework",
        "messages type contents",
        "messages",
        {"type": "chat_message", "contents": list},
        "role.value",
        "contents",
    ),
    Chat(
        "haystack", "role meta content", "", {"role": str, "meta": dict, "content": list}, "role", "content"
    ),
    Chat("sharegpt", "conversations", "conversations", {"from": str, "value": str}, "from", "value"),
)


def chat_format_of(chat: Chat) -> InputFormat:
    """Return the format of a framework's messages."""

    def recognises(document: Any) -> bool:
        values = document.get(chat.within) if isinstance(document, dict) and chat.within else document
        return isinstance(values, list) and bool(values) and all(_fits(one, chat.message) for one in values)

    read = [name.split(".") for name, wanted in chat.message.items() if wanted is not dict]
    read += [chat.role.split("."), chat.parts.split(".")]

    def run_of(document: Any, path: str) -> hub.Run:
        if not recognises(document):
            raise ConversionError(f"{path or 'the document'}: no messages of {chat.name}")
        run = hub.Run(chat.name, [])
        if chat.within:
            count_others(document, {chat.within, "id"}, "", run.losses)
            run.native_id = document["id"] if isinstance(document.get("id"), str) else None
        for value in document[chat.within] if chat.within else document:
            role = ROLES.get(str(_at(value, chat.role)), "system")
            for name, rest in _without(value, read).items():
                run.losses.add(f"[].{name}", rest)
            for own, part in parts_of(_at(value, chat.parts), "[]", run.losses):
                is_answer = (own or role) == "tool" and isinstance(part, hub.Text)
                response = hub.ToolCallResponse(part.content) if isinstance(part, hub.Text) else part
                run.messages.append(hub.message(own or role, response if is_answer else part))
            run.messages += [hub.message(role, error) for error in hub.cut_off(value.get("finish_reason"))]
        return run

    def runs(document: Any) -> Iterator[hub.Run | ConversionError]:
        if recognises(document) or not isinstance(document, list):
            yield judged(run_of, document, "")
        else:
            yield from each(document, lambda record, path: judged(run_of, record, path))

    return InputFormat(
        chat.name,
        chat.members,
        lambda document: recognises(document) or are_all(recognises, document),
        runs,
    )


def format_of(table: Table) -> InputFormat:
    """Return the format of a program's sessions."""
    return of_lines(
        table.name,
        table.members,
        lambda line: any(_fits(line, first) for first in table.first),
        lambda name: _Reader(table),
    )


def lines_format_of(table: Table) -> InputFormat:
    """Return a format that only lines have: a list of them is another format."""
    own = format_of(table)
    return replace(own, recognises=lambda document: isinstance(document, dict) and own.recognises(document))
