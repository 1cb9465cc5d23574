"""Messages of AG-UI's clients.

Some agents give all their turns one message, with all texts and all calls; its text counts as the answer.

Accepts: ``messages`` of AG-UI's clients, or a ``RunAgentInput`` with them.
Source: https://docs.ag-ui.com/concepts/messages; the types of ``@ag-ui/core``.
Compared with: runs of VoltAgent 2.10 with ``@ag-ui/client`` 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import (
    count_others,
    each,
    parse_json,
    text_or_none,
    unwrap,
    without,
)
from knowledgepulse_convert.messages import openai

_is_message = any_of({"id": str, "role": {*ir.ROLES, "reasoning", "activity"}})
_is_own = any_of({"role": "assistant", "toolCalls": list}, {"role": "tool", "toolCallId": str})


def _are_messages(document: Any) -> bool:
    values = unwrap(document, "messages")
    return are_all(_is_message, values) and any(map(_is_own, values))


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    yield from [_run(document, "")] if _are_messages(document) else each(document, _run)


def _run(document: Any, path: str) -> ir.Run:
    if not _are_messages(document):
        raise ConversionError(f"{path or 'the document'}: no messages of AG-UI")
    losses, native_id = Losses(), None
    if isinstance(document, dict):
        count_others(document, {"threadId", "messages"}, "", losses)
        native_id = text_or_none(document.get("threadId"))
    values = [_as_chat(value) for value in unwrap(document, "messages")]
    messages = openai.messages_of(values, f"{path}.messages".lstrip("."), losses)
    joined = _with_answer_last(messages)
    unrecorded = () if joined is messages else (ir.UNORDERED,)
    return ir.Run(joined, native_id, losses=losses, unrecorded=unrecorded)


def _as_chat(message: dict[str, Any]) -> dict[str, Any]:
    told = without(message, "id", "toolCalls", "toolCallId")
    match message:
        case {"role": "assistant", "toolCalls": calls}:
            return told | {"tool_calls": calls}
        case {"role": "tool", "toolCallId": call_id, "content": str(content)}:
            parsed = parse_json(content)  # a text is in quotes
            return told | {"tool_call_id": call_id, "content": parsed if isinstance(parsed, str) else content}
        case {"role": "tool", "toolCallId": call_id}:
            return told | {"tool_call_id": call_id}
        case {"role": "reasoning", "content": thought}:
            return without(told, "content") | {"role": "assistant", "reasoning_content": thought}
    return told


def _with_answer_last(messages: list[ir.Message]) -> list[ir.Message]:
    """Return the messages with the text of the last turn behind its results, if they end with these."""
    turn = next((n for n, each in reversed([*enumerate(messages)]) if each.role == "assistant"), None)
    if turn is None or messages[-1].role != "tool":
        return messages
    texts = [part for part in messages[turn].parts if isinstance(part, ir.Text)]
    others = [part for part in messages[turn].parts if not isinstance(part, ir.Text)]
    if not texts:
        return messages
    called = ir.message("assistant", *others)
    return [*messages[:turn], called, *messages[turn + 1 :], ir.message("assistant", *texts)]


FORMAT = InputFormat(
    "agui_messages",
    __doc__,
    "id role content toolCalls toolCallId",
    lambda document: _are_messages(document) or are_all(_are_messages, document),
    _runs,
    unrecorded=("finish reasons",),
)
