"""Messages of Microsoft's Agent Framework."""

from __future__ import annotations

from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "agent_framework",
    "messages type contents",
    {"type": "chat_message", "contents": list},
    "=role.value",
    "contents",
    "messages",
)
