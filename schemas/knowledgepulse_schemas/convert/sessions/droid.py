"""Sessions of Droid: ``~/.factory/sessions/*.jsonl``.

Source: none is published.
Compared with: logs of 2026.
"""

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

FORMAT = format_of(
    Table(
        "droid",
        __doc__,
        "type id cwd version",
        ({"type": "session_start", "id": str, "cwd": str},),
        (
            Line("session_start", sets={"id": "id", "cwd": "cwd"}),
            Line({"type": "message", "message.visibility": "llm_only"}, "system", "message.content"),
            Line("message", "=message.role", "message.content", sets={"model": "modelId"}),
            Line({"todo_state", "session_end", "compaction_state"}, beside=True),
        ),
        coding_agent=True,
    )
)
