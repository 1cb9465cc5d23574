"""The events of a session of Claude's Managed Agents.

Source: https://platform.claude.com/docs/en/managed-agents/events-and-streaming.
Compared with: public files of the beta ``managed-agents-2026-04-01``.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Block, Line, Table

_BESIDE = (
    *("session", "span.", "agent.thinking", "agent.thread_context_compacted"),
    *("user.interrupt", "user.tool_confirmation"),
)
FORMAT = Table(
    "claude_managed",
    __doc__,
    "id type processed_at",
    first=(
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
    lines=(
        Line("user.message", "user", at("content")),
        Line("user.define_outcome", "user", at("description")),
        Line("span.outcome_evaluation_end", verdict=at("result")),
        Line("agent.message", "assistant", at("content")),
        Line(
            {"agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"}, "assistant", Block("tool_use")
        ),
        Line(
            {"agent.tool_result", "agent.mcp_tool_result", "user.custom_tool_result"},
            "tool",
            Block("tool_result"),
        ),
        Line({"session.status_idle"}, ended=at("stop_reason", "type")),
        Line({"session.error"}, error=at("error", "message")),
        Line(_BESIDE, is_beside=True),
    ),
    time=(at("processed_at"),),
)
