"""Sessions of Copilot CLI: ``~/.copilot/session-state/*/events.jsonl``.

There is no published schema of the events; the table follows logs of version 1.0. Later versions name the
agent on the event.

Source: none is published.
Compared with: public files of 1.0.
"""

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

_BESIDE = ("hook.", "session.", "assistant.turn", "permission.", "subagent")
_KINDS = ("session.", "user.", "assistant.", "tool.", "system.", "hook.")
FORMAT = format_of(
    Table(
        "copilot_cli",
        __doc__,
        "parentId",
        ({"type": _KINDS, "id": ..., "parentId": ..., "timestamp": ..., "data": dict},),
        (
            Line({"agentId": str}, timed=True, of="subagents'", beside=True),
            Line({"data.parentToolCallId": str}, timed=True, of="subagents'", beside=True),
            Line("tool.execution_start", "assistant", "data=tool_call", once=True),
            Line("tool.execution_complete", "tool", "data=tool_result"),
            Line("session.start", sets={"id": "data.sessionId", "cwd": "data.context.cwd"}),
            Line("user.message", "user", "data.content"),
            Line({"system.message", "system.notification"}, "system", "data.content"),
            Line(
                "assistant.message",
                "assistant",
                "data.reasoningText:thinking data.content data.toolRequests",
                sets={"model": "data.model"},
            ),
            Line("session.error", error="data.message"),
            Line("abort", error="data.reason", stop="type"),
            Line(_BESIDE, timed=True, beside=True),
        ),
        known="id parentId agentId",
        coding_agent=True,
    )
)
