"""Session logs that a table describes: how a line is told, whose it is, and where its parts are.

A path is the names of members with dots between them. To add a program, write a :class:`Table`, record a
session in ``tests/data/conversions``, and name the table in :data:`TABLES` and in docs/producers/convert.md.

Sources, where there are any: https://github.com/badlogic/pi-mono, ``packages/coding-agent/docs``;
https://github.com/google-gemini/gemini-cli, ``packages/core/src/output/types.ts``. There is no published
schema of Copilot's events; the table follows logs of version 1.0.
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
from knowledgepulse_schemas.convert.common.input_format import InputFormat, are_all, judged, of_lines
from knowledgepulse_schemas.convert.common.losses import Losses
from knowledgepulse_schemas.convert.common.reading import as_text, count_others, each, unwrap
from knowledgepulse_schemas.convert.common.session_log import ANOTHER_FORM, Reader
from knowledgepulse_schemas.convert.common.words import words
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
    """

    name: str
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


CURSOR = Table(  # ~/.cursor/projects/*/agent-transcripts/*.jsonl: without times and results
    "cursor",
    "role message",
    ({"role": {"user", "assistant"}, "message": dict, "message.role": None, "type": None, "uuid": None},),
    (
        Line({"role": {"user", "assistant"}}, "=role", "message.content"),
        Line("turn_ended", sets={"ended": "status"}, error="error"),
    ),
    wrapper=re.compile("<(user_query)>"),
    hidden="[REDACTED]",
)
DROID = Table(  # ~/.factory/sessions/*.jsonl
    "droid",
    "type id cwd version",
    ({"type": "session_start", "id": str, "cwd": str},),
    (
        Line("session_start", sets={"id": "id", "cwd": "cwd"}),
        Line({"type": "message", "message.visibility": "llm_only"}, "system", "message.content"),
        Line("message", "=message.role", "message.content", sets={"model": "modelId"}),
        Line({"todo_state", "session_end", "compaction_state"}, beside=True),
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
        Line({"type": "turn.prompt", "origin.kind": "user"}, "user", "input", once=True),
        Line(
            {"type": "context.append_message", "message.origin.kind": {"user", None}},
            "=message.role",
            "message.content",
            once=True,
        ),
        Line(
            {"type": "context.append_message", "message.origin.name": "subagent"},
            "=message.role",
            "message.content",
        ),
        Line("turn.cancel", sets={"ended": "type"}),
        Line("context.append_message", "system", "message.content"),
        Line(
            {"type": "context.append_loop_event", "event.type": "step.end"},
            sets={"ended": "event.finishReason"},
        ),
        Line({"type": "context.append_loop_event", "event.type": "step.begin"}, beside=True),
        Line("context.append_loop_event", "assistant", "event"),
        Line("context.apply_compaction", "system", "summary"),
        Line(_KIMI_BESIDE, beside=True),
    ),
    at="time",
)
_MANAGED_BESIDE = (
    *("session", "span.", "agent.thinking", "agent.thread_context_compacted"),
    *("user.interrupt", "user.tool_confirmation"),
)
MANAGED = Table(  # the events of a session of Claude's Managed Agents
    "claude_managed",
    "id type processed_at",
    (
        {
            "type": {
                "user.message",
                "user.define_outcome",
                "agent.message",
                "agent.thinking",
                "agent.tool_use",
            },
            "id": str,
            "uuid": None,
        },
    ),
    (
        Line("user.message", "user", "content"),
        Line("user.define_outcome", "user", "description"),
        Line("span.outcome_evaluation_end", sets={"judged": "result"}),
        Line("agent.message", "assistant", "content"),
        Line({"agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"}, "assistant", "=tool_use"),
        Line(
            {"agent.tool_result", "agent.mcp_tool_result", "user.custom_tool_result"},
            "tool",
            "=tool_result",
        ),
        Line({"session.status_idle"}, sets={"ended": "stop_reason.type"}),
        Line({"session.error"}, error="error.message"),
        Line(_MANAGED_BESIDE, beside=True),
    ),
    at="processed_at",
)
DROID_STREAM = Table(  # what `droid exec --output-format stream-json` prints
    "droid_stream",
    "type session_id role text",
    (
        {"type": "message", "session_id": str, "role": str, "text": str},
        {"type": "system", "subtype": "init", "reasoning_effort": str},
    ),
    (
        Line("message", "=role", "text"),
        Line("tool_call", "assistant", "=tool_call"),
        Line("tool_result", "tool", "=tool_result"),
        Line("completion", "assistant", "finalText", sets={"ended": "type"}, once=True),
        Line("error", error="message"),
        Line("system", sets={"cwd": "cwd", "model": "model"}),
    ),
    id="session_id",
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
        Line({"type": "user", "synthetic_reason": "interjection"}, "user", "content"),
        Line({"type": "user", "synthetic_reason": str}, "system", "content"),
        Line("backend_tool_call", "assistant", "kind=tool_call"),
        Line({"system", "user"}, "=type", "content"),
        Line("reasoning", "assistant", "summary:reasoning"),
        Line("assistant", "assistant", "content tool_calls", sets={"model": "model_id"}),
        Line("tool_result", "tool", "=tool_result"),
    ),
)
ANTIGRAVITY = Table(  # the transcripts of Antigravity's command line: results have no ids
    "antigravity",
    "step_index source type status",
    ({"step_index": int, "source": str, "type": str, "status": str},),
    (
        Line("USER_INPUT", "user", "content"),
        Line("PLANNER_RESPONSE", "assistant", "thinking:thinking content tool_calls"),
        Line({"source": "MODEL"}, "tool", "content"),
        Line({"source": "SYSTEM", "content": str}, "system", "content"),
        Line({"source": "SYSTEM"}, beside=True),
    ),
    wrapper=re.compile("<(USER_REQUEST)>"),
    at="created_at",
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
            {"user", "assistant", "tool_result"},
            "=type",
            "message.parts",
            sets={"id": "sessionId", "cwd": "cwd", "model": "model"},
        ),
        Line("system", beside=True),
    ),
)
_SPOKEN = {"role": {"user", "assistant"}, "created": int, "content": list}
GOOSE = Table(  # Goose's sessions up to 1.9, and what `goose run --output-format stream-json` prints
    "goose_lines",
    "role created content",
    (
        {"working_dir": str, "message_count": int, "conversation": None},
        _SPOKEN,
        {"type": "message"} | {f"message.{name}": value for name, value in _SPOKEN.items()},
    ),
    (
        Line(_SPOKEN, "=role", "content"),
        Line("message", "=message.role", "message.content"),
        Line("error", error="error"),
        Line({"working_dir": str}, sets={"cwd": "working_dir"}, beside=True),
        Line({"complete", "notification"}, beside=True),
    ),
    at="created message.created",
)
_CHAT = {"role": set(hub.ROLES), "message": None, "type": None, "parts": None}
CHAT_LINES = Table(  # such as `kimi -p --output-format stream-json` prints, and its former context.jsonl
    "chat_lines",
    "role content",
    tuple(_CHAT | layout for layout in ({"content": str}, {"content": list}, {"tool_calls": list})),
    (
        Line({"role": {"meta", "_checkpoint", "_usage"}}, sets={"id": "session_id"}, beside=True),
        Line({"role": "session_meta"}, sets={"id": "session_id", "model": "model"}, tools="tools"),  # Hermes
        Line({"role": "_system_prompt"}, "system", "content"),
        Line(_CHAT, "=role", "=", stop="finish_reason"),
    ),
)
_COPILOT_BESIDE = ("hook.", "session.", "assistant.turn", "permission.", "subagent")
_COPILOT_KINDS = ("session.", "user.", "assistant.", "tool.", "system.", "hook.")
_MESSAGE = {"type": {"message", "message_end"}}
_PI_NOTICES = words("bashExecution branchSummary compactionSummary custom hookMessage system")
_PI_BESIDE = words(
    "agent_ auto_ compaction_ message_start message_update queue_ session_ thinking_level_ tool_ turn_"
    " custom label model_change"
)
PI = Table(  # ~/.pi/agent/sessions/*/*.jsonl, ~/.openclaw/agents/*/sessions/*.jsonl, `pi --mode json`
    "pi",
    "type id timestamp cwd",
    (
        {"type": "session", "id": str, "timestamp": ..., "cwd": ...},
        _MESSAGE  # those of Droid have no time of their own
        | {
            "message.role": {"user", "assistant", "toolResult", *_PI_NOTICES},
            "message.content": list,
            "message.timestamp": int,
        },
    ),
    (
        Line(
            _MESSAGE | {"message.role": "assistant"},
            "assistant",
            "message.content",
            {"model": "message.model"},
            error="message.errorMessage",
            stop="message.stopReason",
        ),
        Line(_MESSAGE | {"message.role": "toolResult"}, "tool", "message=toolResult"),
        Line(_MESSAGE | {"message.role": "user"}, "user", "message.content"),
        Line(
            _MESSAGE | {"message.role": _PI_NOTICES},
            "system",
            "message.command message.output message.summary message.content",
        ),
        Line("session", sets={"id": "id", "cwd": "cwd"}),
        Line("agent_start", sets={"ended": False}, beside=True),
        Line({"type": "agent_end", "willRetry": True}, sets={"ended": False}, beside=True),
        Line("agent_end", sets={"ended": True}, beside=True),
        Line("custom_message", "system", "summary content"),
        Line({"summary": str}, "system", "summary content"),
        Line(tuple(_PI_BESIDE), beside=True),
    ),
    known="id parentId type",
    at="timestamp message.timestamp",
)
COPILOT = Table(  # ~/.copilot/session-state/*/events.jsonl; later versions name the agent on the event
    "copilot_cli",
    "parentId",
    ({"type": _COPILOT_KINDS, "id": ..., "parentId": ..., "timestamp": ..., "data": dict},),
    (
        Line({"agentId": str}, timed=True, of="subagents'", beside=True),
        Line({"data.parentToolCallId": str}, timed=True, of="subagents'", beside=True),
        Line("tool.execution_start", "assistant", "data=tool_call", once=True),
        Line("tool.execution_complete", "tool", "data=tool_result"),
        Line("session.start", sets={"id": "data.sessionId", "cwd": "data.context.cwd"}),
        Line("user.message", "user", "data.content"),
        Line({"system.message", "system.notification"}, "system", "data.content"),
        Line(
            "assistant.message",
            "assistant",
            "data.reasoningText:thinking data.content data.toolRequests",
            sets={"model": "data.model"},
        ),
        Line("session.error", error="data.message"),
        Line("abort", error="data.reason", stop="type"),
        Line(_COPILOT_BESIDE, timed=True, beside=True),
    ),
    known="id parentId agentId",
)
GEMINI_STREAM = Table(  # what `gemini --output-format stream-json` prints
    "gemini_stream",
    "type timestamp tool_id",
    (
        {"type": "init", "session_id": ..., "timestamp": ..., "model": ...},
        {"type": "message", "role": ..., "content": ..., "timestamp": ...},
        {"type": "tool_use", "tool_name": ..., "tool_id": ..., "parameters": ...},
        {"type": "tool_result", "tool_id": ..., "status": ..., "timestamp": ...},
        {"type": "result", "status": ..., "timestamp": ...},
    ),
    (
        Line("init", sets={"id": "session_id", "model": "model", "ended": False}),
        Line({"type": "message", "role": "assistant", "delta": True}, "assistant", "content", piece=True),
        Line({"type": "message", "role": str}, "=role", "content"),
        Line("tool_use", "assistant", "=tool_use"),
        Line("tool_result", "tool", "=tool_result"),
        Line("result", sets={"ended": True}, error="error.message", stop="status"),
        Line({"error", "warning"}, timed=True, beside=True),  # after which it went on
    ),
    ended=False,
)
_AUTOGEN = {"source": str, "type": str, "models_usage": ..., "content": ...}


def _messages(
    name: str, members: str, message: dict[str, Any], role: str, parts: str, within: str = "", at: str = "-"
) -> Table:
    """Return the table of messages that are all alike."""
    line = Line(message, role, parts, stop="finish_reason")
    return Table(name, members, (message,), (line,), within=within, at=at, ended=True)


CHATS = (
    Table(  # AutoGen's AgentChat; the messages of a TaskResult
        "autogen",
        "source type models_usage content",
        (_AUTOGEN,),
        (
            Line("ToolCallRequestEvent", "assistant", "content:tool_call"),
            Line("ToolCallExecutionEvent", "tool", "content:tool_result"),
            Line("ThoughtEvent", "assistant", "content:thinking"),
            Line({"source": set(ROLES)}, "=source", "content"),
            Line({}, "assistant", "content"),  # of an agent with a name
        ),
        within="messages",
        known="source type",
        ended=True,
    ),
    _messages(
        "pydantic_ai",
        "parts kind",
        {"kind": {"request", "response"}, "parts": list},
        "=kind",
        "parts",
        at="timestamp",
    ),
    _messages(
        "agent_framework",
        "messages type contents",
        {"type": "chat_message", "contents": list},
        "=role.value",
        "contents",
        "messages",
    ),
    _messages(
        "haystack", "role meta content", {"role": str, "meta": dict, "content": list}, "=role", "content"
    ),
    _messages(  # `goose session export --format json`, and `goose run --output-format json`
        "goose", "conversation working_dir", _SPOKEN, "=role", "content", "conversation messages", "created"
    ),
    Table(  # ~/.local/share/amp/threads/*.json
        "amp",
        "v messages messageId",
        ({"role": {"user", "assistant", "info"}, "messageId": ..., "content": list},),
        (
            Line({"role": "info"}, "system", "content"),
            Line({"role": str}, "=role", "content", stop="state.type state.stopReason"),
        ),
        within="messages",
        known="messageId",
        ended=True,
    ),
    _messages("sharegpt", "conversations", {"from": str, "value": str}, "=from", "value", "conversations"),
)
TABLES = (PI, CURSOR, DROID, GOOSE, DROID_STREAM, KIMI, MANAGED, QWEN, GROK, ANTIGRAVITY)


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
        table.members,
        lambda document: recognises(document) or are_all(recognises, document),
        runs,
    )


def format_of(table: Table) -> InputFormat:
    """Return the format of a program's sessions."""
    return of_lines(
        table.name,
        table.members,
        partial(_is_first, table),
        lambda name: _Reader(table),
    )


def lines_format_of(table: Table) -> InputFormat:
    """Return a format that only lines have: a list of them is another format."""
    own = format_of(table)
    return replace(own, recognises=lambda document: isinstance(document, dict) and own.recognises(document))
