"""Sessions of Pi and OpenClaw: ``~/.pi/agent/sessions/*/*.jsonl``, ``~/.openclaw/agents/*/sessions/*.jsonl``.

Also what ``pi --mode json`` prints.

Accepts: Pi's and OpenClaw's sessions, and what ``pi --mode json`` prints.
Source: https://github.com/badlogic/pi-mono, ``packages/coding-agent/docs``.
Compared with: public files of November 2025 to July 2026.
"""

from dataclasses import replace
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.words import words
from knowledgepulse_convert.messages.blocks import Parts, is_failed, parts_of
from knowledgepulse_convert.sessions.table import Block, Line, Table


def read(block: Any, path: str, losses: Losses, kind: str = "") -> Parts:
    """Read parts of a message as :func:`parts_of` does, with what OpenClaw alone says of tools.

    A command that ended with another status than 0 is no error to it. A tool that it has only in its search
    is called through another one, which the trace leaves out.
    """
    if isinstance(block, dict) and isinstance(details := block.get("details"), dict) and is_failed(details):
        block = block | {"isError": True}
    for role, part in parts_of(block, path, losses, kind):
        match part:
            case ir.ToolCall(name="tool_call", arguments={"id": str(name), "args": dict(arguments), **rest}):
                losses.add(f"{path}.tool_call", rest)
                yield role, replace(part, name=name, arguments=arguments)
            case ir.ToolCallResponse(name="tool_call"):
                yield role, replace(part, name=None)
            case _:
                yield role, part


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
            read=read,
            model=at("message", "model"),
            error=at("message", "errorMessage"),
            stop=(at("message", "stopReason"),),
        ),
        Line(
            _MESSAGE | {at("message", "role"): "toolResult"},
            "tool",
            Block("toolResult", at("message")),
            read=read,
        ),
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
    places={
        "Pi": ("~/.pi/agent/sessions/*/*.jsonl",),
        "OpenClaw": ("~/.openclaw/agents/*/sessions/*.jsonl",),
    },
)
