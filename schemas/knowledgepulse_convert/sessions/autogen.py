"""Messages of AutoGen's AgentChat, and of a ``TaskResult``.

Source: https://github.com/microsoft/autogen, ``autogen_agentchat.messages``.
Compared with: public files of 2026.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import ROLES, Line, Table, Texts

_MESSAGE = {"source": str, "type": str, "models_usage": ..., "content": ...}
FORMAT = Table(
    "autogen",
    __doc__,
    "source type models_usage content",
    first=(_MESSAGE,),
    lines=(
        Line("ToolCallRequestEvent", "assistant", Texts("tool_call", at("content"))),
        Line("ToolCallExecutionEvent", "tool", Texts("tool_result", at("content"))),
        Line("ThoughtEvent", "assistant", Texts("thinking", at("content"))),
        Line(
            "ToolCallSummaryMessage",  # which tells calls, their results and, as a text, the results again
            "assistant",
            (Texts("tool_call", at("tool_calls")), Texts("tool_result", at("results")), at("content")),
            may_repeat=True,
        ),
        Line({"source": set(ROLES)}, at("source"), at("content")),
        Line("HandoffMessage", is_beside=True, has_time=True),  # an agent's, which repeats a result
        Line({}, "assistant", at("content")),  # of an agent with a name
    ),
    within=("messages",),
    known=(at("source"), at("type")),
    unrecorded=("finish reasons",),
)
