"""Messages of LangChain4j, as its `ChatMessageSerializer` and its memory stores write them.

Source: https://github.com/langchain4j/langchain4j, `dev.langchain4j.data.message.ChatMessageSerializer`.
Compared with: runs of 1.19.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Block, Line, Table, Texts

FORMAT = Table(
    "langchain4j",
    __doc__,
    "type text contents toolExecutionRequests attributes",
    first=({"type": {"SYSTEM", "USER", "AI", "TOOL_EXECUTION_RESULT", "CUSTOM"}},),
    lines=(
        Line("SYSTEM", "system", at("text")),
        Line("USER", "user", (at("text"), at("contents"))),
        Line(
            "AI",
            "assistant",
            (
                Texts("thinking", at("thinking")),
                at("text"),
                at("contents"),
                Texts("tool_call", at("toolExecutionRequests")),
            ),
        ),
        Line("TOOL_EXECUTION_RESULT", "tool", Block("tool_result")),
    ),
    time=(),
    within=("messages",),
    unrecorded=("finish reasons",),
)
