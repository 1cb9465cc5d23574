"""Transcripts of Cursor: ``~/.cursor/projects/*/agent-transcripts/*.jsonl``, without times and results.

Source: none is published.
Compared with: the beginning of a public file.
"""

import re

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table

FORMAT = Table(
    "cursor",
    __doc__,
    "role message",
    first=(
        {
            "role": {"user", "assistant"},
            "message": dict,
            at("message", "role"): None,
            "type": None,
            "uuid": None,
        },
    ),
    lines=(
        Line({"role": {"user", "assistant"}}, at("role"), at("message", "content")),
        Line("turn_ended", ended=at("status"), error=at("error")),
    ),
    wrapper=re.compile("<(user_query)>"),
    hidden="[REDACTED]",
    coding_agent=True,
    places={"Cursor": ("~/.cursor/projects/*/agent-transcripts/**/*.jsonl",)},
)
