"""What ``droid exec --output-format stream-json`` prints.

Source: https://docs.factory.ai/cli/droid-exec/overview.
Compared with: files of another project's tests.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Block, Line, Table

FORMAT = Table(
    "droid_stream",
    __doc__,
    "type session_id role text",
    first=(
        {"type": "message", "session_id": str, "role": str, "text": str},
        {"type": "system", "subtype": "init", "reasoning_effort": str},
    ),
    lines=(
        Line("message", at("role"), at("text")),
        Line("tool_call", "assistant", Block("tool_call")),
        Line("tool_result", "tool", Block("tool_result")),
        Line("completion", "assistant", at("finalText"), ended=at("type"), may_repeat=True),
        Line("error", error=at("message")),
        Line("system", cwd=at("cwd"), model=at("model")),
    ),
    id=at("session_id"),
    coding_agent=True,
)
