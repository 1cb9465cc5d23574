"""Sessions of Kimi Code: ``~/.kimi/sessions/*/*/agents/*/wire.jsonl``, of protocol 1.4 and 1.5.

Source: https://github.com/MoonshotAI/kimi-cli.
Compared with: files of another project's tests.
"""

from knowledgepulse_schemas.convert.common.words import words
from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

_BESIDE = words(
    """
    metadata turn.prompt turn.steer turn.ended config.update profile.bind usage.record full_compaction.begin
    full_compaction.complete full_compaction.cancel plan_mode.enter plan_mode.exit plan_mode.cancel
    plugin.session_start runtime.set_binding token_counting.measured token_counting.turn_recorded llm.request
    llm.tools_snapshot tools.set_active_tools tools.update_store permission.set_mode
    permission.record_approval_result mcp.tools_discovered file_history.tracked file_history.checkpoint
    """
)
FORMAT = format_of(
    Table(
        "kimi",
        __doc__,
        "type protocol_version",
        ({"type": "metadata", "protocol_version": str},),
        (
            Line({"type": "turn.prompt", "origin.kind": "user"}, "user", "input", once=True),
            Line(
                {"type": "context.append_message", "message.origin.kind": {"user", None}},
                "=message.role",
                "message.content",
                once=True,
            ),
            Line(
                {"type": "context.append_message", "message.origin.name": "subagent"},
                "=message.role",
                "message.content",
            ),
            Line("turn.cancel", sets={"ended": "type"}),
            Line("context.append_message", "system", "message.content"),
            Line(
                {"type": "context.append_loop_event", "event.type": "step.end"},
                sets={"ended": "event.finishReason"},
            ),
            Line({"type": "context.append_loop_event", "event.type": "step.begin"}, beside=True),
            Line("context.append_loop_event", "assistant", "event"),
            Line("context.apply_compaction", "system", "summary"),
            Line(_BESIDE, beside=True),
        ),
        at="time",
        coding_agent=True,
    )
)
