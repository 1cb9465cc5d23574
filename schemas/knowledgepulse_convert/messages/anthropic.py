"""Messages of the Messages API; an answer with its ``messages`` and ``system``.

Source: https://platform.claude.com/docs/en/api/messages; the types of ``anthropic``.
Compared with: its documents, in November 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.input_format import InputFormat, of_messages
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    Id,
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    read,
    read_record,
)
from knowledgepulse_convert.messages.blocks import is_failed
from knowledgepulse_convert.messages.definitions import definitions_of

_BESIDE = {
    *("image", "document", "search_result", "container_upload", "redacted_thinking", "tool_reference"),
    *("video", "audio", "cachePoint", "searchResult"),  # of the Converse API
}
"""Types of blocks that hold no text, reasoning or call."""
_OWN_BLOCKS = {"thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use", "tool_result"}


class _Block(InputModel):
    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    server_name: str | None = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


class _Message(InputModel):
    role: str
    content: str | list[_Block]
    stop_reason: str | None = None


class _Record(InputModel):
    """A request's messages, together with the members of the response."""

    id: Id = None
    type: str | None = None
    system: str | list[_Block] | None = None
    messages: list[Any]
    tools: list[Any] | None = None
    role: str | None = None
    content: list[_Block] | None = None
    stop_reason: str | None = None


def recognises(document: Any) -> bool:
    """Check for content blocks that only Anthropic messages have."""
    documents = document if isinstance(document, list) else [document]
    return any(_is_record(record) or (_is_message(record) and record is not document) for record in documents)


def messages_of(items: list[Any], path: str, losses: Losses) -> list[ir.Message]:
    """Convert Anthropic messages; raise a ConversionError if an item is not a message."""
    return [message_of(value, f"{path}[{number}]", f"{path}[]", losses) for number, value in enumerate(items)]


def run_of_record(document: Any, path: str) -> ir.Run:
    """Convert a request's messages, with its response; raise a ConversionError if it is none."""
    record, losses = read_record(_Record, document, path)
    messages = [*definitions_of(record.tools or [], "tools", losses)]
    if record.system is not None:
        messages.append(message_of({"role": "system", "content": record.system}, "system", "", losses))
    messages += messages_of(record.messages, "messages", losses)
    if record.content is not None:
        answer = {"role": "assistant", "content": record.content, "stop_reason": record.stop_reason}
        messages.append(message_of(answer, "content", "", losses))
    return ir.Run(messages, native_id=record.id, losses=losses)


def message_of(value: Any, path: str, unindexed: str, losses: Losses) -> ir.Message:
    """Convert a message; ``unindexed`` is its path in the loss report."""
    message = read(_Message, value, path)
    count_unmapped(message, unindexed, losses)
    role = ir.role_of(message.role, path)
    blocks = message.content
    if isinstance(blocks, str):
        parts: list[ir.Part] = [ir.Text(blocks)]
    else:
        parts = [part for block in blocks for part in _parts(block, f"{unindexed}.content[]", losses)]
    return ir.message(role, *parts, *ir.cut_off(message.stop_reason))


def _parts(block: _Block, path: str, losses: Losses) -> Iterator[ir.Part]:
    if block.type == "text":
        yield ir.Text(block.text or "")
    elif block.type == "thinking":
        yield ir.Reasoning(block.thinking or "")
    elif block.type.endswith("tool_use"):
        yield ir.ToolCall(block.name or block.type, block.input, block.id, mcp_server=block.server_name)
    elif block.type.endswith("tool_result"):
        if block.tool_use_id is None and block.content is None:  # they may be in members that are not known
            losses.add_unknown(f"{path} of an empty response", block.model_extra)
        text, failed = _result(block.content, f"{path}.content", losses)
        yield ir.ToolCallResponse(text, block.tool_use_id, failed=failed or block.is_error is True)
    else:
        value = [block.text, block.content, block.input]
        if block.type in _BESIDE:
            losses.add(f"{path}.{block.type}", value)
        else:
            losses.add_unknown(f"{path}.{block.type}", value, block.model_dump())


def _result(content: Any, path: str, losses: Losses) -> tuple[str, bool]:
    """Return a tool result's text, and whether it is an error, or code that failed, of a server tool."""
    if isinstance(content, dict):
        failed = str(content.get("type")).endswith("_error") or content.get("return_code") not in (None, 0)
        return as_text(content), failed
    if not isinstance(content, list):
        return as_text(content), False
    texts, failed = [], False
    for value in content:
        kind = value.get("type") if isinstance(value, dict) else None
        if kind == "text" and isinstance(value.get("text"), str):
            texts.append(value["text"])
            count_others(value, {"type", "text"}, f"{path}[]", losses)
        elif kind in ("image", "document"):
            losses.add(f"{path}[].{kind}", value)
        elif kind is None and isinstance(value, dict) and isinstance(value.get("result"), str):  # Cline's
            texts.append(value["result"])
            failed = failed or is_failed(value)
            count_others(value, {"result"}, f"{path}[]", losses)
        else:
            texts.append(as_text(value))
    return "\n".join(texts), failed


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or "role" not in value or not isinstance(value.get("content"), list):
        return False
    kinds = {str(block.get("type")) for block in value["content"] if isinstance(block, dict)}
    return "stop_reason" in value or any(
        kind in _OWN_BLOCKS or kind.endswith("_tool_result") for kind in kinds
    )


def _is_record(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    answered = value.get("type") == "message" and "stop_reason" in value
    return answered or any(map(_is_message, value["messages"]))


FORMAT = InputFormat(
    "anthropic",
    __doc__,
    "messages stop_reason",
    *of_messages(
        recognises,
        lambda items: not any(isinstance(item, dict) and "messages" in item for item in items),
        messages_of,
        run_of_record,
    ),
)
