"""What ``opencode run --format json`` prints: the parts of the agent's messages, one per line.

Source: https://github.com/anomalyco/opencode, ``packages/opencode/src/cli/cmd/run.ts``.
"""

from __future__ import annotations

from knowledgepulse_schemas.convert.sessions import opencode
from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

_PARTS = {"step_start", "text", "reasoning", "tool_use", "step_finish"}

FORMAT = format_of(
    Table(
        "opencode_run",
        "type timestamp sessionID part",
        ({"type": _PARTS, "sessionID": str, "part": dict},),
        (
            Line({"part": dict}, "assistant", "part", stop="part.reason", read=opencode.parts_of),
            Line({"error.data.message": str}, error="error.data.message", stop="error.name"),
            Line({"error": dict}, error="error.name", stop="error.name"),
        ),
        id="sessionID",
        known="type",
    )
)
