"""What ``goose session export --format json`` and ``goose run --output-format json`` write."""

from __future__ import annotations

from knowledgepulse_schemas.convert.sessions.goose_lines import SPOKEN
from knowledgepulse_schemas.convert.sessions.table import messages_format_of

FORMAT = messages_format_of(
    "goose", "conversation working_dir", SPOKEN, "=role", "content", "conversation messages", "created"
)
