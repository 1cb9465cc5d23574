"""Messages of OpenTelemetry's conventions for generative AI: a role, and parts with types.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    parse_json,
    read,
    text_or_none,
    without,
)
from knowledgepulse_convert.messages import bedrock, openai, wrapped
from knowledgepulse_convert.messages.blocks import Block, contents_of

_RESPONSES = ("response", "result", "server_tool_call_response")
"""Names of the member that holds a response."""


class _Message(InputModel):
    role: str
    parts: list[Block]
    name: str | None = None
    finish_reason: str | None = None
    tool_calls: list[dict[str, Any]] | None = None  # of litellm, beside the parts
    tool_call_id: str | None = None


def messages_of(document: Any, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Convert messages, a list or its JSON text; raise a ConversionError if they violate the conventions."""
    parsed = parse_json(document)
    if not isinstance(parsed, list):
        raise ConversionError(f"{path}: not a list of messages with `role` and `parts`")
    messages: list[ir.Message] = []
    is_piece = False
    for number, value in enumerate(parsed):
        if isinstance(value, dict) and "role" in value and "content" in value and "parts" not in value:
            messages.append(flat_message(value, "user", path, losses))  # some write OpenAI messages instead
            continue
        message = read(_Message, value, f"{path}[{number}]")
        role = ir.role_of(message.role, f"{path}[{number}]")
        count_unmapped(message, f"{path}[]", losses)
        if role == "tool" and not message.parts:  # Koog's, before each request
            continue
        parts = [part for item in message.parts for part in _parts(item, f"{path}[].parts[]", losses)]
        if role == "tool" and all(isinstance(part, ir.Text) for part in parts):
            response = ir.join_texts(parts)
            parts = [wrapped.response_of(response, f"{path}[].parts[]", losses, call_id=message.tool_call_id)]
        parts += _calls(message.tool_calls, path, losses)
        if is_piece:
            parts = _joined(messages.pop().parts, parts)
        is_piece = message.finish_reason == ""  # of an answer that ADK streamed
        messages.append(ir.message(role, *parts, *ir.cut_off(message.finish_reason)))
    return tuple(messages)


def _joined(pieces: tuple[ir.Part, ...], parts: list[ir.Part]) -> list[ir.Part]:
    """Return the parts of an answer whose text may have been cut between two messages."""
    match [*pieces[-1:], *parts[:1]]:
        case [ir.Text(before), ir.Text(after)]:
            return [*pieces[:-1], ir.Text(before + after), *parts[1:]]
    return [*pieces, *parts]


def _calls(calls: Any, path: str, losses: Losses) -> Iterator[ir.Part]:
    """Yield calls in the form of OpenAI's API."""
    if calls:
        (message,) = openai.messages_of([{"role": "assistant", "tool_calls": calls}], path, losses)
        yield from message.parts


def _parts(part: dict[str, Any], path: str, losses: Losses) -> Iterator[ir.Part]:
    match part:
        case {"type": "reasoningContent", "content": {**content}, **rest}:  # Strands
            count_others(rest, set(), path, losses)
            block = {"role": "assistant", "content": [{"reasoningContent": content}]}
            yield from bedrock.messages_of([block], path, losses)[0].parts
        case {"type": "server_tool_call", **rest}:
            count_others(rest, {"name", "server_tool_call", "id"}, path, losses)
            name, call_id = as_text(rest.get("name")), text_or_none(rest.get("id"))
            yield ir.ToolCall(name, rest.get("server_tool_call"), call_id)
        case {"type": "tool_call_response" | "server_tool_call_response", **rest}:
            count_others(rest, {"id", "name", *_RESPONSES}, path, losses)
            name = next((name for name in _RESPONSES if rest.get(name) is not None), _RESPONSES[0])
            yield wrapped.response_of(
                rest.get(name),
                f"{path}.{name}",
                losses,
                call_id=text_or_none(rest.get("id")),
                name=text_or_none(rest.get("name")),
            )
        case _:
            yield from contents_of(part, path, losses)


def flat_message(values: dict[str, Any], default: ir.Role, path: str, losses: Losses) -> ir.Message:
    """Convert an OpenAI chat message, of which some members may be JSON text.

    Its content may be that of another vendor's message.
    """
    role = ir.ROLES.get(as_text(values.get("role")), default)
    if (parts := wrapped.parts_of(values.get("content"), role, f"{path}.content", losses)) is not None:
        count_others(values, {"role", "content", "finish_reason", "index", "message", "id"}, path, losses)
        return ir.message(role, *parts, *ir.cut_off(values.get("finish_reason")))
    content = parse_json(values.get("content"))
    if not (
        isinstance(content, list) and all(isinstance(block, dict) and "type" in block for block in content)
    ):
        content = as_text(values.get("content"))
    calls = parse_json(values.get("tool_calls"))
    chat = without(values, "finish_reason", "index", "message")
    chat |= {"role": role, "content": content, "tool_calls": calls if isinstance(calls, list) else None}
    if role == "tool":
        chat.setdefault("tool_call_id", values.get("id"))
    (message,) = openai.messages_of([chat], path, losses)
    return ir.message(role, *message.parts, *ir.cut_off(values.get("finish_reason")))
