"""Messages of any vendor, as recorded by LangSmith, Langfuse and the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.input_format import InputFormat
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.python_repr import parse_repr
from knowledgepulse_convert.common.reading import as_text, count_others, parse_json, without
from knowledgepulse_convert.messages import (
    anthropic,
    bedrock,
    gemini,
    langchain,
    openai,
    otel,
    vercel,
    wrapped,
)
from knowledgepulse_convert.messages.blocks import contents_of
from knowledgepulse_convert.messages.definitions import definitions_of

_Object = dict[str, Any]
_Convert = Callable[[_Object, ir.Role, str, Losses], tuple[ir.Message, ...]]
_WRAPPERS = ("messages", "contents", "replies", "input", "output", "message", "content")


def messages_of(value: Any, role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Convert a model's input or output.

    Args:
        value: messages of OpenAI, Anthropic, Bedrock, Gemini, LangChain, the Vercel AI SDK or OpenTelemetry's
            conventions: a list, a single message, or an object that contains them. Anything else is text.
        role: the role of plain text.
        path: the value's path, for the loss report.
        losses: gets what is dropped.

    Raises:
        ConversionError: the value was recognised as a vendor's messages, but is malformed.
    """
    value = parse_repr(wrapped.arguments_of(value, path, losses))
    if isinstance(value, dict):
        return _of_object(value, role, path, losses)
    if isinstance(value, list) and value:
        if all(isinstance(item, list) for item in value):
            losses.add(f"{path}[] after the first", value[1:])
            return messages_of(value[0], role, f"{path}[0]", losses)
        if all(isinstance(item, dict) for item in value):
            if all(map(_is_response, value)):
                return tuple(part for item in value for part in _of_object(item, role, f"{path}[]", losses))
            return _of_list(value, role, path, losses)
        if all(isinstance(item, str) for item in value):
            parsed = list(map(parse_repr, value))
            if all(isinstance(item, dict) for item in parsed):
                return _of_list(parsed, role, path, losses)
            value = "\n".join(value)
    text = as_text(value)
    return (ir.Message(role, (ir.Text(text),)),) if text else ()


def _of_object(value: dict[str, Any], role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    if _is_message(value):
        return _of_list([value], role, path, losses)
    for recognises, convert in _RESPONSES:
        if recognises(value):
            return convert(value, role, path, losses)
    for name in _WRAPPERS:
        if name in value and (len(value) == 1 or name == "contents" or isinstance(value[name], list)):
            count_others(value, {name, "tools"}, path, losses)
            tools = definitions_of(value.get("tools") or [], f"{path}.tools", losses)
            return (*tools, *messages_of(value[name], role, f"{path}.{name}", losses))
    if len(value) == 1:
        return messages_of(next(iter(value.values())), role, path, losses)
    text = as_text(value) if value else ""
    return (ir.Message(role, (ir.Text(text),)),) if text else ()


def _completion(value: dict[str, Any], _role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Return the message of a single choice, or of the first choice of an OpenAI completion."""
    choices = [value]
    if "choices" in value:
        count_others(value, {"choices"}, path, losses)
        choices, path = value["choices"], f"{path}.choices"
    losses.add(f"{path}[] after the first", choices[1:])
    first = choices[0] if isinstance(choices[0], dict) else {}
    known = {"message", "finish_reason", "finishReason", "index"}
    answer = messages_of([first["message"]] if "message" in first else [], "assistant", path, losses)
    if _is_response(raw := first.get("raw")):  # Genkit's plugins may leave out the text beside a call
        known.add("raw")
        whole = messages_of(raw, "assistant", f"{path}[].raw", losses)
        answer = max(answer, whole, key=lambda messages: len(ir.transcript_of(messages)))
    count_others(first, known, f"{path}[]", losses)
    return (*answer, *ir.end_of(first.get("finish_reason", first.get("finishReason"))))


def _candidates(value: dict[str, Any], role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Return the message of a Gemini response's first candidate."""
    count_others(value, {"candidates"}, path, losses)
    losses.add(f"{path}.candidates[] after the first", value["candidates"][1:])
    return messages_of(value["candidates"][0], role, f"{path}.candidates[]", losses)


def _candidate(value: dict[str, Any], _role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Return the message of a Gemini candidate, or of a response of the Agent Development Kit."""
    count_others(value, {"content", "finish_reason", "finishReason"}, path, losses)
    return gemini.answer_of(value, path, losses)


def _in_member(name: str) -> _Convert:
    """Return what converts a response whose messages, or the only one, are in a member."""

    def convert(value: _Object, role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
        count_others(value, {name}, path, losses)
        inner = value[name]
        return messages_of(inner if isinstance(inner, list) else [inner], role, f"{path}.{name}", losses)

    return convert


def _answer(value: dict[str, Any], role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Return the message in an answer of Mastra or the Vercel AI SDK."""
    count_others(value, {"text", "toolCalls"}, path, losses)
    text = messages_of(as_text(value["text"]), role, f"{path}.text", losses)
    calls = [call for call in value.get("toolCalls") or () if isinstance(call, dict)]
    return (*text, *(vercel.messages_of(calls, f"{path}.toolCalls", losses) if calls else ()))


def _task(value: dict[str, Any], role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Return the messages in the output of a task of CrewAI, or else what was asked and said."""
    count_others(value, {"description", "messages", "raw"}, path, losses)
    asked = messages_of(value.get("messages") or value["description"], "user", f"{path}.messages", losses)
    told = messages_of(value["raw"], role, f"{path}.raw", losses)
    return asked if asked[-1:] == told else asked + told


def _generations(value: dict[str, Any], role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Return the messages of a LangChain LLMResult's first generation."""
    count_others(value, {"generations"}, path, losses)
    path, first = f"{path}.generations", value["generations"]
    while isinstance(first, list) and first:
        losses.add(f"{path}[] after the first", first[1:])
        first = first[0]
    if not isinstance(first, dict):
        return ()
    count_others(first, {"message", "text"}, f"{path}[]", losses)
    inner, text = first.get("message", first.get("text")), as_text(first.get("text"))
    told = messages_of([inner] if isinstance(inner, dict) else inner, role, path, losses)
    losses.add(f"{path}[].text", None if text in ir.transcript_of(told) else text)
    return told


def _of_list(values: list[Any], role: ir.Role, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    for recognises, convert in _LISTS:
        if recognises(values):
            return tuple(convert(values, role, path, losses))
    if openai.are_items(values):
        tools = [item["content"] for item in values if _defines_tool(item)]
        for item in filter(_defines_tool, values):
            count_others(item, {"role", "content"}, f"{path}[]", losses)
        values = [_as_chat(item) for item in values if not _defines_tool(item)]
        return (*definitions_of(tools, path, losses), *openai.messages_of(values, path, losses))
    return (ir.Message(role, (ir.Text(as_text(values)),)),)


_has_parts = any_of({"role": ..., "parts": list})
_has_own_blocks = any_of({"role": ..., "meta": dict, "content": list}, {"role": ..., "blocks": list})
"""Checks for a message of Haystack or LlamaIndex."""
_is_call = any_of({"type": "function", "function": dict})


def _has_untyped(message: dict[str, Any]) -> bool:
    """Check for a message of Genkit, whose blocks tell by their members what they are."""
    content = message.get("content")
    return "role" in message and isinstance(content, list) and not any("type" in block for block in content)


def _untyped(message: dict[str, Any], path: str, losses: Losses) -> ir.Message:
    meta = message.get("meta")  # Haystack's
    reason = meta.get("finish_reason") if isinstance(meta, dict) else None
    count_others(message, {"role", "content", "blocks", "type"}, path, losses)
    blocks = message.get("blocks", message.get("content"))
    parts = contents_of(blocks, f"{path}.content", losses)
    return ir.message(ir.role_of(as_text(message["role"]), path), *parts, *ir.cut_off(reason))


def _defines_tool(message: dict[str, Any]) -> bool:
    """Check for a tool's definition, which Langfuse records as a tool's message."""
    content = message.get("content")
    return message.get("role") == "tool" and isinstance(content, dict) and "function" in content


def _as_chat(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in OpenAI's form.

    Langfuse keeps LangChain's tool calls in ``additional_kwargs``, and a tool's name in ``role``. Koog writes
    tool calls as text.
    """
    extra = message.get("additional_kwargs")
    if isinstance(extra, dict) and "tool_calls" in extra and not message.get("tool_calls"):
        rest = without(extra, "tool_calls")
        message = message | {"tool_calls": extra["tool_calls"], "additional_kwargs": rest}
    name = message.get("role")
    if isinstance(name, str) and name not in ir.ROLES:
        message = {"name": name} | message | {"role": "tool"}
    content = parse_json(message.get("content"))
    if isinstance(content, dict):
        return message | {"content": as_text(content)}
    if isinstance(content, list) and content and all(map(_is_call, content)):
        return message | {"role": "assistant", "content": None, "tool_calls": content}
    return message


def _dotted_call(value: dict[str, Any], path: str, losses: Losses) -> ir.Message:
    """Return the message with a call of any-agent's."""
    count_others(value, {"tool.name", "tool.args"}, f"{path}[]", losses)
    return ir.message("assistant", ir.ToolCall(as_text(value["tool.name"]), value.get("tool.args")))


def _is_message(value: dict[str, Any]) -> bool:
    return langchain.is_message(value) or ("role" in value and ("content" in value or "parts" in value))


def _is_response(value: Any) -> bool:
    return isinstance(value, dict) and any(recognises(value) for recognises, _ in _RESPONSES)


def _has_list(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda value: isinstance(value.get(name), list) and bool(value[name])


_REASONS = ("finish_reason", "finishReason", "index")  # the second is Genkit's
_is_choice = any_of(*({"message": dict, name: ...} for name in _REASONS))


_LISTS: tuple[
    tuple[Callable[[Any], bool], Callable[[Any, ir.Role, str, Losses], Iterable[ir.Message]]], ...
] = (
    (
        lambda values: all(map(_has_own_blocks, values)),
        lambda values, _, *to: (_untyped(value, *to) for value in values),
    ),
    (lambda values: all(map(langchain.is_message, values)), lambda v, _, *to: langchain.messages_of(v, *to)),
    (
        lambda values: all(map(gemini.recognises, values)),
        lambda values, *to: (gemini.message_of(value, *to) for value in values),
    ),
    (
        lambda values: all("tool.name" in value for value in values),
        lambda values, _, *to: (_dotted_call(value, *to) for value in values),
    ),
    (
        lambda values: any(map(vercel.is_ui, values)) and all("parts" in value for value in values),
        lambda values, _, *to: vercel.ui_messages_of(values, *to),
    ),
    (lambda values: all(map(_has_parts, values)), lambda v, _, *to: otel.messages_of(v, *to)),
    (vercel.recognises, lambda values, _, *to: vercel.messages_of(values, *to)),
    (bedrock.recognises, lambda values, _, *to: bedrock.messages_of(values, *to)),
    (anthropic.recognises, lambda values, _, *to: anthropic.messages_of(values, *to)),
    (
        lambda values: all(map(_has_untyped, values)),
        lambda values, _, *to: (_untyped(value, *to) for value in values),
    ),
)
"""The vendors' lists of messages."""
_RESPONSES: tuple[tuple[Callable[[_Object], bool], _Convert], ...] = (
    (_has_list("generations"), _generations),
    (_has_list("choices"), _completion),
    (any_of({"object": "response", "output": list}), _in_member("output")),
    (any_of({"description": ..., "raw": ...}), _task),
    (lambda value: _has_own_blocks(value.get("message")), _in_member("message")),
    (lambda value: vercel.is_ui(value.get("message")), _in_member("message")),
    (lambda value: "text" in value and not {"toolCalls", "files"}.isdisjoint(value), _answer),
    (_is_choice, _completion),
    (_has_list("candidates"), _candidates),
    (lambda value: gemini.recognises(value.get("content")), _candidate),
)
"""The vendors' responses."""


def _format(name: str, text: str | None, members: str, recognises: Callable[[Any], bool]) -> InputFormat:
    """Return the format of a vendor's messages, which are read like the messages of a tracer."""

    def runs(document: Any) -> Iterator[ir.Run]:
        losses = Losses()
        messages = list(messages_of(document, "user", "messages", losses))
        yield ir.Run(messages, losses=losses)

    return InputFormat(name, text, members, recognises, runs)


FORMATS = (
    _format("vercel", vercel.__doc__, "toolCallId toolName", vercel.recognises_all),
    _format("gemini", gemini.__doc__, "role parts", gemini.recognises_all),
)
