"""Sessions of Gemini CLI: ``~/.gemini/tmp/*/chats/session-*.json`` and, since 0.40, ``.jsonl``.

Lines change the conversation: a message with a known id replaces that one, ``$rewindTo`` removes a message
and those after it, ``$set`` with messages replaces all. A message has its calls with their results.

Source: https://github.com/google-gemini/gemini-cli, ``packages/core/src/services/chatRecordingTypes.ts``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from knowledgepulse_schemas.convert import gemini, hub
from knowledgepulse_schemas.convert.errors import ConversionError
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import SourceModel, as_text, count_others, count_unread, read
from knowledgepulse_schemas.convert.sessions import Transcript, first_line, lines_of
from knowledgepulse_schemas.convert.source import of_session

NAME = "gemini_cli"

_Turn = tuple[hub.Role, tuple[hub.Part, ...], Any]
"""A message and its time."""
_NOTICES = ("/", "?", "<session_context>", "<hook_context>")
"""How texts begin that Gemini CLI does not send as requests."""
_FAILED = {"error", "cancelled"}


class _Thought(SourceModel):
    subject: str | None = None
    description: str | None = None


class _Call(SourceModel):
    id: str | None = None
    name: str
    args: Any = None
    result: Any = None
    status: str | None = None


class _Message(SourceModel):
    id: str
    type: str
    timestamp: Any = None
    content: Any = None
    thoughts: list[_Thought] = Field(default_factory=list)
    calls: list[_Call] = Field(default_factory=list, alias="toolCalls")
    model: str | None = None


def _recognises(document: Any) -> bool:
    line = first_line(document)
    return isinstance(line, dict) and isinstance(line.get("sessionId"), str) and "projectHash" in line


def _runs(document: Any) -> Iterator[hub.Run]:
    session = _Session()
    for line in lines_of(document, session.losses):
        session.add(line)
    run = session.finish()
    if run.messages:
        yield run


class _Session:
    def __init__(self) -> None:
        self._transcript = Transcript(NAME)
        self._messages: dict[str, list[_Turn]] = {}

    @property
    def losses(self) -> Losses:
        return self._transcript.losses

    def add(self, line: dict[str, Any]) -> None:
        """Add a line, or a whole session."""
        if isinstance(line.get("$rewindTo"), str):
            self._rewind(line["$rewindTo"])
        elif isinstance(line.get("$set"), dict):
            if isinstance(line["$set"].get("messages"), list):
                self._messages.clear()
            self._add_session(line["$set"])
        elif isinstance(line.get("id"), str) and "type" in line:
            self._add_message(line)
        else:
            self._add_session(line)

    def finish(self) -> hub.Run:
        """Return the run."""
        for parts in self._messages.values():
            for role, own, time in parts:
                self._transcript.add(role, own, self._transcript.reached(time))
        return self._transcript.finish()

    def _add_session(self, session: dict[str, Any]) -> None:
        run = self._transcript.run
        if isinstance(session.get("sessionId"), str):
            run.native_id = session["sessionId"]
        for value in session["messages"] if isinstance(session.get("messages"), list) else ():
            self._add_message(value)
        count_others(session, {"sessionId", "messages"}, "", self.losses)

    def _rewind(self, message_id: str) -> None:
        """Remove a message and those after it; all, if there is no such message."""
        ids = list(self._messages)
        first = ids.index(message_id) if message_id in self._messages else 0
        for one in ids[first:]:
            self.losses.add("messages that were taken back", _texts(self._messages.pop(one)))

    def _add_message(self, value: Any) -> None:
        try:
            message = read(_Message, value)
            parts = list(self._converted(message))
        except ConversionError:
            self.losses.add("messages of another form", value)
            return
        if message.id not in self._messages:  # a later version repeats the earlier one
            count_unread(message, "messages[]", self.losses)
        self._messages[message.id] = parts
        self._transcript.named(message.model)

    def _converted(self, message: _Message) -> Iterator[_Turn]:
        """Yield a message, and the responses to its calls."""
        content = message.content if isinstance(message.content, list) else [message.content]
        parts = [{"text": part} if isinstance(part, str) else part for part in content if part is not None]
        body = gemini.message_of({"parts": parts}, "user", "messages[].content", self.losses)
        if message.type == "user":
            notice = hub.join_texts(body.parts).lstrip().startswith(_NOTICES)
            yield "system" if notice else "user", body.parts, message.timestamp
        elif message.type == "error":
            yield "assistant", (hub.Error(hub.join_texts(body.parts)),), message.timestamp
        elif message.type == "gemini":
            thoughts = (
                hub.Reasoning("\n".join(text for text in (one.subject, one.description) if text))
                for one in message.thoughts
            )
            calls = (hub.ToolCall(call.name, call.args, call.id) for call in message.calls)
            yield "assistant", (*thoughts, *body.parts, *calls), message.timestamp
            for call in message.calls:
                yield from self._responses(call, message.timestamp)
        else:
            self.losses.add(f"messages[] of type {message.type}", message.content)

    def _responses(self, call: _Call, time: Any) -> Iterator[_Turn]:
        if call.result is None and call.status not in _FAILED:
            return
        values = call.result if isinstance(call.result, list) else [call.result]
        texts = [text for value in values if (text := self._response_text(value))]
        response = hub.ToolCallResponse("\n".join(texts), call.id, call.name, failed=call.status in _FAILED)
        yield "tool", (response,), time

    def _response_text(self, value: Any) -> str:
        match value:
            case str():
                return value
            case {"functionResponse": {"response": dict(response)}} if len(response) == 1:
                return as_text(next(iter(response.values())))
            case {"text": text} | {"functionResponse": {"response": text}} if text is not None:
                return as_text(text)
        self.losses.add("messages[].toolCalls[].result[]", value)
        return ""


def _texts(parts: list[_Turn]) -> list[str]:
    return [part.content for _, own, _ in parts for part in own if isinstance(part, hub.Text | hub.Reasoning)]


SOURCE = of_session(NAME, "sessionId projectHash messages", _recognises, _runs)
