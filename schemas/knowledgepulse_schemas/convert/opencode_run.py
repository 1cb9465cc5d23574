"""What ``opencode run --format json`` prints: the parts of the agent's messages, one per line.

Source: https://github.com/anomalyco/opencode, ``packages/opencode/src/cli/cmd/run.ts``.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from knowledgepulse_schemas.convert import hub, opencode
from knowledgepulse_schemas.convert.errors import ConversionError
from knowledgepulse_schemas.convert.input_format import of_lines
from knowledgepulse_schemas.convert.reading import InputModel, count_unread, read
from knowledgepulse_schemas.convert.sessions import Reader

NAME = "opencode_run"

_PARTS = {"step_start", "text", "reasoning", "tool_use", "step_finish"}


class _Event(InputModel):
    type: str
    timestamp: float | None = None
    session: str | None = Field(default=None, alias="sessionID")
    part: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


def _recognises(line: dict[str, Any]) -> bool:
    is_event = isinstance(line.get("sessionID"), str) and isinstance(line.get("part"), dict)
    return is_event and line.get("type") in _PARTS


class _Stream(Reader):
    def add(self, value: dict[str, Any]) -> None:
        """Add an event."""
        transcript = self.transcript
        try:
            event = read(_Event, value)
            part = None if event.part is None else read(opencode.Part, event.part)
            error = None if event.error is None else read(opencode.Failure, event.error)
        except ConversionError:
            self.losses.add_unknown("events of another form", value)
            return
        transcript.began(event.session)
        at = transcript.reached_milliseconds(event.timestamp)
        count_unread(event, event.type, self.losses)
        if part is not None:
            for role, own in opencode.messages_of(part, self.losses):
                transcript.add(role, [own], at)
            transcript.add("assistant", hub.cut_off((part.model_extra or {}).get("reason")), at)
        if error is not None:
            count_unread(error, "error", self.losses)
            transcript.add("assistant", [opencode.error_of(error, "error", self.losses)], at)


FORMAT = of_lines(NAME, "type timestamp sessionID part", _recognises, _Stream)
