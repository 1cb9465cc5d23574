"""Transcripts of Cursor: ``~/.cursor/projects/*/agent-transcripts/*.jsonl``, without times and results.

Source: none is published.
Compared with: the beginning of a public file.
"""

import re

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

FORMAT = format_of(
    Table(
        "cursor",
        __doc__,
        "role message",
        ({"role": {"user", "assistant"}, "message": dict, "message.role": None, "type": None, "uuid": None},),
        (
            Line({"role": {"user", "assistant"}}, "=role", "message.content"),
            Line("turn_ended", sets={"ended": "status"}, error="error"),
        ),
        wrapper=re.compile("<(user_query)>"),
        hidden="[REDACTED]",
        coding_agent=True,
    )
)
