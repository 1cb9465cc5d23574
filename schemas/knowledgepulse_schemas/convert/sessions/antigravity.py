"""The transcripts of Antigravity's command line, whose results have no ids."""

from __future__ import annotations

import re

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

FORMAT = format_of(
    Table(
        "antigravity",
        "step_index source type status",
        ({"step_index": int, "source": str, "type": str, "status": str},),
        (
            Line("USER_INPUT", "user", "content"),
            Line("PLANNER_RESPONSE", "assistant", "thinking:thinking content tool_calls"),
            Line({"source": "MODEL"}, "tool", "content"),
            Line({"source": "SYSTEM", "content": str}, "system", "content"),
            Line({"source": "SYSTEM"}, beside=True),
        ),
        wrapper=re.compile("<(USER_REQUEST)>"),
        at="created_at",
    )
)
