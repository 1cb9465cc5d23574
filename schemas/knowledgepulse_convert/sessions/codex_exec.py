"""What ``codex exec --json`` prints.

The stream has the agent's items and no prompt. A call is an item that starts on one line and is completed on
a later one, which tells the call again. An item of type ``error`` is a notice of Codex; a failure is the
turn's.

Source: https://github.com/openai/codex, ``codex-rs/exec/src/exec_events.rs``.
Compared with: public files of December 2025 to July 2026.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.reading import as_text, count_others, text_or_none
from knowledgepulse_convert.common.statuses import is_failure
from knowledgepulse_convert.messages.blocks import Parts, text_of
from knowledgepulse_convert.sessions.table import Line, Table, Texts

_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "command_execution": ("command",),
    "file_change": ("changes",),
    "web_search": ("query", "action"),
    "mcp_tool_call": (),
    "collab_tool_call": ("prompt",),
}
"""The members of each type of call that are its arguments; none if they are in one of their own."""
_READ = {
    *("id", "type", "tool", "server", "arguments", "status", "exit_code", "aggregated_output"),
    *("result", "error"),
}


def _called(item: dict[str, Any], path: str, losses: Losses) -> ir.ToolCall:
    kind = item["type"]
    arguments = {name: item.get(name) for name in _ARGUMENTS[kind]}
    count_others(item, {*_READ, *arguments}, path, losses)
    return ir.ToolCall(
        text_or_none(item.get("tool")) or kind,
        arguments or item.get("arguments"),
        text_or_none(item.get("id")),
        text_or_none(item.get("server")),
    )


def _call(item: dict[str, Any], path: str, losses: Losses, _kind: str = "") -> Parts:
    call = _called(item, path, losses)
    if call.id is not None:  # else only its completion tells it
        yield None, call


def _completed_call(item: dict[str, Any], path: str, losses: Losses, _kind: str = "") -> Parts:
    """Yield a call and its response; the stream has no results of searches."""
    call, result, error = _called(item, path, losses), item.get("result"), item.get("error")
    yield None, call
    failed = is_failure(item.get("status")) or bool(item.get("exit_code")) or error is not None
    if isinstance(error, dict):
        count_others(error, {"message"}, f"{path}.error", losses)
        error = error.get("message")
    if isinstance(result, dict):  # its structured content says the same
        count_others(result, {"content"}, f"{path}.result", losses)
        result = result.get("content")
    found = text_of(result, f"{path}.result.content[]", losses)
    text = "\n".join(filter(None, [as_text(item.get("aggregated_output")), as_text(error), found]))
    if call.name != "web_search" or failed:
        yield (
            "tool",
            ir.ToolCallResponse(
                text or as_text(item.get("status")), call.id, call.name, failed, call.mcp_server
            ),
        )


def _plan(item: dict[str, Any], path: str, losses: Losses, _kind: str = "") -> Parts:
    count_others(item, {*_READ, "items"}, path, losses)
    yield None, ir.ToolCall("todo_list", {"items": item.get("items")})


_EVENT = {"type": ("thread.started", "turn.completed", "turn.failed", "item.")}
_COMPLETED = {"type": "item.completed"}
_BEGUN = {"type": {"item.started", "item.updated"}}

FORMAT = Table(
    "codex_exec",
    __doc__,
    "type thread_id item",
    first=(
        {"type": "turn.started", "timestamp": None, "id": None, "data": None, "payload": None},
        *(_EVENT | {member: ...} for member in ("thread_id", "item", "usage", "error")),
    ),
    lines=(
        Line("thread.started", id=at("thread_id")),
        Line("turn.started", ended=False),
        Line("turn.completed", ended=True),
        Line("turn.failed", ended=True, error=at("error", "message"), stop=(at("type"),)),
        Line(
            _COMPLETED | {at("item", "type"): "reasoning"},
            "assistant",
            Texts("reasoning", at("item", "text")),
        ),
        Line(_COMPLETED | {at("item", "type"): "agent_message"}, "assistant", at("item", "text")),
        Line(
            _COMPLETED | {at("item", "type"): set(_ARGUMENTS)},
            "assistant",
            at("item"),
            may_restate_call=True,
            read=_completed_call,
        ),
        Line(
            _BEGUN | {at("item", "type"): set(_ARGUMENTS)},
            "assistant",
            at("item"),
            may_restate_call=True,
            read=_call,
        ),
        Line(
            _BEGUN | {at("item", "type"): "todo_list"}, "assistant", at("item"), may_repeat=True, read=_plan
        ),
        Line({at("item", "type"): {"reasoning", "agent_message", "todo_list", "error"}}, is_beside=True),
        Line("error", is_beside=True),  # after which it goes on, or the turn fails
    ),
    known=(at("item", "id"), at("item", "status")),
    ended=False,
    coding_agent=True,
)
