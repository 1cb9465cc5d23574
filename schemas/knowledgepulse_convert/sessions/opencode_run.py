"""What ``opencode run --format json`` prints.

Source: https://github.com/anomalyco/opencode, ``packages/opencode/src/cli/cmd/run.ts``.
Compared with: public files of December 2025 to July 2026.
"""

from dataclasses import replace

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions import opencode
from knowledgepulse_convert.sessions.table import Line, Table

_PARTS = {"step_start", "text", "reasoning", "tool_use", "step_finish"}
_REASON = at("part", "reason")
_PART = Line({"part": dict}, "assistant", at("part"), stop=(_REASON,), read=opencode.parts_of)
_CALLED = {"type": "step_finish", _REASON: "tool-calls"}
_NAME, _MESSAGE = at("error", "name"), at("error", "data", "message")

FORMAT = Table(
    "opencode_run",
    __doc__,
    "type timestamp sessionID part",
    first=({"type": _PARTS, "sessionID": str, "part": dict},),
    lines=(
        replace(_PART, where={"type": "step_start"}, ended=False),
        replace(_PART, where=_CALLED, ended=False),
        replace(_PART, where={"type": "step_finish"}, ended=True),
        _PART,
        Line({_MESSAGE: str}, error=_MESSAGE, stop=(_NAME,)),
        Line({"error": dict}, error=_NAME, stop=(_NAME,)),
    ),
    id=at("sessionID"),
    known=(at("type"),),
    coding_agent=True,
)
