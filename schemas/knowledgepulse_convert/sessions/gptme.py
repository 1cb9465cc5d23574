"""Conversations of gptme: ``~/.local/share/gptme/logs/*/conversation.jsonl``.

The agent's calls are lines of its texts, ``@shell(call_1): {"command": …}``, and their results texts of the
system with the id of the call.

Source: https://github.com/gptme/gptme, ``gptme/message.py`` and ``gptme/tools/base.py``.
Compared with: runs of 0.35.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.elements import elements, outside
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.reading import as_text, parse_json
from knowledgepulse_convert.common.text_calls import UNREAD
from knowledgepulse_convert.messages.blocks import Parts
from knowledgepulse_convert.sessions.table import Block, Line, Table

_CALL = re.compile(r"^@(\w+)\(([\w-]+)\): (?=\{)", re.MULTILINE)
_CONTENT = at("content")
_INTERRUPTED = "... ^C Interrupted"
"""What stands at the end of a text, or alone, if the user interrupts the model."""
_THOUGHT = re.compile(r"<(think|thinking)>\n?")


def _said(value: Any, _path: str, losses: Losses, _kind: str = "") -> Parts:
    """Yield the thoughts, the text and the calls in a text of the agent."""
    text = as_text(value)
    if text.endswith(_INTERRUPTED):
        yield from _said(text.removesuffix(_INTERRUPTED), _path, losses)
        yield None, ir.Error(_INTERRUPTED, interruption=True)
        return
    thoughts = [element for element in elements(text, _THOUGHT) if element.closed]
    for thought in thoughts:
        yield None, ir.Reasoning(thought.content.strip())
    text = outside(text, thoughts)
    starts = [mark.start() for mark in _CALL.finditer(text)]
    yield None, ir.Text(text[: starts[0] if starts else None].strip())
    for start, end in pairwise([*starts, len(text)]):
        mark = _CALL.match(text, start)
        arguments = parse_json(text[mark.end() : end].strip()) if mark else None
        if mark and isinstance(arguments, dict):
            yield None, ir.ToolCall(mark[1], arguments, mark[2])
        else:
            losses.add_unknown(UNREAD, text[start:end], {"text": text})


FORMAT = Table(
    "gptme",
    __doc__,
    "role content timestamp pinned",
    first=(
        {"role": "system", "content": str, "timestamp": str, "pinned": True},
        {"role": "system", "content": str, "timestamp": str, "call_id": str},
    ),
    lines=(
        Line({"role": "system", at("metadata", "tool"): str}, "tool", Block("tool_result")),
        Line({"role": "system", "content": "Interrupted by user"}, error=_CONTENT, stop=(_CONTENT,)),
        Line({"role": "system"}, "system", _CONTENT),
        Line({"role": "user", "content": ("<system>",)}, "system", _CONTENT),
        Line({"role": "user"}, "user", _CONTENT),
        Line({"role": "assistant"}, "assistant", _CONTENT, model=at("metadata", "model"), read=_said),
    ),
    known=(at("role"), at("timestamp"), at("pinned"), at("hide")),
    coding_agent=True,
    places={"gptme": ("~/.local/share/gptme/logs/*/conversation.jsonl",)},
)
