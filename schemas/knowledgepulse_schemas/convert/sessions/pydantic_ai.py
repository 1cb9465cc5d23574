"""Messages of Pydantic AI, as ``all_messages_json()`` writes them."""

from __future__ import annotations

from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "pydantic_ai",
    "parts kind",
    {"kind": {"request", "response"}, "parts": list},
    "=kind",
    "parts",
    at="timestamp",
)
