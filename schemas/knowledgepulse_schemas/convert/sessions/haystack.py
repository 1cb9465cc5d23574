"""Messages of Haystack."""

from __future__ import annotations

from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "haystack", "role meta content", {"role": str, "meta": dict, "content": list}, "=role", "content"
)
