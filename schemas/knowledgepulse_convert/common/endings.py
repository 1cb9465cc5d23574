"""How a run ended, by the same rule for every format.

What counts is the agent's last part. An answer is a text of the agent; a call without an answer behind it was
cut off, unless the call itself ends a run. A failure or an interruption behind the agent's last part is the
end. What the user says afterwards changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from knowledgepulse_convert.common import boilerplate, ir
from knowledgepulse_convert.common.reading import parse_json
from knowledgepulse_convert.common.words import words
from knowledgepulse_schemas.trace import Ending

_ANSWERING = words(
    """
    attemptcompletion complete completetask done exitplanmode finalanswer finaloutput finalresult finish
    finished imagegeneration marktaskcomplete planmoderespond recipefinaloutput structuredoutput taskcomplete
    transfertohumanagents
    """
)
"""Calls that give an answer, in lower case and without underscores."""
_ANSWERING_FIRST = ("finalanswer", "finalresult")
"""How others begin: Pydantic AI and smolagents number or name them."""
_SUBMITTING = words("submit submitanswer submitpatch submitsolution")
"""Calls that hand over a result for others to check."""
_ANSWER = ("answer", "result", "response", "message", "plan")
"""The members of the arguments of such a call that hold the answer."""


@lru_cache(1000)
def ending_by(call: str) -> Ending | None:
    """Return how a call of a tool ends a run; None if the agent has to go on behind it."""
    name = call.replace("_", "").replace("-", "").lower()
    if name in _SUBMITTING:
        return "submitted"
    return "answered" if name in _ANSWERING or name.startswith(_ANSWERING_FIRST) else None


def answer_in(call: ir.ToolCall) -> str:
    """Return the answer that a call gives; an empty text if it gives none."""
    if ending_by(call.name) is None:
        return ""
    arguments = parse_json(call.arguments)
    if not isinstance(arguments, dict):
        return arguments if isinstance(arguments, str) else ""
    texts = (arguments.get(name) for name in _ANSWER)
    return next((text for text in texts if isinstance(text, str)), "")


class End:
    """Follows the parts of a run, and knows how it ended if the last one was the end."""

    def __init__(self) -> None:
        self._ending: Ending = "cut_off"  # by the agent's last part
        self._call: ir.ToolCall | None = None  # which ends the run, if that is the last part
        self._is_running = False  # whether the last call has no response yet
        self._problem: Ending | None = None  # behind the last part

    @classmethod
    def of(cls, messages: Iterable[ir.Message]) -> End:
        """Return the end of a conversation."""
        end = cls()
        for message in messages:
            for part in message.parts:
                end.add(message.role, part)
        return end

    @property
    def is_open(self) -> bool:
        """Whether the agent has not answered, and nothing says why."""
        return self._problem is None and self._ending == "cut_off"

    def add(self, role: ir.Role, part: ir.Part) -> None:
        """Follow a part."""
        match part:
            case ir.Text() if role == "assistant" and part.content.strip():
                self._ending, self._call, self._problem = "answered", None, None
            case ir.Reasoning() if part.content.strip():
                self._problem = None
            case ir.ToolCall():
                self._add_call(part)
            case ir.ToolCallResponse():
                self._add_response(part)
            case ir.Error() if self._problem != "failed":
                self._problem = "cut_off" if part.interruption else "failed"

    def _add_call(self, call: ir.ToolCall) -> None:
        if self._call is None or not self._is_running:  # else one of several calls at a time ends the run
            ending = ending_by(call.name)
            self._ending, self._call = ending or "cut_off", call if ending else None
        self._problem, self._is_running = None, True

    def _add_response(self, response: ir.ToolCallResponse) -> None:
        if response.is_answer or boilerplate.is_end(response.response):
            self._ending = "answered"
        elif self._call is None or (response.failed and response.id == self._call.id):
            self._ending, self._call = "cut_off", None
        self._is_running = False

    def ending(self, stated: Ending | None = None) -> Ending:
        """Return how the run ended, of which the input may state something."""
        if stated in ("failed", "cut_off"):
            return stated
        return self._problem or stated or self._ending
