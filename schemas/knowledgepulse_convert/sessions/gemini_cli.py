"""Sessions of Gemini CLI: ``~/.gemini/tmp/*/chats/session-*.json`` and, since 0.40, ``.jsonl``.

Lines change the conversation: a message with a known id replaces that one, ``$rewindTo`` removes a message
and those after it, ``$set`` with messages replaces all. A message has its calls with their results.

Source: https://github.com/google-gemini/gemini-cli, ``packages/core/src/services/chatRecordingTypes.ts``.
Compared with: public files from before and since 0.40, and runs of 0.61.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, of_lines
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    read,
)
from knowledgepulse_convert.common.session_log import TAKEN_BACK, Reader
from knowledgepulse_convert.common.statuses import is_failure
from knowledgepulse_convert.messages import gemini

_Turn = tuple[ir.Role, tuple[ir.Part, ...], Any]
"""A message and its time."""
_Version = tuple[list[_Turn], Losses]
"""A message with the responses to its calls, and its losses."""
_NOTICES = ("/", "?", "<session_context>", "<hook_context>")
"""How texts begin that Gemini CLI does not send as requests."""
_NOTES = {"info", "warning"}
"""Types of messages from the program to the user."""


class _Thought(InputModel):
    subject: str | None = None
    description: str | None = None


class _Call(InputModel):
    id: str | None = None
    name: str
    args: Any = None
    result: Any = None
    status: str | None = None


class _Message(InputModel):
    id: str
    type: str
    timestamp: Any = None
    content: Any = None
    thoughts: list[_Thought] = Field(default_factory=list)
    calls: list[_Call] = Field(default_factory=list, alias="toolCalls")
    model: str | None = None


class _Session(Reader):
    def __init__(self) -> None:
        super().__init__()
        self._messages: dict[str, _Version] = {}

    def add(self, line: dict[str, Any]) -> None:
        """Add a line, or a whole session."""
        if isinstance(line.get("$rewindTo"), str):
            self._rewind(line["$rewindTo"])
            count_others(line, {"$rewindTo"}, "$rewindTo", self.losses)
        elif isinstance(line.get("$set"), dict):
            count_others(line, {"$set"}, "$set", self.losses)
            self._replace(line["$set"])
        elif isinstance(line.get("id"), str) and "type" in line:
            self._add_message(line)
        else:
            self._add_session(line)

    def finish(self) -> ir.Run:
        """Return the run."""
        for turns, losses in self._messages.values():
            self.losses.merge(losses)
            for role, own, time in turns:
                self.transcript.add(role, own, self.transcript.reached(time))
        return super().finish()

    def _add_session(self, session: dict[str, Any]) -> None:
        run = self.transcript.run
        if isinstance(session.get("sessionId"), str):
            run.native_id = session["sessionId"]
        for value in session["messages"] if isinstance(session.get("messages"), list) else ():
            self._add_message(value)
        count_others(session, {"sessionId", "messages"}, "", self.losses)

    def _replace(self, session: dict[str, Any]) -> None:
        """Set members of the session; messages replace all that there are."""
        earlier = self._messages
        if isinstance(session.get("messages"), list):
            self._messages = {}
        self._add_session(session)
        for message_id, version in earlier.items():
            if message_id not in self._messages:
                self._take_back(version)
            else:
                self._count_replaced(version, self._messages[message_id])

    def _rewind(self, message_id: str) -> None:
        """Remove a message and all later ones; remove every message if there is no such message."""
        ids = list(self._messages)
        first = ids.index(message_id) if message_id in self._messages else 0
        for later_id in ids[first:]:
            self._take_back(self._messages.pop(later_id))

    def _take_back(self, version: _Version) -> None:
        turns, losses = version
        self.losses.add(TAKEN_BACK, [asdict(part) for _, parts, _ in turns for part in parts], is_known=True)
        self.losses.merge(losses)

    def _count_replaced(self, earlier: _Version, version: _Version) -> None:
        """Count what an earlier version of a message has besides."""
        told = {ir.Text(""), *(_key(part) for _, parts, _ in version[0] for part in parts)}
        parts = (part for _, parts, _ in earlier[0] for part in parts)
        self.losses.add(TAKEN_BACK, [asdict(part) for part in parts if _key(part) not in told], is_known=True)

    def _add_message(self, value: Any) -> None:
        losses = Losses()
        try:
            message = read(_Message, value)
            turns = list(_turns_of(message, losses))
        except ConversionError:
            self.losses.add_unknown("messages of another form", value)
            return
        count_unmapped(message, "messages[]", losses)
        if message.id in self._messages:
            self._count_replaced(self._messages[message.id], (turns, losses))
        self._messages[message.id] = turns, losses
        self.transcript.named(message.model)


def _key(part: ir.Part) -> ir.Part:
    """Return what is equal for equal parts, and can be looked up, which arguments of calls cannot."""
    if not isinstance(part, ir.ToolCall):
        return part
    return replace(part, arguments=json.dumps(part.arguments, sort_keys=True, default=repr))


def _turns_of(message: _Message, losses: Losses) -> Iterator[_Turn]:
    """Yield a message, and the responses to its calls."""
    content = message.content if isinstance(message.content, list) else [message.content]
    parts = [{"text": part} if isinstance(part, str) else part for part in content if part is not None]
    body = gemini.message_of({"parts": parts}, "user", "messages[].content", losses)
    if message.type == "user":
        notice = ir.join_texts(body.parts).lstrip().startswith(_NOTICES)
        yield "system" if notice else "user", body.parts, message.timestamp
    elif message.type == "error":
        yield "assistant", (ir.Error(ir.join_texts(body.parts)),), message.timestamp
    elif message.type == "gemini":
        thoughts = (
            ir.Reasoning("\n".join(text for text in (thought.subject, thought.description) if text))
            for thought in message.thoughts
        )
        calls = (ir.ToolCall(call.name, call.args, call.id) for call in message.calls)
        yield "assistant", (*thoughts, *body.parts, *calls), message.timestamp
        for call in message.calls:
            yield from _responses(call, message.timestamp, losses)
    else:
        path = f"messages[] of type {message.type}"
        if message.type in _NOTES:
            losses.add(path, message.content)
        else:
            losses.add_unknown(path, message.content, message.model_dump())


def _responses(call: _Call, time: Any, losses: Losses) -> Iterator[_Turn]:
    if call.result is None and not is_failure(call.status):
        return
    values = call.result if isinstance(call.result, list) else [call.result]
    texts = [text for value in values if (text := _response_text(value, losses))]
    response = ir.ToolCallResponse("\n".join(texts), call.id, call.name, failed=is_failure(call.status))
    yield "tool", (response,), time


def _response_text(value: Any, losses: Losses) -> str:
    path = "messages[].toolCalls[].result[]"
    match value:
        case str():
            return value
        case {"functionResponse": {"response": response, **answered}, **rest} if response is not None:
            count_others(rest | answered, {"id", "name"}, path, losses)
            is_wrapped = isinstance(response, dict) and len(response) == 1
            return as_text(next(iter(response.values())) if is_wrapped else response)
        case {"text": text, **rest} if text is not None:
            count_others(rest, set(), path, losses)
            return as_text(text)
    losses.add(path, value)
    return ""


FORMAT = InputFormat(
    "gemini_cli",
    __doc__,
    "sessionId projectHash messages",
    *of_lines(any_of({"sessionId": str, "projectHash": ...}), _Session),
    coding_agent=True,
    unrecorded=("finish reasons",),
    places={"Gemini CLI": ("~/.gemini/tmp/*/chats/session-*.json*",)},
)
