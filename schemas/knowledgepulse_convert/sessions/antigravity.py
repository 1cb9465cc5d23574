"""The transcripts of Antigravity's command line, whose results have no ids.

Source: none is published.
Compared with: files of another project's tests.
"""

import re

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table, Texts

FORMAT = Table(
    "antigravity",
    __doc__,
    "step_index source type status",
    first=({"step_index": int, "source": str, "type": str, "status": str},),
    lines=(
        Line("USER_INPUT", "user", at("content")),
        Line(
            "PLANNER_RESPONSE",
            "assistant",
            (Texts("thinking", at("thinking")), at("content"), at("tool_calls")),
        ),
        Line({"source": "MODEL"}, "tool", at("content")),
        Line({"source": "SYSTEM", "content": str}, "system", at("content")),
        Line({"source": "SYSTEM"}, is_beside=True),
    ),
    wrapper=re.compile("<(USER_REQUEST)>"),
    time=(at("created_at"),),
    coding_agent=True,
)
