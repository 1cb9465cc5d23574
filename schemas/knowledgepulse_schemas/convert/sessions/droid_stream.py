"""What ``droid exec --output-format stream-json`` prints.

Source: https://docs.factory.ai/cli/droid-exec/overview.
Compared with: files of another project's tests.
"""

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

FORMAT = format_of(
    Table(
        "droid_stream",
        __doc__,
        "type session_id role text",
        (
            {"type": "message", "session_id": str, "role": str, "text": str},
            {"type": "system", "subtype": "init", "reasoning_effort": str},
        ),
        (
            Line("message", "=role", "text"),
            Line("tool_call", "assistant", "=tool_call"),
            Line("tool_result", "tool", "=tool_result"),
            Line("completion", "assistant", "finalText", sets={"ended": "type"}, once=True),
            Line("error", error="message"),
            Line("system", sets={"cwd": "cwd", "model": "model"}),
        ),
        id="session_id",
        coding_agent=True,
    )
)
