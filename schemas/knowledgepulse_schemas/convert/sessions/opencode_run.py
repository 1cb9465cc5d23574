"""What ``opencode run --format json`` prints.

Source: https://github.com/anomalyco/opencode, ``packages/opencode/src/cli/cmd/run.ts``.
Compared with: public files of December 2025 to July 2026.
"""

from dataclasses import replace

from knowledgepulse_schemas.convert.sessions import opencode
from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

_PARTS = {"step_start", "text", "reasoning", "tool_use", "step_finish"}
_PART = Line({"part": dict}, "assistant", "part", stop="part.reason", read=opencode.parts_of)
_CALLED = {"type": "step_finish", "part.reason": "tool-calls"}

FORMAT = format_of(
    Table(
        "opencode_run",
        __doc__,
        "type timestamp sessionID part",
        ({"type": _PARTS, "sessionID": str, "part": dict},),
        (
            replace(_PART, where={"type": "step_start"}, sets={"ended": False}),
            replace(_PART, where=_CALLED, sets={"ended": False}),
            replace(_PART, where={"type": "step_finish"}, sets={"ended": True}),
            _PART,
            Line({"error.data.message": str}, error="error.data.message", stop="error.name"),
            Line({"error": dict}, error="error.name", stop="error.name"),
        ),
        id="sessionID",
        known="type",
        coding_agent=True,
    )
)
