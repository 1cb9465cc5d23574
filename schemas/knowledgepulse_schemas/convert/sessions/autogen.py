"""Messages of AutoGen's AgentChat, and of a ``TaskResult``.

Source: https://github.com/microsoft/autogen, ``autogen_agentchat.messages``.
Compared with: public files of 2026.
"""

from knowledgepulse_schemas.convert.sessions.table import ROLES, Line, Table, document_format_of

_MESSAGE = {"source": str, "type": str, "models_usage": ..., "content": ...}
FORMAT = document_format_of(
    Table(
        "autogen",
        __doc__,
        "source type models_usage content",
        (_MESSAGE,),
        (
            Line("ToolCallRequestEvent", "assistant", "content:tool_call"),
            Line("ToolCallExecutionEvent", "tool", "content:tool_result"),
            Line("ThoughtEvent", "assistant", "content:thinking"),
            Line({"source": set(ROLES)}, "=source", "content"),
            Line({}, "assistant", "content"),  # of an agent with a name
        ),
        within="messages",
        known="source type",
        ended=True,
    )
)
