"""Transcripts of Cursor: ``~/.cursor/projects/*/agent-transcripts/*.jsonl``, without times and results."""

from __future__ import annotations

import re

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

FORMAT = format_of(
    Table(
        "cursor",
        "role message",
        ({"role": {"user", "assistant"}, "message": dict, "message.role": None, "type": None, "uuid": None},),
        (
            Line({"role": {"user", "assistant"}}, "=role", "message.content"),
            Line("turn_ended", sets={"ended": "status"}, error="error"),
        ),
        wrapper=re.compile("<(user_query)>"),
        hidden="[REDACTED]",
    )
)
