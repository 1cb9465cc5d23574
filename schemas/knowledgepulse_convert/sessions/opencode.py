"""What ``opencode export`` prints; the objects of OpenCode's storage, one per line.

In the storage, a session, its messages and their parts are files of their own; ``jq -c . FILES`` puts them on
lines, in any order.

Source: https://github.com/anomalyco/opencode, ``packages/opencode/src/session/message-v2.ts``.
Compared with: public files up to July 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, of_session
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import Pattern
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    read,
    text_or_none,
    without,
)
from knowledgepulse_convert.common.session_log import Transcript, lines_of, project_of
from knowledgepulse_convert.messages.blocks import Parts, is_failed

_BESIDE = {"agent", "compaction", "file", "patch", "retry", "snapshot", "step-finish", "step-start"}
"""Types of parts that hold no text, reasoning or call."""
_READ = {
    *("type", "id", "sessionID", "messageID", "text", "synthetic", "ignored", "tool", "callID", "state"),
    *("prompt", "time"),
}
"""Members of parts that are read, or that say nothing of the run."""
_ABORTED = "MessageAbortedError"


class _Info(InputModel):
    """A message without its parts."""

    role: str
    id: str | None = None
    session: str | None = Field(default=None, alias="sessionID")
    time: dict[str, Any] | None = None
    model_id: str | None = Field(default=None, alias="modelID")
    error: dict[str, Any] | None = None
    finish: str | None = None


@dataclass
class _Session:
    """The objects of a session: its messages by id, their parts by the message's id."""

    info: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    parts: dict[str, list[Any]] = field(default_factory=dict)


def _recognises(line: dict[str, Any]) -> bool:
    """Check for an export, or for an object of the storage."""
    return _is_export(line) or _kind(line) is not None


def _runs(document: Any) -> Iterator[ir.Run]:
    losses = Losses()
    sessions: dict[str, _Session] = {}
    for line in lines_of(document, losses):
        if _is_export(line):
            count_others(line, {"info", "messages"}, "", losses)
            yield _run(line["info"], line["messages"], losses)
            losses = Losses()
        elif (kind := _kind(line)) is not None:
            _store(line, kind, sessions)
        else:
            losses.add_unknown("objects of another form", line)
    for session in sessions.values():
        messages = [
            {
                "info": session.messages[message_id],
                "parts": sorted(session.parts.get(message_id, ()), key=_id),
            }
            for message_id in sorted(session.messages)
        ]
        yield _run(session.info, messages, losses)
        losses = Losses()


def _is_export(line: dict[str, Any]) -> bool:
    messages = line.get("messages")
    if not isinstance(line.get("info"), dict) or not isinstance(messages, list):
        return False
    return all(isinstance(message, dict) and "info" in message and "parts" in message for message in messages)


_OF_SESSION = {"sessionID": str, "id": str}
_KINDS = {
    "part": Pattern({**_OF_SESSION, "messageID": str, "type": str}),
    "message": Pattern({**_OF_SESSION, "role": {"user", "assistant"}}),
    "session": Pattern({"id": str, "projectID": ..., "directory": ..., "time": ...}),
}
"""What the objects of the storage have."""


def _kind(line: dict[str, Any]) -> str | None:
    """Return the kind of an object of the storage."""
    return next((kind for kind, pattern in _KINDS.items() if pattern.fits(line)), None)


def _store(line: dict[str, Any], kind: str, sessions: dict[str, _Session]) -> None:
    session = sessions.setdefault(line["id"] if kind == "session" else line["sessionID"], _Session())
    if kind == "session":
        session.info = line
    elif kind == "message":
        session.messages[line["id"]] = line
    else:
        session.parts.setdefault(line["messageID"], []).append(line)


def _id(value: Any) -> str:
    return str(value.get("id")) if isinstance(value, dict) else ""


def _run(info: dict[str, Any], messages: Iterable[Any], losses: Losses) -> ir.Run:
    transcript = Transcript()
    transcript.losses.merge(losses)
    run = transcript.run
    run.names = project_of(info.get("directory"))
    run.native_id, run.parent_id = text_or_none(info.get("id")), text_or_none(info.get("parentID"))
    count_others(info, {"id", "parentID"}, "info", transcript.losses)
    for message in messages:
        _add_message(message, transcript)
    return transcript.finish()


def _add_message(message: Any, transcript: Transcript) -> None:
    losses = transcript.losses
    try:
        info = read(_Info, message["info"])
    except ConversionError:
        losses.add_unknown("messages of another form", message)
        return
    count_others(message, {"info", "parts"}, "messages[]", losses)
    count_unmapped(info, "messages[].info", losses)
    transcript.named(info.model_id)
    transcript.run.native_id = transcript.run.native_id or info.session
    span = info.time or {}
    count_others(span, {"created", "completed"}, "messages[].info.time", losses)
    at = transcript.reached_milliseconds(span.get("completed") or span.get("created"))
    default: ir.Role = "user" if info.role == "user" else "assistant"
    for value in message["parts"] if isinstance(message["parts"], list) else ():
        for role, own in parts_of(value, "messages[].parts[]", losses):
            transcript.add(role or default, [own], at)
    if info.error is not None:
        transcript.add("assistant", [_error(info.error, "messages[].info.error", losses)], at)
    transcript.add("assistant", ir.cut_off(info.finish), at)


def _error(failure: dict[str, Any], path: str, losses: Losses) -> ir.Error:
    data = failure.get("data")
    count_others(failure, {"name", "data"}, path, losses)
    message = data.get("message") if isinstance(data, dict) else data
    count_others(data if isinstance(data, dict) else {}, {"message"}, f"{path}.data", losses)
    return ir.Error(as_text(message or failure.get("name")), interruption=failure.get("name") == _ABORTED)


def parts_of(part: Any, path: str, losses: Losses, _kind: str = "") -> Parts:
    """Read a part of a message; one of another form is a suspect loss."""
    match part:
        case {"type": "text", "text": str(text)}:
            yield "system" if part.get("synthetic") or part.get("ignored") else None, ir.Text(text)
        case {"type": "reasoning", "text": str(text)}:
            yield "assistant", ir.Reasoning(text)
        case {"type": "subtask", "prompt": str(text)}:
            yield "user", ir.Text(text)
        case {"type": "tool", "tool": str(tool), "state": dict(state)}:
            yield from _call(tool, text_or_none(part.get("callID")), state, f"{path}.state", losses)
        case {"type": str(kind)}:
            add = losses.add if kind in _BESIDE else losses.add_unknown
            add(f"{path} of type {kind}", without(part, *_READ))
            return
        case _:
            losses.add_unknown(f"{path} of another form", part)
            return
    count_others(part, _READ, path, losses)
    if isinstance(part.get("time"), dict):
        count_others(part["time"], {"start", "end"}, f"{path}.time", losses)


def _call(tool: str, call_id: str | None, state: dict[str, Any], path: str, losses: Losses) -> Parts:
    count_others(state, {"status", "input", "output", "error", "time"}, path, losses)
    latency = None
    match state.get("time"):
        case {"start": int() | float() as start, "end": int() | float() as end, **rest}:
            latency = end - start
            count_others(rest, set(), f"{path}.time", losses)
    arguments, failed = state.get("input"), is_failed(state)
    match tool, arguments:
        case "invalid", {"tool": str(called), **rest}:  # the program's own answer to a call that cannot be
            losses.add(f"{path}.input.error", rest.pop("error", None))
            tool, arguments, failed = called, rest, True
    yield "assistant", ir.ToolCall(tool, arguments, call_id, latency_ms=latency)
    if state.get("status") in ("completed", "error"):
        text = as_text(state.get("error" if state["status"] == "error" else "output"))
        yield "tool", ir.ToolCallResponse(text, call_id, tool, failed=failed)


FORMAT = InputFormat(
    "opencode",
    __doc__,
    "info messages",
    *of_session(_recognises, _runs),
    coding_agent=True,
    places={"OpenCode": ("~/.local/share/opencode/opencode.db",)},
)
