"""Session logs of Claude Code: ``~/.claude/projects/*/*.jsonl``, of a session or of a subagent.

The lines are messages of the Messages API among many others. There is no published schema; the rules follow
logs of versions 1.0 to 2.1.

Accepts: Claude Code's logs, of a session or of a subagent; those of the web, in ``loglines``; also lines
    cut down to ``type`` and ``message``.
Source: none is published.
Compared with: public files of 1.0 to 2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.endings import ending_by
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, of_session
from knowledgepulse_convert.common.reading import InputModel, count_others, count_unmapped, read
from knowledgepulse_convert.common.session_log import Transcript, lines_of, project_of
from knowledgepulse_convert.common.words import words
from knowledgepulse_convert.messages import anthropic

_KINDS = words("user assistant system summary attachment progress file-history-snapshot queue-operation")
_FOREIGN = {"reasoning_effort", "toolId", "finalText", "traceSchema", "systemPayload", "generationStatus"}
"""Members of the lines of Droid, OpenClaw's trajectories, Qwen Code and Vibe, which are similar."""
_STREAMED = {"session_id", "parent_tool_use_id", "id"}
"""Members of the lines that other programs print, with the same messages."""
_INTERRUPTIONS = {"[Request interrupted by user]", "[Request interrupted by user for tool use]"}
_COMMAND = re.compile(
    r"<command-message>(?>.*?</command-message>)\s*<command-name>(?>(.*?)</command-name>)"
    r"(?:\s*<command-args>(.*?)</command-args>)?",
    re.DOTALL,
)
_NOTICE = re.compile(
    r"\s*<(?:local-command-\w+|command-name|bash-(?:input|stdout|stderr)|task-notification|system-reminder"
    r"|ide_\w+|user-memory-input|[\w-]+-hook)>"
)
"""How texts begin that Claude Code itself puts among the user's."""
_ORDER = re.compile(r"\s*<command-name>.*<command-args>\s*[^\s<]", re.DOTALL)
"""A built-in command with arguments, such as /goal: a request, if the session has no other."""
_HERMES = "hermes-agent"
"""The version that Hermes Agent writes, whose traces in this form tell neither."""
_SYNTHETIC = "<synthetic>"
"""The model of texts that Claude Code itself adds to the agent's, such as "No response requested."."""
_BOOKKEEPING = words(
    """
    system summary attachment progress file-history-snapshot queue-operation last-prompt custom-title ai-title
    agent-name agent-color agent-setting tag mode pr-link permission-mode worktree-state content-replacement
    attribution-snapshot saved_hook_context speculation-accept started result hook_progress task-summary
    bridge-session api-request api-request-shape api-request-blob
    """
)
"""Types of lines about the session; those of its messages are "user" and "assistant"."""


class _Message(InputModel):
    id: str | None = None
    role: str | None = None
    model: str | None = None
    content: Any = None
    stop_reason: str | None = None


class _Line(InputModel):
    type: str
    uuid: str | None = None
    parent: str | None = Field(default=None, alias="parentUuid")
    session: str | None = Field(default=None, alias="sessionId")
    agent: str | None = Field(default=None, alias="agentId")
    timestamp: Any = None
    sidechain: bool | None = Field(default=None, alias="isSidechain")
    meta: bool | None = Field(default=None, alias="isMeta")
    compact_summary: bool | None = Field(default=None, alias="isCompactSummary")
    api_error: bool | None = Field(default=None, alias="isApiErrorMessage")
    message: _Message | None = None
    attachment: dict[str, Any] | None = None
    cwd: str | None = None


def _recognises(line: dict[str, Any]) -> bool:
    kind, message = line.get("type"), line.get("message")
    if not isinstance(kind, str) or isinstance(message, str) or not _FOREIGN.isdisjoint(line):
        return False
    has_parts = isinstance(message, dict) and "parts" in message  # of Gemini CLI's forks
    if "parentUuid" in line or "isSidechain" in line:
        return not has_parts and ("sessionId" in line or "uuid" in line)
    if "sessionId" in line:  # a line about the session
        return kind in _KINDS or not {"message", "content", "role", "parts"} & set(line)
    if kind in ("user", "assistant") and isinstance(message, dict):  # a program kept the messages alone
        is_message = "content" in message and message.get("role", kind) == kind
        is_dated = isinstance(line.get("timestamp", ""), str)
        return is_message and is_dated and not has_parts and _STREAMED.isdisjoint(line)
    return (kind == "summary" and "leafUuid" in line) or (
        kind == "file-history-snapshot" and "snapshot" in line
    )


def _runs(document: Any) -> Iterator[ir.Run]:
    session = Session()
    for value in lines_of(document, session.main.losses):
        session.add(value)
    yield from session.runs()


class Session:
    """Reads the lines of a session, and those of its subagents among them."""

    def __init__(self) -> None:
        self.main = Transcript()
        self._session: str | None = None
        self._sidechains: dict[str, Transcript] = {}
        self._chains: dict[str, str] = {}  # the sidechain of each of their lines
        self._seen: set[int] = set()  # hashes of the lines' ids, which take less memory
        self._cut_off: dict[Transcript, str | None] = {}  # answers that ended too early
        self._orders: dict[Transcript, int] = {}  # position of the first built-in command with a request
        self._commands: dict[str, int] = {}  # position of a custom command's message, by the id of its line

    def add(self, value: dict[str, Any]) -> None:
        """Add a line."""
        losses = self.main.losses
        try:
            line = read(_Line, value)
            if line.uuid is not None and hash(line.uuid) in self._seen:
                return  # a resumed session repeats the lines before it
            self._seen.update([hash(line.uuid)] if line.uuid is not None else [])
            transcript = self._transcript_of(line)
            losses = transcript.losses
            if value.get("version") == _HERMES:
                transcript.run.unrecorded = ("failed calls", "finish reasons")
            if line.message is not None and line.type in ("user", "assistant"):
                self._add_message(line, line.message, transcript)
            else:
                self._add_other(line, transcript)
        except ConversionError:
            losses.add_unknown(f"{value.get('type')} lines of another form", value)

    def runs(self, *, ended: bool | None = None) -> Iterator[ir.Run]:
        """Yield the runs that have messages. A sidechain without its request is a loss.

        Args:
            ended: whether the agent had ended, if that is recorded.
        """
        self._seen.clear()  # the runs are in memory for longer
        self.main.run.native_id = self._session or self.main.run.native_id
        whole = [transcript for transcript in self._sidechains.values() if self._has_request(transcript)]
        transcripts = [transcript for transcript in (self.main, *whole) if transcript.run.messages]
        for fragment in self._sidechains.values():
            if fragment not in whole:
                contents = ir.contents_of(fragment.run.messages)
                self.main.losses.add("sidechains without their request", contents)
                self.main.losses.merge(fragment.losses)
        if transcripts and not self.main.run.messages:
            transcripts[0].losses.merge(self.main.losses)
        for transcript in transcripts:
            self._end_answer(transcript)
            if transcript in self._orders and not self._has_request(transcript):
                transcript.change(self._orders[transcript], role="user")
            yield _finished(transcript, ended=ended if transcript is self.main else None)

    def answer(self, chain: str, text: str) -> None:
        """Add the answer of a subagent, if there is one with this id: its own lines may not hold it."""
        if chain in self._sidechains and self._sidechains[chain].last_text() != text:
            self._sidechains[chain].add("assistant", [ir.Text(text)])

    def _has_request(self, transcript: Transcript) -> bool:
        return any(message.role == "user" for message in transcript.run.messages)

    def _transcript_of(self, line: _Line) -> Transcript:
        if not line.sidechain:
            self._session = line.session or self._session
            if line.message is not None and line.parent is None:
                self.main.began(line.session)
            return self.main
        chain = line.agent or self._chains.get(line.parent or "") or line.uuid or ""
        if line.uuid is not None:
            self._chains[line.uuid] = chain
        if chain not in self._sidechains:
            self._sidechains[chain] = Transcript()
            self._sidechains[chain].run.native_id = f"{line.session}/{chain}"
            self._sidechains[chain].run.parent_id = line.session
        return self._sidechains[chain]

    def _add_other(self, line: _Line, transcript: Transcript) -> None:
        """Add a text that the user wrote while the agent worked. Any other line is a loss."""
        queued = line.attachment or {}
        if queued.get("type") == "queued_command" and isinstance(queued.get("prompt"), str):
            mode = queued.get("commandMode", "prompt")
            text = ir.Text(queued["prompt"])
            transcript.add(
                "user" if mode == "prompt" else "system", [text], transcript.reached(line.timestamp)
            )
            count_unmapped(line, line.type, transcript.losses)
            read_members = {"type", "prompt", "commandMode"}
            count_others(queued, read_members, f"{line.type}.attachment", transcript.losses)
            return
        names = [line.type, (line.model_extra or {}).get("subtype"), queued.get("type")]
        content = line.message and [line.message.content, line.message.model_extra]
        path = ".".join(name for name in names if isinstance(name, str))
        lost = [line.model_extra, queued, content]
        if line.type in _BOOKKEEPING:
            transcript.losses.add(path, lost)
        else:
            transcript.losses.add_unknown(path, lost, line.model_dump())

    def _add_message(self, line: _Line, message: _Message, transcript: Transcript) -> None:
        body = {"role": message.role or line.type, "content": message.content}
        [converted] = anthropic.messages_of([body], f"{line.type}.message", transcript.losses)
        at = transcript.reached(line.timestamp)
        transcript.run.names = transcript.run.names or project_of(line.cwd)
        count_unmapped(line, line.type, transcript.losses)
        self._end_answer(transcript, message.id)
        if converted.role == "assistant":
            self._add_answer(line, message, transcript, converted.parts)
            return
        if line.meta and self._expand(line, converted.parts, transcript):
            return
        for part in converted.parts:
            role, own = _of_user(part, system=bool(line.meta or line.compact_summary))
            position = transcript.add(role, [own], at)
            if position is None or not isinstance(own, ir.Text):
                continue
            if _ORDER.match(own.content):
                self._orders.setdefault(transcript, position)
            if line.uuid is not None and own is not part:
                self._commands[line.uuid] = position

    def _expand(self, line: _Line, parts: tuple[ir.Part, ...], transcript: Transcript) -> bool:
        """Append the parts to the custom command before them; return False if there is none.

        The name of a command alone does not tell what the user asked for.
        """
        position = self._commands.pop(line.parent or "", None)
        if position is None or not all(isinstance(part, ir.Text) for part in parts):
            return False
        command = transcript.run.messages[position]
        transcript.change(position, parts=(*command.parts, *parts))
        return True

    def _add_answer(
        self, line: _Line, message: _Message, transcript: Transcript, parts: tuple[ir.Part, ...]
    ) -> None:
        """Add a part of an answer: each block has a line of its own."""
        if line.api_error:
            parts = (ir.Error(ir.join_texts(parts)),)
        elif message.model != _SYNTHETIC:
            transcript.named(message.model)
        is_notice = message.model == _SYNTHETIC and not line.api_error
        role: ir.Role = "system" if is_notice else "assistant"
        transcript.add(role, parts, transcript.reached(line.timestamp))
        if any(ir.cut_off(message.stop_reason)):
            self._cut_off[transcript] = message.id

    def _end_answer(self, transcript: Transcript, message_id: str | None = None) -> None:
        """Add the interruption of an answer that was cut off, after its last line."""
        if transcript in self._cut_off and (message_id is None or self._cut_off[transcript] != message_id):
            del self._cut_off[transcript]
            transcript.add("assistant", [ir.Error(interruption=True)])


def _finished(transcript: Transcript, *, ended: bool | None) -> ir.Run:
    """Return a run. If it ends with a plan, the plan is its result, and it has not failed.

    When the user approves a plan and clears the context, the session ends with the call, or with the response
    and the interruption that a rejected call has. Another session then begins with "Implement the following
    plan". A rejected plan is usually followed by more of the session; otherwise the log looks the same.
    """
    messages = transcript.run.messages
    end = next((n for n in reversed(range(len(messages))) if _plan_of(messages[n]) is not None), None)
    if end is None:
        return transcript.finish(ended=ended)
    call_id, plan = _plan_of(messages[end]) or ("", "")
    after = [part for message in messages[end + 1 :] if message.role != "system" for part in message.parts]
    if not all(_is_end_of_call(part, call_id) for part in after):
        return transcript.finish(ended=ended)
    for position in range(end + 1, len(messages)):
        match messages[position].parts:
            case (ir.Error(message=text),):
                transcript.change(position, role="system", parts=(ir.Text(text),))
            case (ir.ToolCallResponse() as response,):
                transcript.change(position, parts=(replace(response, failed=False),))
    transcript.add("assistant", [ir.Text(plan)])
    return transcript.finish(ended=True)


def _plan_of(message: ir.Message) -> tuple[str | None, str] | None:
    """Return the id and the plan of a message's last part, if that presents one."""
    match message.parts[-1:]:
        case (ir.ToolCall(name=name, arguments={"plan": str(plan)}, id=call_id),) if ending_by(name):
            return call_id, plan
    return None


def _is_end_of_call(part: ir.Part, call_id: str | None) -> bool:
    if isinstance(part, ir.ToolCallResponse):
        return part.id == call_id
    return isinstance(part, ir.Error) and part.interruption


def _of_user(part: ir.Part, *, system: bool) -> tuple[ir.Role, ir.Part]:
    """Return a part of a user's line with its role: Claude Code writes lines in the user's name."""
    if not isinstance(part, ir.Text):
        return "tool", part
    if part.content in _INTERRUPTIONS:
        return "assistant", ir.Error(part.content, interruption=True)
    if system or _NOTICE.match(part.content):
        return "system", part
    if command := _COMMAND.match(part.content):
        told = (*command.groups(), part.content[command.end() :])
        return "user", ir.Text(" ".join(text.strip() for text in told if text and text.strip()))
    return "user", part


FORMAT = InputFormat(
    "claude_code",
    __doc__,
    "type uuid parentUuid sessionId message",
    *of_session(_recognises, _runs),
    coding_agent=True,
    places={"Claude Code": ("~/.claude/projects/**/*.jsonl",)},
)
