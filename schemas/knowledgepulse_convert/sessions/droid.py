"""Sessions of Droid: ``~/.factory/sessions/*.jsonl``.

Source: none is published.
Compared with: logs of 2026.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table

FORMAT = Table(
    "droid",
    __doc__,
    "type id cwd version",
    first=({"type": "session_start", "id": str, "cwd": str},),
    lines=(
        Line("session_start", id=at("id"), cwd=at("cwd")),
        Line(
            {"type": "message", at("message", "visibility"): "llm_only"}, "system", at("message", "content")
        ),
        Line("message", at("message", "role"), at("message", "content"), model=at("modelId")),
        Line({"todo_state", "session_end", "compaction_state"}, is_beside=True),
    ),
    coding_agent=True,
    places={"Droid": ("~/.factory/sessions/**/*.jsonl",)},
)
