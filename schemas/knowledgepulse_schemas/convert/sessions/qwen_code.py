"""Sessions of Qwen Code: ``~/.qwen/projects/*/chats/*.jsonl``.

Source: https://github.com/QwenLM/qwen-code.
Compared with: files of another project's tests.
"""

from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

FORMAT = format_of(
    Table(
        "qwen_code",
        __doc__,
        "uuid parentUuid sessionId message",
        (
            {"uuid": str, "sessionId": str, "message.parts": list},
            {"uuid": str, "sessionId": str, "systemPayload": dict},
        ),
        (
            Line({"type": "user", "subtype": "notification"}, "system", "message.parts"),
            Line(
                {"user", "assistant", "tool_result"},
                "=type",
                "message.parts",
                sets={"id": "sessionId", "cwd": "cwd", "model": "model"},
            ),
            Line("system", beside=True),
        ),
        coding_agent=True,
    )
)
