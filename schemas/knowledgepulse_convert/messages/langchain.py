"""LangChain and LangGraph: serialised messages, graph states and thread snapshots.

Accepts: messages from ``model_dump``, ``messages_to_dict`` or ``dumpd``; a LangGraph state or a thread's
    snapshot.
Source: https://reference.langchain.com/python/langchain-core/messages; the types of ``langchain-core``.
Compared with: the types of ``langchain-core``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, of_messages
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    parse_time,
    read,
    read_record,
    text_or_none,
    without,
)
from knowledgepulse_convert.messages import openai
from knowledgepulse_convert.messages.blocks import contents_of

_ROLES: dict[str, ir.Role] = {
    "system": "system",
    "human": "user",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
    "chat": "assistant",  # unless it says otherwise
}


_ELSEWHERE = ("tool_calls", "function_call", "reasoning_content")
"""A provider's own members that the message repeats, or that are read."""


class _Call(InputModel):
    name: str | None = None
    args: Any = None
    id: str | None = None
    type: str | None = None
    error: str | None = None


class _Message(InputModel):
    type: str
    content: str | list[str | dict[str, Any]] = ""
    role: str | None = None
    name: str | None = None
    id: str | None = None
    tool_calls: list[_Call] | None = None
    invalid_tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    status: str | None = None
    response_metadata: dict[str, Any] | None = None
    additional_kwargs: dict[str, Any] | None = None


class _State(InputModel):
    """A graph state. In a thread snapshot, it is the member ``values``."""

    messages: list[Any]


class _Snapshot(InputModel):
    values: _State
    created_at: str | None = None
    checkpoint: dict[str, Any] | None = None
    tasks: list[Any] | None = None


def _recognises(document: Any) -> bool:
    """Check for a list of messages, a state or a snapshot, or a list of these."""
    if isinstance(document, list):
        return bool(document) and all(is_message(message) or _recognises(message) for message in document)
    if not isinstance(document, dict):
        return False
    if isinstance(document.get("values"), dict):
        document = document["values"]
    messages = document.get("messages")
    return isinstance(messages, list) and bool(messages) and all(is_message(message) for message in messages)


def messages_of(items: list[Any], path: str, losses: Losses) -> list[ir.Message]:
    """Convert LangChain messages; raise a ConversionError if an item is not a message."""
    return [_message(value, f"{path}[{number}]", f"{path}[]", losses) for number, value in enumerate(items)]


def is_message(value: Any) -> bool:
    """Check for a serialised message in any of LangChain's three forms."""
    try:
        return _plain(value)[0].get("type", "").removesuffix("MessageChunk").lower() in _ROLES
    except (AttributeError, TypeError, LookupError):
        return False


def _run_of_state(document: Any, path: str) -> ir.Run:
    if isinstance(document, dict) and "values" in document:
        snapshot, losses = read_record(_Snapshot, document, path)
        messages = messages_of(snapshot.values.messages, "values.messages", losses)
        if any(isinstance(task, dict) and task.get("error") for task in snapshot.tasks or ()):
            messages.append(ir.message("assistant", ir.Error()))
        checkpoint = dict(snapshot.checkpoint or {})
        native = [checkpoint.pop("thread_id", None), checkpoint.pop("checkpoint_id", None)]
        losses.add("checkpoint", checkpoint)
        losses.add("tasks", snapshot.tasks)
        native_id = "/".join(identifier for identifier in native if isinstance(identifier, str)) or None
        ended_at = parse_time(snapshot.created_at)
        return ir.Run(messages, native_id=native_id, ended_at=ended_at, losses=losses)
    state, losses = read_record(_State, document, path)
    return ir.Run(messages_of(state.messages, "messages", losses), losses=losses)


def _plain(value: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the members of a message in any serialisation with its ``type``, and the members around them.

    ``model_dump`` writes them at the top, ``messages_to_dict`` below ``data``, ``dumpd`` below ``kwargs``.
    """
    if isinstance(value.get("data"), dict):
        return {**value["data"], "type": value["type"]}, {"type", "data"}
    if value.get("lc") is not None and isinstance(value.get("kwargs"), dict):
        kind = str(value["id"][-1]).removesuffix("Chunk").removesuffix("Message").lower()
        return {**value["kwargs"], "type": kind}, {"lc", "type", "id", "kwargs"}
    return dict(value), set(value)


def _message(value: Any, path: str, unindexed: str, losses: Losses) -> ir.Message:
    try:
        plain, around = _plain(value)
    except (AttributeError, TypeError, LookupError):
        raise ConversionError(f"{path}: not a serialised LangChain message") from None
    message = read(_Message, plain, path)
    kind = message.type.removesuffix("MessageChunk").lower()
    if kind not in _ROLES:
        raise ConversionError(f"{path}.type: {message.type!r} is none of {', '.join(_ROLES)}")
    count_others(value, around, unindexed, losses)
    count_unmapped(message, unindexed, losses)
    losses.add(f"{unindexed}.additional_kwargs", without(message.additional_kwargs or {}, *_ELSEWHERE))
    losses.add(f"{unindexed}.response_metadata", message.response_metadata)
    role = ir.ROLES.get((message.role or "").lower(), "assistant") if kind == "chat" else _ROLES[kind]
    parts = contents_of(message.content, f"{unindexed}.content[]", losses)
    content = [part for part in parts if not isinstance(part, ir.ToolCall)]
    if role == "tool":
        failed = message.status == "error"
        response = ir.ToolCallResponse(
            ir.join_texts(content), message.tool_call_id, message.name, failed=failed
        )
        return ir.message(role, response)
    losses.add(f"{unindexed}.name", message.name)
    role = ir.without_example(role, message.name, message.tool_calls)
    in_content = (part for part in parts if isinstance(part, ir.ToolCall))
    calls = _calls(message, path, unindexed, losses) or in_content  # which ``tool_calls`` otherwise repeats
    thought = ir.reasoning(text_or_none((message.additional_kwargs or {}).get("reasoning_content")))
    return ir.message(role, thought, *content, *calls, *_cut_off(message))


def _calls(message: _Message, path: str, unindexed: str, losses: Losses) -> Sequence[ir.Part]:
    if not message.tool_calls and not message.invalid_tool_calls:
        return _provider_calls(message, path, unindexed, losses)
    calls: list[ir.Part] = [
        ir.ToolCall(call.name or "", call.args, call.id) for call in message.tool_calls or ()
    ]
    for call in message.invalid_tool_calls or ():
        calls.append(ir.ToolCall(call.name or "", as_text(call.args), call.id))
        calls.append(ir.ToolCallResponse(call.error or "", call.id, call.name, failed=True))
    return calls


def _provider_calls(message: _Message, path: str, unindexed: str, losses: Losses) -> tuple[ir.Part, ...]:
    """Return the calls in OpenAI's form, as LangChain kept them before it had ``tool_calls``."""
    own = message.additional_kwargs or {}
    chat = {name: own.get(name) or None for name in ("tool_calls", "function_call")} | {"role": "assistant"}
    name = "additional_kwargs"
    return openai.messages_of([chat], f"{path}.{name}", losses, f"{unindexed}.{name}")[0].parts


def _cut_off(message: _Message) -> Iterator[ir.Part]:
    metadata = message.response_metadata or {}
    reasons = (metadata.get("finish_reason"), metadata.get("stop_reason"))
    yield from [error for reason in reasons for error in ir.cut_off(reason)][:1]


FORMAT = InputFormat(
    "langchain",
    __doc__,
    "type content",
    *of_messages(_recognises, lambda items: any(map(is_message, items)), messages_of, _run_of_state),
)
