"""What Mistral's Vibe prints with ``--output streaming``.

A call is told once, with its result. An answer that was cut off is discarded, and asked for again.

Source: none is published.
Compared with: runs of 3.0.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import at
from knowledgepulse_convert.common.reading import as_text, count_others
from knowledgepulse_convert.messages.blocks import Parts, is_failed
from knowledgepulse_convert.sessions.table import Block, Line, Table


def _effect(effect: dict[str, Any], path: str, losses: Losses, _kind: str = "") -> Parts:
    match effect:
        case {"id": str(call_id), "detail": {"toolName": str(name), **detail}, "state": dict(state), **rest}:
            count_others(rest | detail, {"input"}, path, losses)
            count_others(state, {"status", "outputText"}, f"{path}.state", losses)
            yield None, ir.ToolCall(name, detail.get("input"), call_id)
            if "outputText" in state:
                shown = state.get("display")
                failed = is_failed(state) or (isinstance(shown, dict) and is_failed(shown))
                yield "tool", ir.ToolCallResponse(as_text(state["outputText"]), call_id, name, failed=failed)
        case _:
            losses.add_unknown(path, effect)


_KNOWN = ("turnId", "inputEntryId", "relatedEntryId", "updatedAt", "generationStatus", "source")
_LINE = {"id": str, "sessionId": str, "turnId": str, "generationStatus": str}

FORMAT = Table(
    "vibe",
    __doc__,
    "id sessionId turnId generationStatus",
    first=({**_LINE, "type": {"message", "effect"}},),
    lines=(
        Line({"type": "message", at("outcome", "type"): "discarded"}, of="discarded", is_beside=True),
        Line("message", at("role"), at("content")),
        Line("effect", "assistant", Block("effect"), read=_effect),
    ),
    time=(at("createdAt"),),
    id=at("sessionId"),
    known=tuple(map(at, _KNOWN)),
    coding_agent=True,
    unrecorded=("finish reasons",),
)
