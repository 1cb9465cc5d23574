"""What ``gemini --output-format stream-json`` prints.

Source: https://github.com/google-gemini/gemini-cli, ``packages/core/src/output/types.ts``.
Compared with: public files of January 2026.
"""

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

FORMAT = format_of(
    Table(
        "gemini_stream",
        __doc__,
        "type timestamp tool_id",
        (
            {"type": "init", "session_id": ..., "timestamp": ..., "model": ...},
            {"type": "message", "role": ..., "content": ..., "timestamp": ...},
            {"type": "tool_use", "tool_name": ..., "tool_id": ..., "parameters": ...},
            {"type": "tool_result", "tool_id": ..., "status": ..., "timestamp": ...},
            {"type": "result", "status": ..., "timestamp": ...},
        ),
        (
            Line("init", sets={"id": "session_id", "model": "model", "ended": False}),
            Line({"type": "message", "role": "assistant", "delta": True}, "assistant", "content", piece=True),
            Line({"type": "message", "role": str}, "=role", "content"),
            Line("tool_use", "assistant", "=tool_use"),
            Line("tool_result", "tool", "=tool_result"),
            Line("result", sets={"ended": True}, error="error.message", stop="status"),
            Line({"error", "warning"}, timed=True, beside=True),  # after which it went on
        ),
        ended=False,
        coding_agent=True,
    )
)
