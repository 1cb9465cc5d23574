"""Sessions of Kimi Code: ``~/.kimi/sessions/*/*/agents/*/wire.jsonl``, of protocol 1.4 and 1.5.

Source: https://github.com/MoonshotAI/kimi-cli.
Compared with: files of another project's tests.
"""

from knowledgepulse_schemas.convert.common.pattern import at
from knowledgepulse_schemas.convert.common.words import words
from knowledgepulse_schemas.convert.sessions.table import Line, Table

_BESIDE = words(
    """
    metadata turn.prompt turn.steer turn.ended config.update profile.bind usage.record full_compaction.begin
    full_compaction.complete full_compaction.cancel plan_mode.enter plan_mode.exit plan_mode.cancel
    plugin.session_start runtime.set_binding token_counting.measured token_counting.turn_recorded llm.request
    llm.tools_snapshot tools.set_active_tools tools.update_store permission.set_mode
    permission.record_approval_result mcp.tools_discovered file_history.tracked file_history.checkpoint
    """
)
FORMAT = Table(
    "kimi",
    __doc__,
    "type protocol_version",
    first=({"type": "metadata", "protocol_version": str},),
    lines=(
        Line({"type": "turn.prompt", at("origin", "kind"): "user"}, "user", at("input"), may_repeat=True),
        Line(
            {"type": "context.append_message", at("message", "origin", "kind"): {"user", None}},
            at("message", "role"),
            at("message", "content"),
            may_repeat=True,
        ),
        Line(
            {"type": "context.append_message", at("message", "origin", "name"): "subagent"},
            at("message", "role"),
            at("message", "content"),
        ),
        Line("turn.cancel", ended=at("type")),
        Line("context.append_message", "system", at("message", "content")),
        Line(
            {"type": "context.append_loop_event", at("event", "type"): "step.end"},
            ended=at("event", "finishReason"),
        ),
        Line({"type": "context.append_loop_event", at("event", "type"): "step.begin"}, is_beside=True),
        Line("context.append_loop_event", "assistant", at("event")),
        Line("context.apply_compaction", "system", at("summary")),
        Line(_BESIDE, is_beside=True),
    ),
    time=(at("time"),),
    coding_agent=True,
)
