"""What ``cursor-agent -p --output-format stream-json`` prints.

With ``--stream-partial-output``, an answer comes in pieces before it comes whole. The result of a success is
all of the agent's texts.

Source: https://cursor.com/docs/cli/reference/output-format.
Compared with: public files of February 2026.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.reading import as_text, count_others, text_or_none, without
from knowledgepulse_convert.messages.blocks import Parts
from knowledgepulse_convert.sessions.table import Block, Line, Table, Texts

_SUFFIX = "ToolCall"
_OUTPUTS = {"stdout", "stderr", "interleavedOutput"}


def _parts(event: dict[str, Any], path: str, losses: Losses, _kind: str = "") -> Parts:
    """Read the event of a call, which has a result once it is completed."""
    count_others(event, {"tool_call", "call_id"}, path, losses)
    tool_call = event.get("tool_call")
    members = tool_call.items() if isinstance(tool_call, dict) else ()
    called = next((name for name, member in members if isinstance(member, dict)), None)
    if called is None or not isinstance(tool_call, dict):
        losses.add("tool_call", tool_call)
        return
    count_others(tool_call, {called}, "tool_call", losses)
    details = dict(tool_call[called])
    is_completed = "result" in details
    result = details.pop("result", None)
    call = _call(called, details, text_or_none(event.get("call_id")), losses)
    yield None, call
    if is_completed:
        text, failed = _result(result, losses)
        yield "tool", ir.ToolCallResponse(text, call.id, call.name, failed, call.mcp_server)


def _call(called: str, details: dict[str, Any], call_id: str | None, losses: Losses) -> ir.ToolCall:
    """Return a call: ``{"shellToolCall": {"args": …}}``, or ``{"function": {"name": …, "arguments": …}}``."""
    arguments = details.get("args", details.get("arguments"))
    count_others(details, {"args", "arguments", "name"}, f"tool_call.{called}", losses)
    match called, arguments:
        case "mcpToolCall", {"toolName": str(tool), "args": inner, **rest}:
            count_others(rest, {"providerIdentifier"}, "tool_call.mcpToolCall.args", losses)
            server = rest.get("providerIdentifier")
            return ir.ToolCall(tool, inner, call_id, server if isinstance(server, str) else None)
    name = details.get("name")
    return ir.ToolCall(name if isinstance(name, str) else called.removesuffix(_SUFFIX), arguments, call_id)


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


_FOREIGN = ("uuid", "tools", "reasoning_effort", "parent_tool_use_id", "timestamp")
"""Members of the lines that Claude Code and Droid print, which are similar."""
_EVENT = {"session_id": str, **dict.fromkeys(_FOREIGN)}
_MESSAGE = {"message": dict}

FORMAT = Table(
    "cursor_stream",
    __doc__,
    "type subtype session_id tool_call",
    first=(
        _EVENT | {"type": "system", "subtype": ..., "model": ...},
        _EVENT | {"type": {"user", "assistant"}, "message": ...},
        _EVENT | {"type": "thinking", "subtype": ...},
        _EVENT | {"type": "tool_call", "subtype": ..., "tool_call": ...},
        _EVENT | {"type": "result", "subtype": ..., "request_id": ...},
    ),
    lines=(
        Line({"type": "system", "subtype": "init"}, cwd=at("cwd"), model=at("model"), ended=False),
        Line({"type": "user", **_MESSAGE}, "user", at("message", "content")),
        Line("thinking", "assistant", Texts("thinking", at("text")), is_piece=True),
        Line(
            {"type": "assistant", "timestamp_ms": ..., "model_call_id": None, **_MESSAGE},
            "assistant",
            at("message", "content"),
            is_piece=True,
        ),
        Line({"type": "assistant", **_MESSAGE}, "assistant", at("message", "content"), may_repeat=True),
        Line("tool_call", "assistant", Block("call"), may_restate_call=True, read=_parts),
        Line({"type": "result", "is_error": True}, ended=True, error=at("result")),
        Line("result", "assistant", at("result"), ended=True, may_repeat=True),
    ),
    time=(at("timestamp_ms"),),
    id=at("session_id"),
    known=(at("subtype"), at("model_call_id"), at("message", "role"), at("is_error")),
    ended=False,
    coding_agent=True,
)
