"""Goose's sessions up to 1.9, and what ``goose run --output-format stream-json`` prints.

Source: https://github.com/block/goose.
Compared with: its source; no public files.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Line, Table

SPOKEN = {"role": {"user", "assistant"}, "created": int, "content": list}
FORMAT = Table(
    "goose_lines",
    __doc__,
    "role created content",
    first=(
        {"working_dir": str, "message_count": int, "conversation": None},
        SPOKEN,
        {"type": "message"} | {at("message", name): value for name, value in SPOKEN.items()},
    ),
    lines=(
        Line(SPOKEN, at("role"), at("content")),
        Line("message", at("message", "role"), at("message", "content")),
        Line("error", error=at("error")),
        Line({"working_dir": str}, cwd=at("working_dir"), is_beside=True),
        Line({"complete", "notification"}, is_beside=True),
    ),
    time=(at("created"), at("message", "created")),
    coding_agent=True,
    places={"Goose": ("~/.local/share/goose/sessions/*.jsonl",)},
)
