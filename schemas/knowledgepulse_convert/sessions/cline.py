"""Tasks of Cline, Roo Code and Kilo Code: ``tasks/*/api_conversation_history.json``.

Accepts: the tasks of Cline, Roo Code and Kilo Code, `tasks/*/api_conversation_history.json`, and the sessions
    of Cline's command line, `~/.cline/data/sessions/*/*.messages.json`.
The messages are Anthropic's, but the program answers most calls in texts of the user, in their order, each
with a heading. A tool gives the final answer.

Source: https://github.com/cline/cline, ``src/core/task``.
Compared with: public files of January and April 2026, and runs of 3.0.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.elements import elements, outside
from knowledgepulse_convert.common.endings import answer_in
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat
from knowledgepulse_convert.common.reading import as_text, count_others, unwrap
from knowledgepulse_convert.common.session_log import Transcript
from knowledgepulse_convert.messages import anthropic

_HEADING = re.compile(
    r"\[[\w.-]+(?: for '.*?')?\] Result:\n?|(?=Tool \[[\w.-]+\] was not executed )", re.DOTALL
)
"""How a text begins that answers a call."""
_NOTICE = re.compile(r"\[(?:ERROR|TASK RESUMPTION)\] ")
"""How other texts of the program begin."""
_SAID = re.compile(r"<(task|user_message|feedback|answer)>\n?")
"""Opens what the user said."""
_INPUT = "<user_input"
"""How the user's texts begin in a session; others are the program's."""
_ROLES: tuple[ir.Role, ...] = ("tool", "system", "user")


def _recognises(document: Any) -> bool:
    """Check for a request with the details of the editor's environment, or for a session."""
    match document:
        case {"sessionId": str(), "origin": dict(), "messages": [*_]}:
            return True
        case [{"role": "user", "content": [*blocks]}, *_]:
            texts = [as_text(block.get("text")) for block in blocks if isinstance(block, dict)]
            return any(map(_begins_with_words, map(str.lstrip, texts))) and any(
                text.startswith("<environment_details>") for text in texts
            )
    return False


def _begins_with_words(text: str) -> bool:
    first = next(elements(text, _SAID), None)
    return first is not None and first.closed and first.start == 0


def _runs(document: Any) -> Iterator[ir.Run]:
    messages = unwrap(document, "messages")
    if not isinstance(messages, list):
        raise ConversionError("not a list of messages")
    task = _Task(document)
    for number, value in enumerate(messages):
        task.add(value, number)
    yield task.transcript.finish()


class _Task:
    def __init__(self, document: Any) -> None:
        self.transcript = Transcript()
        self._is_session = isinstance(document, dict)
        if isinstance(document, dict):
            self.transcript.began(document.get("sessionId"))
            match document.get("origin"):
                case {"parentThreadId": str(parent)}:
                    self.transcript.run.parent_id = parent
                    self._is_session = False  # whose request another agent wrote
            self.transcript.add("system", [ir.Text(as_text(document.get("system_prompt")))])
            count_others(document, {"sessionId", "system_prompt", "messages"}, "", self.transcript.losses)
        self._open: deque[ir.ToolCall] = deque()  # the calls of the last message that are not answered

    def add(self, value: Any, number: int) -> None:
        """Add a message; raise a ConversionError if it is none."""
        rest = dict(value) if isinstance(value, dict) else value
        at = None
        if isinstance(rest, dict):
            time, model = rest.pop("ts", None), rest.pop("modelInfo", None)
            at = self.transcript.reached_milliseconds(time)
            if isinstance(model, dict):
                self.transcript.named(model.get("modelId", model.get("id")))
                count_others(model, {"modelId", "id"}, "[].modelInfo", self.transcript.losses)
        message = anthropic.message_of(rest, f"[{number}]", "[]", self.transcript.losses)
        if message.role == "assistant":
            parts = [self._said(part) for part in message.parts]
            match rest:
                case {"metadata": {"displayRole": "error"}}:
                    parts = [ir.Error(ir.join_texts(parts))]
            self._open = deque(part for part in parts if isinstance(part, ir.ToolCall))
            self.transcript.add("assistant", parts, at)
            return
        answered = list(self._answered(message.parts))
        for role in _ROLES:
            self.transcript.add(role, [part for role_of_part, part in answered if role_of_part == role], at)

    def _said(self, part: ir.Part) -> ir.Part:
        """Return the text of a call that only gives the user an answer; any other part unchanged."""
        if not isinstance(part, ir.ToolCall) or not (answer := answer_in(part)):
            return part
        given = part.arguments if isinstance(part.arguments, dict) else {}
        told = {name for name, value in given.items() if value == answer}
        count_others(given, told, f"[].content[].input of {part.name}", self.transcript.losses)
        return ir.Text(answer)

    def _answered(self, parts: tuple[ir.Part, ...]) -> Iterator[tuple[ir.Role, ir.Part]]:
        """Yield the parts of a user's message: answers to calls, notices and what the user said."""
        for part in parts:
            text = part.content if isinstance(part, ir.Text) else ""
            heading = _HEADING.match(text)
            if isinstance(part, ir.ToolCallResponse):
                self._open = deque(call for call in self._open if call.id != part.id)
                beginning = _HEADING.match(part.response)
                yield "tool", replace(part, response=part.response[beginning.end() if beginning else 0 :])
            elif heading and self._open:
                call = self._open.popleft()
                yield "tool", ir.ToolCallResponse(text[heading.end() :], call.id, call.name)
            elif self._is_session and not text.lstrip().startswith(_INPUT):
                yield "system", part
            elif heading or _NOTICE.match(text):
                said = [element for element in elements(text, _SAID) if element.closed]
                yield "system", ir.Text(outside(text, said))
                for element in said:
                    yield "user", ir.Text(element.content.removesuffix("\n"))
            else:
                yield "user", part


FORMAT = InputFormat(
    "cline",
    __doc__,
    "role content ts modelInfo",
    _recognises,
    _runs,
    coding_agent=True,
    places={
        "Cline": (
            "~/.cline/data/sessions/*/*.messages.json",
            "~/.config/Code/User/globalStorage/*/tasks/*/api_conversation_history.json",
            "~/Library/Application Support/Code/User/globalStorage/*/tasks/*/api_conversation_history.json",
        )
    },
)
