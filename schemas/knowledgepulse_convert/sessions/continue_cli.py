"""Sessions of Continue: ``~/.continue/sessions/*.json``.

The calls are in a message, and their results beside it.

Source: https://github.com/continuedev/continue, ``core/index.d.ts``.
Compared with: runs of its command line 1.5.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.reading import count_others
from knowledgepulse_convert.common.statuses import is_failure
from knowledgepulse_convert.messages.blocks import Parts, parts_of, text_of
from knowledgepulse_convert.sessions.table import Line, Table, Texts

_REPEATED = ("toolCall", "parsedArgs")
"""Members of a result that tell its call again."""


def _parts(value: Any, path: str, losses: Losses, _kind: str = "") -> Parts:
    for block in value if isinstance(value, list) else [value]:
        match block:
            case {"id": str(call_id), "function": {"name": str(name), **called}, **rest}:
                count_others({**rest, **called}, {"type", "arguments"}, f"{path}.toolCalls[]", losses)
                yield None, ir.ToolCall(name, called.get("arguments"), call_id)
            case {"toolCallId": str(call_id), "status": str(status), "output": [*outputs], **rest}:
                losses.add(
                    f"{path}.toolCallStates[] of the call", [rest.pop(name, None) for name in _REPEATED]
                )
                count_others(rest, set(), f"{path}.toolCallStates[]", losses)
                blocks = [
                    {"type": "text", **block} if isinstance(block, dict) else block for block in outputs
                ]
                text = text_of(blocks, f"{path}.output[]", losses)
                yield "tool", ir.ToolCallResponse(text, call_id, failed=is_failure(status))
            case _:
                yield from parts_of(block, path, losses)


_ROLE, _CONTENT = at("message", "role"), at("message", "content")

FORMAT = Table(
    "continue",
    __doc__,
    "sessionId history workspaceDirectory",
    first=({"message": dict, _ROLE: str, "contextItems": list},),
    lines=(
        Line({_ROLE: "thinking"}, "assistant", Texts("thinking", _CONTENT)),
        Line(
            {"message": dict},
            _ROLE,
            (_CONTENT, at("message", "toolCalls"), at("toolCallStates")),
            model=at("message", "usage", "model"),
            read=_parts,
        ),
    ),
    id=at("sessionId"),
    known=(at("contextItems"), at("editorState")),
    within=("history",),
    coding_agent=True,
    unrecorded=("exit codes", "finish reasons"),
    places={"Continue": ("~/.continue/sessions/*-*.json",)},
)
