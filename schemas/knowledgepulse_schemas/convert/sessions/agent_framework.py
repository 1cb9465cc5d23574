"""Messages of Microsoft's Agent Framework.

Source: https://github.com/microsoft/agent-framework.
Compared with: its own types.
"""

from knowledgepulse_schemas.convert.common.pattern import at
from knowledgepulse_schemas.convert.sessions.table import of_messages_alike

FORMAT = of_messages_alike(
    "agent_framework",
    __doc__,
    "messages type contents",
    {"type": "chat_message", "contents": list},
    at("role", "value"),
    at("contents"),
    within=("messages",),
)
