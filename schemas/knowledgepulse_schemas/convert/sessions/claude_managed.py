"""The events of a session of Claude's Managed Agents.

Source: https://platform.claude.com/docs/en/managed-agents/events-and-streaming.
Compared with: public files of the beta ``managed-agents-2026-04-01``.
"""

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

_BESIDE = (
    *("session", "span.", "agent.thinking", "agent.thread_context_compacted"),
    *("user.interrupt", "user.tool_confirmation"),
)
FORMAT = format_of(
    Table(
        "claude_managed",
        __doc__,
        "id type processed_at",
        (
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
        (
            Line("user.message", "user", "content"),
            Line("user.define_outcome", "user", "description"),
            Line("span.outcome_evaluation_end", sets={"judged": "result"}),
            Line("agent.message", "assistant", "content"),
            Line({"agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"}, "assistant", "=tool_use"),
            Line(
                {"agent.tool_result", "agent.mcp_tool_result", "user.custom_tool_result"},
                "tool",
                "=tool_result",
            ),
            Line({"session.status_idle"}, sets={"ended": "stop_reason.type"}),
            Line({"session.error"}, error="error.message"),
            Line(_BESIDE, beside=True),
        ),
        at="processed_at",
    )
)
