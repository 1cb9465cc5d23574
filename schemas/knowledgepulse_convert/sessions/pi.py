"""Sessions of Pi and OpenClaw: ``~/.pi/agent/sessions/*/*.jsonl``, ``~/.openclaw/agents/*/sessions/*.jsonl``.

Also what ``pi --mode json`` prints.

Accepts: Pi's and OpenClaw's sessions, and what ``pi --mode json`` prints.
Source: https://github.com/badlogic/pi-mono, ``packages/coding-agent/docs``.
Compared with: public files of November 2025 to July 2026.
"""

from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.words import words
from knowledgepulse_convert.sessions.table import Block, Line, Table

_MESSAGE = {"type": {"message", "message_end"}}
_NOTICES = words("bashExecution branchSummary compactionSummary custom hookMessage system")
_BESIDE = words(
    "agent_ auto_ compaction_ message_start message_update queue_ session_ thinking_level_ tool_ turn_"
    " custom label model_change"
)
FORMAT = Table(
    "pi",
    __doc__,
    "type id timestamp cwd",
    first=(
        {"type": "session", "id": str, "timestamp": ..., "cwd": ...},
        _MESSAGE  # those of Droid have no time of their own
        | {
            at("message", "role"): {"user", "assistant", "toolResult", *_NOTICES},
            at("message", "content"): list,
            at("message", "timestamp"): int,
        },
    ),
    lines=(
        Line(
            _MESSAGE | {at("message", "role"): "assistant"},
            "assistant",
            at("message", "content"),
            model=at("message", "model"),
            error=at("message", "errorMessage"),
            stop=(at("message", "stopReason"),),
        ),
        Line(_MESSAGE | {at("message", "role"): "toolResult"}, "tool", Block("toolResult", at("message"))),
        Line(_MESSAGE | {at("message", "role"): "user"}, "user", at("message", "content")),
        Line(
            _MESSAGE | {at("message", "role"): _NOTICES},
            "system",
            (
                at("message", "command"),
                at("message", "output"),
                at("message", "summary"),
                at("message", "content"),
            ),
        ),
        Line("session", id=at("id"), cwd=at("cwd")),
        Line("agent_start", ended=False, is_beside=True),
        Line({"type": "agent_end", "willRetry": True}, ended=False, is_beside=True),
        Line("agent_end", ended=True, is_beside=True),
        Line("custom_message", "system", (at("summary"), at("content"))),
        Line({"summary": str}, "system", (at("summary"), at("content"))),
        Line(tuple(_BESIDE), is_beside=True),
    ),
    known=(at("id"), at("parentId"), at("type")),
    time=(at("timestamp"), at("message", "timestamp")),
    coding_agent=True,
    places=("~/.pi/agent/sessions/*/*.jsonl", "~/.openclaw/agents/*/sessions/*.jsonl"),
)
