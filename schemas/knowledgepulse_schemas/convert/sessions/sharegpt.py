"""ShareGPT's conversations, which data sets have."""

from __future__ import annotations

from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "sharegpt", "conversations", {"from": str, "value": str}, "=from", "value", "conversations"
)
