"""Goose's sessions up to 1.9, and what ``goose run --output-format stream-json`` prints.

Source: https://github.com/block/goose.
Compared with: its source; no public files.
"""

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

SPOKEN = {"role": {"user", "assistant"}, "created": int, "content": list}
FORMAT = format_of(
    Table(
        "goose_lines",
        __doc__,
        "role created content",
        (
            {"working_dir": str, "message_count": int, "conversation": None},
            SPOKEN,
            {"type": "message"} | {f"message.{name}": value for name, value in SPOKEN.items()},
        ),
        (
            Line(SPOKEN, "=role", "content"),
            Line("message", "=message.role", "message.content"),
            Line("error", error="error"),
            Line({"working_dir": str}, sets={"cwd": "working_dir"}, beside=True),
            Line({"complete", "notification"}, beside=True),
        ),
        at="created message.created",
        coding_agent=True,
    )
)
