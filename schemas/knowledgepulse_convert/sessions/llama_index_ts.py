"""Events of LlamaIndex's agents in TypeScript, one per line, as ``JSON.stringify`` writes what a run yields.

Most have no name, only a number, so that their data tell what they are.

Source: https://github.com/run-llama/LlamaIndexTS, `packages/workflow/src/agent`.
Compared with: runs of ``@llamaindex/workflow`` 1.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.input_format import InputFormat, of_lines
from knowledgepulse_convert.common.pattern import any_of, at
from knowledgepulse_convert.common.reading import as_list, as_text, count_others, text_or_none
from knowledgepulse_convert.common.session_log import Reader
from knowledgepulse_convert.messages.any_vendor import messages_of
from knowledgepulse_convert.messages.blocks import contents_of

_REASONS = tuple(
    at("raw", *names)
    for names in (("choices", "finish_reason"), ("delta", "stop_reason"), ("candidates", "finishReason"))
)
"""Where the models' chunks have the reason why an answer ended."""
_REPEATED = "what other events tell, too"
_recognises = any_of(
    {at("data", "currentAgentName"): str, at("data", "input"): list},
    {at("data", "currentAgentName"): str, at("data", "delta"): str},
    {at("data", "toolKwargs"): ..., at("data", "toolOutput"): dict},
)


class _Reader(Reader):
    def __init__(self) -> None:
        super().__init__()
        self._reason: Any = None  # why the answer ended whose pieces came last
        self._instructions: set[str] = set()

    def add(self, value: dict[str, Any]) -> None:
        """Add an event."""
        count_others(value, {"type", "data"}, "", self.losses)
        data: Any = value.get("data")
        known = {"currentAgentName"}
        match data:
            case {"userInput": request}:
                known |= {"userInput", "chatHistory"}
                self._add_messages(as_list(data.get("chatHistory")), "user")
                self.transcript.add("user", contents_of(request, "userInput", self.losses))
            case {"input": [*messages], "currentAgentName": _}:
                known.add("input")
                self._add_input(messages)
            case {"delta": _, "currentAgentName": _}:
                self._reason = next(filter(None, (path.of(data) for path in _REASONS)), self._reason)
            case {"response": {**answer}, "toolCalls": calls, "currentAgentName": _}:
                known |= {"response", "toolCalls"}
                self.losses.add(_REPEATED, calls)
                self._add_messages([answer], "assistant", ir.cut_off(self._reason))
                self._reason = None
            case {"toolOutput": {**output}, "toolKwargs": arguments}:
                known |= {"toolOutput", "toolKwargs", "toolId", "toolName", "returnDirect"}
                self.losses.add(_REPEATED, arguments)
                self._add_result(output, data)
            case {"toolId": _} | {"agentName": _} | {"state": _}:
                self.losses.add(_REPEATED, data)
                return
            case _:
                self.losses.add_unknown("data", data, {"content": data})
                return
        count_others(data, known, "data", self.losses)

    def _add_messages(self, values: list[Any], role: ir.Role, end: Iterable[ir.Part] = ()) -> None:
        for message in messages_of(values, role, "messages", self.losses) if values else ():
            self.transcript.add(message.role, [*message.parts, *end])

    def _add_result(self, output: dict[Any, Any], data: dict[str, Any]) -> None:
        count_others(output, {"id", "result", "isError"}, "data.toolOutput", self.losses)
        call_id, name = text_or_none(data.get("toolId")), text_or_none(data.get("toolName"))
        is_failed, is_answer = output.get("isError") is True, data.get("returnDirect") is True
        result = as_text(output.get("result"))
        self.transcript.add(
            "tool", [ir.ToolCallResponse(result, call_id, name, is_failed, is_answer=is_answer)]
        )

    def _add_input(self, messages: list[Any]) -> None:
        """Add an agent's instructions, which each of its turns repeats with the whole conversation."""
        for message in messages:
            text = as_text(message.get("content")) if isinstance(message, dict) else ""
            if text and message.get("role") == "system" and text not in self._instructions:
                self._instructions.add(text)
                self.transcript.add("system", [ir.Text(text)])
                count_others(message, {"role", "content"}, "data.input[]", self.losses)
            else:
                self.losses.add("data.input[]", message)


FORMAT = InputFormat("llama_index_ts", __doc__, "type data", *of_lines(_recognises, _Reader))
