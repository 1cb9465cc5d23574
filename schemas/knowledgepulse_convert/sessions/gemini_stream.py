"""What ``gemini --output-format stream-json`` prints.

Source: https://github.com/google-gemini/gemini-cli, ``packages/core/src/output/types.ts``.
Compared with: public files of January 2026, and runs of 0.61.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.sessions.table import Block, Line, Table

FORMAT = Table(
    "gemini_stream",
    __doc__,
    "type timestamp tool_id",
    first=(
        {"type": "init", "session_id": ..., "timestamp": ..., "model": ...},
        {"type": "message", "role": ..., "content": ..., "timestamp": ...},
        {"type": "tool_use", "tool_name": ..., "tool_id": ..., "parameters": ...},
        {"type": "tool_result", "tool_id": ..., "status": ..., "timestamp": ...},
        {"type": "result", "status": ..., "timestamp": ...},
    ),
    lines=(
        Line("init", id=at("session_id"), model=at("model"), ended=False),
        Line(
            {"type": "message", "role": "assistant", "delta": True}, "assistant", at("content"), is_piece=True
        ),
        Line({"type": "message", "role": str}, at("role"), at("content")),
        Line("tool_use", "assistant", Block("tool_use")),
        Line("tool_result", "tool", Block("tool_result")),
        Line("result", ended=True, error=at("error", "message"), stop=(at("status"),)),
        Line({"error", "warning"}, has_time=True, is_beside=True),  # after which it went on
    ),
    ended=False,
    coding_agent=True,
    unrecorded=("exit codes", "finish reasons"),
)
