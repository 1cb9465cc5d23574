"""Sessions of Pi: ``~/.pi/agent/sessions/*/*.jsonl``, and what ``pi --mode json`` prints.

OpenClaw is built on Pi: its sessions are ``~/.openclaw/agents/*/sessions/*.jsonl``. A session has a message
on each line. The printed events have the same messages, after their pieces.

Source: https://github.com/badlogic/pi-mono, ``packages/coding-agent/docs/session.md`` and ``json.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.input_format import of_lines
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import InputModel, count_unread
from knowledgepulse_schemas.convert.sessions import Reader, event_of

NAME = "pi"

_MESSAGES = {"message", "message_end"}
_BOOKKEEPING = (
    *(
        "agent_",
        "auto_",
        "compaction_",
        "message_",
        "queue_",
        "session_",
        "thinking_level_",
        "tool_",
        "turn_",
    ),
    *("custom", "label", "model_change"),
)
"""How the types of lines begin that hold no content, or repeat a message's."""
_NOTICES = {"bashExecution", "branchSummary", "compactionSummary", "custom", "hookMessage", "system"}
"""Roles of messages that the program or an extension writes."""
_ROLES = {"user", "assistant", "toolResult", *_NOTICES}


class _Block(InputModel):
    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    arguments: Any = None


class _Message(InputModel):
    role: str
    content: str | list[_Block] | None = None
    timestamp: Any = None
    model: str | None = None
    stop: str | None = Field(default=None, alias="stopReason")
    error: str | None = Field(default=None, alias="errorMessage")
    call: str | None = Field(default=None, alias="toolCallId")
    tool: str | None = Field(default=None, alias="toolName")
    is_error: bool | None = Field(default=None, alias="isError")
    command: str | None = None
    output: str | None = None
    summary: str | None = None


class _Event(InputModel):
    type: str
    id: str | None = None
    parent: str | None = Field(default=None, alias="parentId")
    timestamp: Any = None
    cwd: str | None = None
    message: _Message | None = None
    summary: str | None = None
    content: str | list[_Block] | None = None
    retries: bool | None = Field(default=None, alias="willRetry")


def _recognises(line: dict[str, Any]) -> bool:
    match line:
        case {"type": "session", "id": str(), "timestamp": _, "cwd": _}:
            return True
        case {"type": str(kind), "message": {"role": str(role), "content": list(), "timestamp": int()}}:
            return kind in _MESSAGES and role in _ROLES  # those of Droid have no time of their own
    return False


class _Reader(Reader):  # printed events without their end were cut off
    def add(self, value: dict[str, Any]) -> None:
        """Add a line."""
        transcript = self.transcript
        kind = str(value.get("type"))
        if kind.startswith(_BOOKKEEPING) and kind not in {*_MESSAGES, "agent_end", "custom_message"}:
            self.has_ended = False if kind == "agent_start" else self.has_ended
            transcript.losses.add(kind, value)
            return
        if (event := event_of(_Event, value, transcript.losses)) is None:
            return
        at = transcript.reached(event.timestamp)
        if kind == "agent_end":
            self.has_ended = not event.retries
            transcript.losses.add(kind, value)
            return
        if kind == "session":
            transcript.began(event.id, event.cwd)
        elif kind in _MESSAGES and event.message is not None:
            self._add_message(event.message)
        elif event.summary is not None or kind == "custom_message":
            texts = [event.summary or "", *_texts(event.content, kind, transcript.losses)]
            transcript.add("system", [hub.Text("\n".join(filter(None, texts)))], at)
        else:
            transcript.losses.add_unknown(kind, value)
            return
        count_unread(event, kind, transcript.losses)

    def _add_message(self, message: _Message) -> None:
        transcript, path = self.transcript, f"message of {message.role}"
        at = transcript.reached_milliseconds(message.timestamp)
        if message.role == "assistant":
            transcript.named(message.model)
            transcript.add(
                "assistant", [*_parts(message.content, path, transcript.losses), *_errors(message)], at
            )
            return
        text = "\n".join(_texts(message.content, path, transcript.losses))
        if message.role == "toolResult":
            failed = message.is_error is True
            transcript.add("tool", [hub.ToolCallResponse(text, message.call, message.tool, failed)], at)
        elif message.role == "user":
            transcript.add("user", [hub.Text(text)], at)
        elif message.role in _NOTICES:
            own = filter(None, (message.command, message.output, message.summary, text))
            transcript.add("system", [hub.Text("\n".join(own))], at)
        else:
            transcript.losses.add_unknown(path, text, message.model_dump())


def _errors(message: _Message) -> Iterator[hub.Error]:
    """Yield an error if the user or a fault ended an answer, or if it was cut off."""
    if message.stop == "aborted":
        yield hub.Error(message.error or "", interruption=True)
    elif message.stop == "error":
        yield hub.Error(message.error or "")
    else:
        yield from hub.cut_off(message.stop)


def _texts(content: str | list[_Block] | None, path: str, losses: Losses) -> list[str]:
    return [part.content for part in _parts(content, path, losses) if isinstance(part, hub.Text)]


def _parts(content: str | list[_Block] | None, path: str, losses: Losses) -> Iterator[hub.Part]:
    for block in [content] if isinstance(content, str) else content or ():
        if isinstance(block, str):
            yield hub.Text(block)
        elif block.type == "text":
            yield hub.Text(block.text or "")
        elif block.type == "thinking":
            yield hub.Reasoning(block.thinking or "")
        elif block.type == "toolCall":
            yield hub.ToolCall(block.name or "", block.arguments, block.id)
        elif block.type == "image":
            losses.add(f"{path}.{block.type}", "-")
        else:
            losses.add_unknown(f"{path}.{block.type}", block.text or "-", block.model_dump())


FORMAT = of_lines(NAME, "type id timestamp cwd", _recognises, _Reader)
