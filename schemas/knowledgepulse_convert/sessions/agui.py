"""Events of AG-UI, one per line, and the messages of its clients.

Events have a request only if `RUN_STARTED` has its `input`; else `--objective` gives it.

Accepts: events of AG-UI, one per line, as agents stream them.
Source: https://docs.ag-ui.com/concepts/events; the types of ``@ag-ui/core``.
Compared with: runs of VoltAgent 2.10 with ``@ag-ui/client`` 1.0.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.reading import as_text, count_others, text_or_none
from knowledgepulse_convert.messages.blocks import Parts
from knowledgepulse_convert.messages.wrapped import response_of
from knowledgepulse_convert.sessions.table import Block, Line, Table, Texts, VendorMessage


def _call(event: dict[str, Any], path: str, losses: Losses, _kind: str) -> Parts:
    """Read the beginning of a call, or a piece of its arguments."""
    count_others(event, {"toolCallId", "toolCallName", "delta"}, path, losses)
    name, call_id = as_text(event.get("toolCallName")), text_or_none(event.get("toolCallId"))
    yield None, ir.ToolCall(name, as_text(event.get("delta")), call_id)


def _result(event: dict[str, Any], path: str, losses: Losses, _kind: str) -> Parts:
    count_others(event, {"toolCallId", "content"}, path, losses)
    yield None, response_of(event.get("content"), path, losses, call_id=text_or_none(event.get("toolCallId")))


_OUTCOME = at("outcome", "type")
FORMAT = Table(
    "agui",
    __doc__,
    "type messageId toolCallId delta threadId runId",
    first=(
        {"type": {"RUN_STARTED", "RUN_FINISHED"}, "threadId": str, "runId": str},
        {"type": {"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK"}, "messageId": str},
        {"type": {"TOOL_CALL_START", "TOOL_CALL_CHUNK"}, "toolCallId": str, "toolCallName": str},
    ),
    lines=(
        Line("RUN_STARTED", "user", VendorMessage(at("input", "messages")), id=at("runId")),
        Line("SUBAGENT_STARTED", "user", at("description")),
        Line({"type": {"TEXT_MESSAGE_START", "REASONING_MESSAGE_START"}}),  # ends what came in pieces
        Line(
            {"type": {"TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK"}},
            "assistant",
            Texts("text", at("delta")),
            is_piece=True,
        ),
        Line(
            {
                "type": {
                    "REASONING_MESSAGE_CONTENT",
                    "REASONING_MESSAGE_CHUNK",
                    "THINKING_TEXT_MESSAGE_CONTENT",
                }
            },
            "assistant",
            Texts("thinking", at("delta")),
            is_piece=True,
        ),
        Line(
            {"type": {"TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_CHUNK"}},
            "assistant",
            Block("tool_call"),
            is_piece=True,
            read=_call,
        ),
        Line("TOOL_CALL_RESULT", "tool", Block("tool_result"), read=_result),
        Line("RUN_ERROR", error=at("message"), ended=False),
        Line("SUBAGENT_ERROR", error=at("message")),
        Line({"type": "RUN_FINISHED", at("outcome", "pendingToolCallIds"): list}, ended=False),
        Line({"type": {"RUN_FINISHED", "SUBAGENT_FINISHED"}}, ended=_OUTCOME),
        Line({"type": ("TEXT_", "TOOL_CALL_", "REASONING_", "THINKING_", "STEP_")}, is_beside=True),
        Line({"type": ("STATE_", "SUBAGENT_", "ACTIVITY_", "MESSAGES_SNAPSHOT", "RAW")}, is_beside=True),
    ),
    agent=(at("subagentRunId"),),
    known=tuple(map(at, ("messageId", "parentMessageId", "role", "threadId", "runId", "subagentRunId"))),
    ended=False,
    unrecorded=("finish reasons",),
)
