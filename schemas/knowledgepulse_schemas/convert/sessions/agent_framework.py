"""Messages of Microsoft's Agent Framework.

Source: https://github.com/microsoft/agent-framework.
Compared with: its own types.
"""

from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "agent_framework",
    __doc__,
    "messages type contents",
    {"type": "chat_message", "contents": list},
    "=role.value",
    "contents",
    within="messages",
)
