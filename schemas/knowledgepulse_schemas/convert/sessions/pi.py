"""Sessions of Pi and OpenClaw: ``~/.pi/agent/sessions/*/*.jsonl``, ``~/.openclaw/agents/*/sessions/*.jsonl``.

Also what ``pi --mode json`` prints.

Accepts: Pi's and OpenClaw's sessions, and what ``pi --mode json`` prints.
Source: https://github.com/badlogic/pi-mono, ``packages/coding-agent/docs``.
Compared with: public files of November 2025 to July 2026.
"""

from knowledgepulse_schemas.convert.common.words import words
from knowledgepulse_schemas.convert.sessions.table import Line, Table, format_of

_MESSAGE = {"type": {"message", "message_end"}}
_NOTICES = words("bashExecution branchSummary compactionSummary custom hookMessage system")
_BESIDE = words(
    "agent_ auto_ compaction_ message_start message_update queue_ session_ thinking_level_ tool_ turn_"
    " custom label model_change"
)
FORMAT = format_of(
    Table(
        "pi",
        __doc__,
        "type id timestamp cwd",
        (
            {"type": "session", "id": str, "timestamp": ..., "cwd": ...},
            _MESSAGE  # those of Droid have no time of their own
            | {
                "message.role": {"user", "assistant", "toolResult", *_NOTICES},
                "message.content": list,
                "message.timestamp": int,
            },
        ),
        (
            Line(
                _MESSAGE | {"message.role": "assistant"},
                "assistant",
                "message.content",
                {"model": "message.model"},
                error="message.errorMessage",
                stop="message.stopReason",
            ),
            Line(_MESSAGE | {"message.role": "toolResult"}, "tool", "message=toolResult"),
            Line(_MESSAGE | {"message.role": "user"}, "user", "message.content"),
            Line(
                _MESSAGE | {"message.role": _NOTICES},
                "system",
                "message.command message.output message.summary message.content",
            ),
            Line("session", sets={"id": "id", "cwd": "cwd"}),
            Line("agent_start", sets={"ended": False}, beside=True),
            Line({"type": "agent_end", "willRetry": True}, sets={"ended": False}, beside=True),
            Line("agent_end", sets={"ended": True}, beside=True),
            Line("custom_message", "system", "summary content"),
            Line({"summary": str}, "system", "summary content"),
            Line(tuple(_BESIDE), beside=True),
        ),
        known="id parentId type",
        at="timestamp message.timestamp",
        coding_agent=True,
    )
)
