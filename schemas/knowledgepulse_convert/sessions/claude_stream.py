"""What ``claude -p`` prints with ``--output-format stream-json`` or ``json``.

The lines are those of a session's log in another envelope, between ``system`` and ``result``. With
``--output-format json``, only the result is printed.

Source: https://platform.claude.com/docs/en/agent-sdk/typescript, ``SDKMessage``.
Compared with: public files of 2.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, of_session
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import InputModel, count_unmapped, read
from knowledgepulse_convert.common.session_log import lines_of, project_of
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_convert.sessions.claude_code import Session

_ENVELOPE = {"session_id": "sessionId", "parent_tool_use_id": "agentId", "isSynthetic": "isMeta"}
"""The members that a line of a log has by another name."""


class _Result(InputModel):
    type: str
    subtype: str | None = None
    session_id: str | None = None
    is_error: bool | None = None
    result: str | None = None
    errors: list[str] | None = None
    stop_reason: str | None = None


_LINE = {"session_id": str}
_SYSTEM = {**_LINE, "type": "system", "subtype": ..., "reasoning_effort": None}  # which Droid's have
_recognises = any_of(
    {**_SYSTEM, "tools": ...},
    {**_SYSTEM, "uuid": ...},
    {**_LINE, "type": {"user", "assistant", "stream_event"}, "parent_tool_use_id": ...},
    {**_LINE, "type": "result", "num_turns": ...},
)


def _runs(document: Any) -> Iterator[ir.Run]:
    stream = _Stream()
    for line in lines_of(document, stream.session.main.losses):
        stream.add(line)
    yield from stream.session.runs(ended=stream.has_ended)


class _Stream:
    def __init__(self) -> None:
        self.session = Session()
        self.has_ended = False

    def add(self, line: dict[str, Any]) -> None:
        """Add a line."""
        if line.get("type") == "result":
            self._add_result(line)
            return
        if line.get("subtype") == "init":
            self.has_ended = False
            self.session.main.run.names = self.session.main.run.names or project_of(line.get("cwd"))
        self.session.add(_as_logged(line))
        for chain, answer in _answers(line):
            self.session.answer(chain, answer)

    def _add_result(self, line: dict[str, Any]) -> None:
        """Add how the session ended, and an answer that its messages do not hold."""
        main = self.session.main
        try:
            result = read(_Result, line)
        except ConversionError:
            main.losses.add_unknown("result lines of another form", line)
            return
        self.has_ended = True
        main.run.native_id = main.run.native_id or result.session_id
        count_unmapped(result, "result", main.losses)
        text = "\n".join([result.result or "", *(result.errors or ())]).strip()
        is_told = text == main.last_text().strip() or ir.Error(text) in ir.parts_in(main.run.messages[-1:])
        text = "" if is_told else text
        if result.is_error or str(result.subtype).startswith("error"):
            main.add("assistant", [ir.Error(text, interruption=told_by(result.subtype) == "cut_off")])
        else:
            main.add("assistant", [ir.Text(text)] if text else [])
            main.add("assistant", ir.cut_off(result.stop_reason))


def _as_logged(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line as a session's log has it."""
    logged = {_ENVELOPE.get(name, name): value for name, value in line.items()}
    logged["isSidechain"] = line.get("parent_tool_use_id") is not None
    if line.get("type") == "assistant" and line.get("error"):
        logged["isApiErrorMessage"] = True
    return logged


def _answers(line: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the calls that a line answers, and the first text of each answer.

    The call of a subagent is answered with the subagent's last text, which no other line holds.
    """
    match line:
        case {"tool_use_result": {"status": "async_launched"}}:
            return
        case {"type": "user", "message": {"content": list(blocks)}}:
            for block in blocks:
                match block:
                    case {"tool_use_id": str(call), "content": str(text)}:
                        yield call, text
                    case {"tool_use_id": str(call), "content": [{"type": "text", "text": str(text)}, *_]}:
                        yield call, text


FORMAT = InputFormat(
    "claude_stream",
    __doc__,
    "type session_id parent_tool_use_id message",
    *of_session(_recognises, _runs),
    coding_agent=True,
)
