"""Sessions of Google's ADK: ``*.session.json``, or from its API.

A session is one run, with the events of all its agents. Their contents are Gemini's.

Source: https://github.com/google/adk-python, ``src/google/adk/sessions/session.py`` and
    ``events/event.py``.
Compared with: public files from before 1.0 to April 2025.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.input_format import InputFormat, of_records
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import CamelModel, as_text, count_unmapped, read
from knowledgepulse_convert.common.session_log import Transcript
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_convert.messages import gemini

_USER = "user"
_PROGRAM = "model"
"""The author of events that change the state."""
_ANSWERS = ("skip_summarization", "skipSummarization")
"""The action of a tool whose result is the answer."""


class _Event(CamelModel):
    author: str | None = None
    content: dict[str, Any] | None = None
    timestamp: float | None = None
    partial: bool | None = None
    interrupted: bool | None = None
    finish_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class _Session(CamelModel):
    id: str | None = None
    app_name: str | None = None
    events: list[dict[str, Any]]


def _recognises(document: Any) -> bool:
    events = document.get("events") if isinstance(document, dict) else None
    return isinstance(events, list) and bool(events) and all(map(_is_event, events))


_is_event = any_of({"author": ..., "invocation_id": ...}, {"author": ..., "invocationId": ...})


def _run_of(document: Any, path: str) -> ir.Run:
    session = read(_Session, document, path)
    transcript = Transcript()
    count_unmapped(session, "", transcript.losses)
    agents: dict[str, None] = {}
    for number, value in enumerate(session.events):
        event = read(_Event, value, f"{path}.events[{number}]".lstrip("."))
        count_unmapped(event, "events[]", transcript.losses)
        at = transcript.reached(event.timestamp)
        if event.partial:
            transcript.losses.add("pieces of answers", event.content)
            continue
        if event.author not in (None, _USER, _PROGRAM):
            agents[as_text(event.author)] = None
        if event.content is not None and event.content.get("parts") is not None:
            role: ir.Role = "user" if event.author == _USER else "assistant"
            message = gemini.message_of(event.content, role, "events[].content", transcript.losses)
            parts = map(_as_answer, message.parts) if _ends(event) else message.parts
            transcript.add(message.role, parts, at)
        transcript.add("assistant", _errors(event), at)
    run = transcript.finish()
    run.native_id = session.id
    run.agent_id = next(iter(agents), None)
    run.names = tuple(filter(None, [*agents, session.app_name]))
    return run


def _ends(event: _Event) -> bool:
    """Check for the response of a tool that no model sees again, as it is the answer."""
    actions = (event.model_extra or {}).get("actions")
    return isinstance(actions, dict) and any(actions.get(name) is True for name in _ANSWERS)


def _as_answer(part: ir.Part) -> ir.Part:
    return replace(part, is_answer=True) if isinstance(part, ir.ToolCallResponse) else part


def _errors(event: _Event) -> list[ir.Error]:
    """Return an error if an answer was interrupted, has failed or was cut off."""
    if event.interrupted:
        return [ir.Error(interruption=True)]
    if event.error_code or event.error_message:
        message = event.error_message or event.error_code or ""
        return [ir.Error(message, interruption=told_by(event.error_code) == "cut_off")]
    return list(ir.cut_off(event.finish_reason))


FORMAT = InputFormat("adk", __doc__, "events app_name user_id state", *of_records(_recognises, _run_of))
