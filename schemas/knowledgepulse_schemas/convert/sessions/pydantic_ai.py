"""Messages of Pydantic AI, as ``all_messages_json()`` writes them.

Source: https://ai.pydantic.dev/message-history/.
Compared with: its own types.
"""

from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "pydantic_ai",
    __doc__,
    "parts kind",
    {"kind": {"request", "response"}, "parts": list},
    "=kind",
    "parts",
    at="timestamp",
    within="",
)
