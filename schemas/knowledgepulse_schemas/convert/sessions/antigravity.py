"""The transcripts of Antigravity's command line, whose results have no ids.

Source: none is published.
Compared with: files of another project's tests.
"""

import re

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

FORMAT = format_of(
    Table(
        "antigravity",
        __doc__,
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
        coding_agent=True,
    )
)
