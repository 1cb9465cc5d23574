"""What ``openclaw sessions export-trajectory`` writes, and sessions from OpenClaw's database.

In ``events.jsonl``, the lines whose source is the transcript hold all messages; those of the runtime repeat
calls and results. ``session-branch.json`` beside it has a session's entries, in the form of Pi's sessions,
but lacks what stands behind some hundred values. Sessions from the database have that form, too.

Accepts: ``events.jsonl`` of ``openclaw sessions export-trajectory``, and a ``session-branch.json`` that lacks
    nothing. OpenClaw's database is read as well.
Source: https://docs.openclaw.ai/cli/sessions.
Compared with: runs of 2026.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import are_all
from knowledgepulse_convert.common.pattern import any_of, at
from knowledgepulse_convert.common.reading import count_others
from knowledgepulse_convert.sessions import pi
from knowledgepulse_convert.sessions.table import Block, Line, Table
from knowledgepulse_convert.sessions.table_reader import format_of

_CUT = "[Truncated]"
"""What the export writes behind some hundred values."""
_is_branch = any_of({"header": dict, "entries": list})
_EVENT = {"traceSchema": "openclaw-trajectory", "sessionId": str}
_TOLD = {"source": "transcript"}
_MESSAGE = at("data", "message")
_EVENTS = format_of(
    Table(
        "openclaw",
        __doc__,
        "traceSchema sessionId source data",
        first=(_EVENT,),
        lines=(
            Line({"source": "runtime", "type": "session.ended"}, ended=at("data", "status"), is_beside=True),
            Line({"source": "runtime"}, cwd=at("workspaceDir"), is_beside=True),
            Line(
                _TOLD | {"type": "assistant.message"},
                "assistant",
                at("data", "message", "content"),
                read=pi.read,
                model=at("data", "message", "model"),
                error=at("data", "message", "errorMessage"),
                stop=(at("data", "message", "stopReason"),),
            ),
            Line(_TOLD | {"type": "tool.result"}, "tool", Block("toolResult", _MESSAGE), read=pi.read),
            Line(_TOLD | {"type": "user.message"}, "user", at("data", "message", "content")),
            Line(_TOLD | {"type": "tool.call"}, is_beside=True),  # which the answer has
            Line(_TOLD | {"type": "message.custom"}, is_beside=True),  # what a called tool did within
            Line(_TOLD | {"type": ("session.",)}, is_beside=True),
        ),
        known=(at("traceSchema"), at("traceId"), at("sessionId"), at("source"), at("type"), at("seq")),
        time=(at("ts"), at("data", "message", "timestamp")),
        id=at("sessionId"),
    )
)
_ENTRIES = format_of(pi.FORMAT)


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    is_one = isinstance(document, dict) or not isinstance(document, Iterable)
    lines = iter([document] if is_one else document)
    first = next(lines, None)
    if not _is_branch(first):
        yield from _EVENTS.runs(chain([first], lines))
        return
    for session in chain([first], lines):
        if not _is_branch(session) or _has_cut(session["entries"]):
            yield ConversionError(f"not whole, as {_CUT} says; convert the `events.jsonl` beside it")
            continue
        for run in _ENTRIES.runs([{"type": "session", **session["header"]}, *session["entries"]]):
            if isinstance(run, ir.Run):
                count_others(session, {"header", "entries"}, "", run.losses)
            yield run


def _has_cut(value: Any) -> bool:
    rest = [value]  # a loop, as a deeply nested value would exceed the recursion limit
    while rest:
        inner = rest.pop()
        if isinstance(inner, dict | list):
            rest += inner.values() if isinstance(inner, dict) else inner
        elif inner == _CUT:
            return True
    return False


FORMAT = replace(
    _EVENTS,
    recognises=lambda document: are_all(_is_branch, document) or _EVENTS.recognises(document),
    needed=(),
    runs=_runs,
    places={"OpenClaw": ("~/.openclaw/agents/*/agent/openclaw-agent.sqlite",)},
)
