"""Sessions of Copilot CLI: ``~/.copilot/session-state/*/events.jsonl``.

There is no published schema of the events; the table follows logs of version 1.0. Later versions name the
agent on the event.

Source: none is published.
Compared with: public files and runs of 1.0.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Block, Line, Table, Texts

_BESIDE = (
    *("hook.", "session.", "assistant.turn", "permission.", "subagent", "model."),
    # What `--output-format json` prints besides: the pieces of what other events tell as a whole.
    *("assistant.message_", "assistant.reasoning_", "assistant.tool_call_", "assistant.streaming_"),
    *("tool.execution_p", "tool.shell_output"),
)
_KINDS = ("session.", "user.", "assistant.", "tool.", "system.", "hook.")
FORMAT = Table(
    "copilot_cli",
    __doc__,
    "parentId",
    first=({"type": _KINDS, "id": ..., "parentId": ..., "timestamp": ..., "data": dict},),
    lines=(
        Line("tool.execution_start", "assistant", Block("tool_call", at("data")), may_repeat=True),
        Line("tool.execution_complete", "tool", Block("tool_result", at("data"))),
        Line("session.start", id=at("data", "sessionId"), cwd=at("data", "context", "cwd")),
        Line("user.message", "user", at("data", "content")),
        Line({"system.message", "system.notification"}, "system", at("data", "content")),
        Line(
            "assistant.message",
            "assistant",
            (
                Texts("thinking", at("data", "reasoningText")),
                at("data", "content"),
                at("data", "toolRequests"),
            ),
            model=at("data", "model"),
        ),
        Line(
            {"type": "session.usage_record", at("data", "usage", "interactionType"): "conversation-agent"},
            ended=at("data", "usage", "finishReason"),
            is_beside=True,
        ),
        Line("session.error", error=at("data", "message")),
        Line("abort", error=at("data", "reason"), stop=(at("type"),)),
        Line(_BESIDE, has_time=True, is_beside=True),
    ),
    agent=(at("agentId"), at("data", "parentToolCallId")),
    known=(at("id"), at("parentId"), at("agentId"), at("data", "parentToolCallId")),
    coding_agent=True,
    places={"Copilot CLI": ("~/.copilot/session-state/*/events.jsonl",)},
)
