"""Messages of any vendor, as recorded by LangSmith and Langfuse."""

from __future__ import annotations

from typing import Any

from schemas.convert import anthropic, genai, langchain, openai
from schemas.convert.hub import Message, Role, Text, cut_off
from schemas.convert.losses import Losses
from schemas.convert.reading import as_text, parse_json

_WRAPPERS = ("messages", "input", "output", "message", "content")


def messages_of(value: Any, role: Role, path: str, losses: Losses) -> tuple[Message, ...]:
    """Convert a model's input or output.

    Args:
        value: messages of OpenAI, Anthropic, LangChain or the OpenTelemetry conventions: a list, a single
            message, or an object that contains them. Anything else is text.
        role: the role of plain text.
        path: the value's path, for the loss report.
        losses: the loss report.

    Raises:
        ConversionError: the value was recognised as a vendor's messages, but is malformed.
    """
    value = parse_json(value)
    if isinstance(value, dict):
        return _of_object(value, role, path, losses)
    if isinstance(value, list) and value:
        if all(isinstance(one, list) for one in value):
            losses.add(f"{path}[] after the first", value[1:])
            return messages_of(value[0], role, f"{path}[0]", losses)
        if all(isinstance(one, dict) for one in value):
            return _of_list(value, role, path, losses)
    text = as_text(value)
    return (Message(role, (Text(text),)),) if text else ()


def _of_object(value: dict[str, Any], role: Role, path: str, losses: Losses) -> tuple[Message, ...]:
    if _is_message(value):
        return _of_list([value], role, path, losses)
    if isinstance(value.get("generations"), list):
        return _generations(value, role, path, losses)
    if isinstance(value.get("choices"), list):
        _count_others(value, "choices", path, losses)
        return _choice(value["choices"], f"{path}.choices", losses)
    for name in _WRAPPERS:
        if name in value and (len(value) == 1 or isinstance(value[name], list)):
            _count_others(value, name, path, losses)
            return messages_of(value[name], role, f"{path}.{name}", losses)
    if len(value) == 1:
        return messages_of(next(iter(value.values())), role, path, losses)
    text = as_text(value) if value else ""
    return (Message(role, (Text(text),)),) if text else ()


def _choice(choices: list[Any], path: str, losses: Losses) -> tuple[Message, ...]:
    """Return the messages of an OpenAI completion's first choice."""
    losses.add(f"{path}[] after the first", choices[1:])
    first = choices[0] if choices and isinstance(choices[0], dict) else {}
    for name, value in first.items():
        if name not in {"message", "finish_reason", "index"}:
            losses.add(f"{path}[].{name}", value)
    answer = messages_of([first["message"]] if "message" in first else [], "assistant", path, losses)
    return (*answer, *(Message("assistant", (error,)) for error in cut_off(first.get("finish_reason"))))


def _generations(value: dict[str, Any], role: Role, path: str, losses: Losses) -> tuple[Message, ...]:
    """Return the messages of a LangChain LLMResult's first generation."""
    _count_others(value, "generations", path, losses)
    first: Any = value["generations"]
    while isinstance(first, list) and first:
        losses.add(f"{path}.generations[] after the first", first[1:])
        first = first[0]
    if not isinstance(first, dict):
        return ()
    inner = first.get("message", first.get("text"))
    for name, member in first.items():
        if name not in {"message", "text"}:
            losses.add(f"{path}.generations[].{name}", member)
    return messages_of([inner] if isinstance(inner, dict) else inner, role, f"{path}.generations", losses)


def _of_list(values: list[Any], role: Role, path: str, losses: Losses) -> tuple[Message, ...]:
    if all(langchain.is_message(one) for one in values):
        return tuple(langchain.messages_of(values, path, losses))
    if all("role" in one and isinstance(one.get("parts"), list) for one in values):
        return genai.messages_of(values, path, losses)
    if anthropic.recognises(values):
        return tuple(anthropic.messages_of(values, path, losses))
    if openai.recognises(values):
        return tuple(openai.messages_of(values, path, losses))
    return (Message(role, (Text(as_text(values)),)),)


def _is_message(value: dict[str, Any]) -> bool:
    return langchain.is_message(value) or ("role" in value and ("content" in value or "parts" in value))


def _count_others(value: dict[str, Any], name: str, path: str, losses: Losses) -> None:
    for other, one in value.items():
        if other != name:
            losses.add(f"{path}.{other}", one)
