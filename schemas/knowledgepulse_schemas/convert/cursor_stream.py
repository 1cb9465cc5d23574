"""What ``cursor-agent -p --output-format stream-json`` prints: a session's events, one per line.

With ``--stream-partial-output``, an answer comes in pieces before it comes whole.

Source: https://cursor.com/docs/cli/reference/output-format.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.contents import Content, parts_of
from knowledgepulse_schemas.convert.input_format import of_lines
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import InputModel, as_text, count_others, count_unread, without
from knowledgepulse_schemas.convert.sessions import Reader, event_of

NAME = "cursor_stream"

_MEMBERS = {
    "system": {"subtype", "model"},
    "user": {"message"},
    "assistant": {"message"},
    "thinking": {"subtype"},
    "tool_call": {"subtype", "tool_call"},
    "result": {"subtype", "request_id"},
}
"""The members that each type of event has."""
_OTHERS = {"tools", "parent_tool_use_id", "timestamp"}
_SUFFIX = "ToolCall"
_OUTPUTS = {"stdout", "stderr", "interleavedOutput"}


class _Message(InputModel):
    role: str | None = None
    content: str | list[Content] | None = None


class _Event(InputModel):
    type: str
    subtype: str | None = None
    session_id: str | None = None
    timestamp_ms: float | None = None
    model_call_id: str | None = None
    model: str | None = None
    cwd: str | None = None
    message: _Message | None = None
    text: str | None = None
    call_id: str | None = None
    tool_call: dict[str, Any] | None = None
    result: str | None = None
    is_error: bool | None = None


def _recognises(line: dict[str, Any]) -> bool:
    """Check for an event; those of Claude Code, which are similar, have a ``uuid``."""
    if not isinstance(line.get("session_id"), str) or "uuid" in line:
        return False
    members = _MEMBERS.get(str(line.get("type")))
    return members is not None and members <= set(line) and not _OTHERS & set(line)


class _Stream(Reader):
    has_ended = False

    def __init__(self, framework: str) -> None:
        super().__init__(framework)
        self._pieces: list[hub.Text | hub.Reasoning] = []  # of an answer, or of a thought
        self._texts: list[str] = []  # of the agent

    def add(self, value: dict[str, Any]) -> None:
        """Add an event."""
        transcript = self.transcript
        if (event := event_of(_Event, value, self.losses)) is None:
            return
        transcript.began(event.session_id)
        at = transcript.reached_milliseconds(event.timestamp_ms)
        count_unread(event, event.type, self.losses)
        if event.type == "thinking":
            self._add_piece(hub.Reasoning(event.text or ""), at)
        elif event.message is not None and event.type in ("user", "assistant"):
            self._add_message(event, event.message, at)
        elif event.type == "tool_call" and event.tool_call is not None:
            self._end_pieces(at)
            self._add_call(event, event.tool_call, at)
        elif event.type == "result":
            self._end_pieces(at)
            self._add_result(event, at)
        else:
            self.has_ended = self.has_ended and event.subtype != "init"
            transcript.named(event.model)
            transcript.began(directory=event.cwd)
            for unread in (event.text, event.result, event.tool_call):
                self.losses.add(event.type, unread)

    def finish(self) -> hub.Run:
        """Return the run; without its result, it was cut off."""
        self._end_pieces(None)
        return super().finish()

    def _add_piece(self, piece: hub.Text | hub.Reasoning, at: datetime | None) -> None:
        if self._pieces and type(self._pieces[-1]) is not type(piece):
            self._end_pieces(at)
        self._pieces.append(piece)

    def _end_pieces(self, at: datetime | None) -> None:
        """Add what came in pieces."""
        text = "".join(piece.content for piece in self._pieces)
        if text and isinstance(self._pieces[0], hub.Reasoning):
            self.transcript.add("assistant", [hub.Reasoning(text)], at)
        elif text:
            self._add_text(text, at)
        self._pieces.clear()

    def _add_text(self, text: str, at: datetime | None) -> None:
        self._texts.append(text)
        self.transcript.add("assistant", [hub.Text(text)], at)

    def _add_message(self, event: _Event, message: _Message, at: datetime | None) -> None:
        path = f"{event.type}.message.content"
        parts = tuple(parts_of(message.content, path, self.losses))
        text = hub.join_texts(parts)
        if event.type == "user":
            self._end_pieces(at)
            self.transcript.add("user", parts, at)
        elif event.timestamp_ms is not None and event.model_call_id is None:
            self._add_piece(hub.Text(text), at)
        else:
            self._end_pieces(at)
            if not self._is_told(text):
                self._add_text(text, at)

    def _is_told(self, text: str) -> bool:
        """Check for a text that came in pieces, or for all of them."""
        return text in ("", "".join(self._texts[-1:]), "".join(self._texts))

    def _add_call(self, event: _Event, tool_call: dict[str, Any], at: datetime | None) -> None:
        called = next((name for name, member in tool_call.items() if isinstance(member, dict)), None)
        if called is None:
            self.losses.add("tool_call", tool_call)
            return
        count_others(tool_call, {called}, "tool_call", self.losses)
        details = dict(tool_call[called])
        result = details.pop("result", None)
        call = _call(called, details, event.call_id, self.losses)
        if not self.transcript.tell_again(call.id, call.arguments):
            self.transcript.add("assistant", [call], at)
        if event.subtype == "completed":
            text, failed = _result(result, self.losses)
            response = hub.ToolCallResponse(text, event.call_id, call.name, failed, call.mcp_server)
            self.transcript.add("tool", [response], at)

    def _add_result(self, event: _Event, at: datetime | None) -> None:
        """Add how the session ended; the result of a success is all of the agent's texts."""
        self.has_ended = True
        text = event.result or ""
        is_told = self._is_told(text) or "".join(text.split()) == "".join("".join(self._texts).split())
        if event.is_error:
            self.transcript.add("assistant", [hub.Error("" if is_told else text)], at)
        elif not is_told:
            self._add_text(text, at)


def _call(called: str, details: dict[str, Any], call_id: str | None, losses: Losses) -> hub.ToolCall:
    """Return a call: ``{"shellToolCall": {"args": …}}``, or ``{"function": {"name": …, "arguments": …}}``."""
    arguments = details.get("args", details.get("arguments"))
    count_others(details, {"args", "arguments", "name"}, f"tool_call.{called}", losses)
    match called, arguments:
        case "mcpToolCall", {"toolName": str(tool), "args": inner, **rest}:
            count_others(rest, {"providerIdentifier"}, "tool_call.mcpToolCall.args", losses)
            server = rest.get("providerIdentifier")
            return hub.ToolCall(tool, inner, call_id, server if isinstance(server, str) else None)
    name = details.get("name")
    return hub.ToolCall(name if isinstance(name, str) else called.removesuffix(_SUFFIX), arguments, call_id)


def _result(result: Any, losses: Losses) -> tuple[str, bool]:
    """Return the text of a result, ``{"success": …}`` or another member, and whether it is a failure."""
    if not isinstance(result, dict) or len(result) != 1:
        return _text_of(result, losses), False
    [(outcome, value)] = result.items()
    if outcome != "success" and not isinstance(value, dict):
        return _text_of(value if outcome == "error" else result, losses), outcome == "error"
    failed = outcome != "success" or bool(isinstance(value, dict) and _has_failed(value))
    return _text_of(value, losses), failed


def _has_failed(value: dict[str, Any]) -> bool:
    return bool(value.get("exitCode")) or value.get("isError") is True


def _is_text(block: Any) -> bool:
    """Check for a text of an MCP server."""
    match block:
        case {"text": {"text": str(), **others}, **rest}:
            return not others and not rest
    return False


def _text_of(value: Any, losses: Losses) -> str:
    """Return a result's text: its content, a command's output or the error; others as JSON."""
    match value:
        case (
            {"content": str(text), **rest}
            | {"errorMessage": str(text), **rest}
            | {"error": str(text), **rest}
        ):
            losses.add("tool_call.result", rest)
            return text
        case {"content": [*blocks], **rest} if all(map(_is_text, blocks)):
            losses.add("tool_call.result", rest)
            return "\n".join(block["text"]["text"] for block in blocks)
        case {"stdout": str(out), **rest}:
            both = rest.get("interleavedOutput")
            error = rest.get("stderr")
            losses.add("tool_call.result", without(rest, *_OUTPUTS))
            if isinstance(both, str) and both:
                return both
            return "\n".join(text for text in (out, error) if isinstance(text, str) and text)
    return as_text(value)


FORMAT = of_lines(NAME, "type subtype session_id tool_call", _recognises, _Stream)
