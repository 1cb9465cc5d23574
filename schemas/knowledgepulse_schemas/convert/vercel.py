"""The Vercel AI SDK's messages: tool calls and results are content parts.

Source: https://ai-sdk.dev/docs/reference/ai-sdk-core/model-message; the telemetry of ``ai``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import as_text, count_others

_ID = "toolCallId"
_KINDS = ("text", "reasoning", "tool-call", "tool-result")
_BESIDE = {"file", "image", "source", "source-url", "source-document", "step-start", "tool-approval-request"}
"""Types of parts that hold no text, reasoning or call."""
_READ = {"type", "text", _ID, "toolName", "input", "args", "output", "result", "isError"}


def recognises_all(document: Any) -> bool:
    """Check for a list of messages with parts that only this SDK has."""
    objects = isinstance(document, list) and all(isinstance(one, dict) for one in document)
    return objects and recognises(document)


def recognises(values: list[dict[str, Any]]) -> bool:
    """Check for tool calls, or for messages with parts that only this SDK has."""
    if all(_ID in one for one in values):
        return True
    return any(
        isinstance(part, dict) and _ID in part
        for one in values
        if "role" in one and isinstance(one.get("content"), list)
        for part in one["content"]
    )


def messages_of(values: list[dict[str, Any]], path: str, losses: Losses) -> Iterator[hub.Message]:
    """Convert messages, or an answer's calls; raise a ConversionError if a role is unknown."""
    if all(_ID in one for one in values):
        for one in values:
            count_others(one, _READ, f"{path}[]", losses)
        yield hub.message("assistant", *map(_call, values))
        return
    for number, value in enumerate(values):
        content = value.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": as_text(content)}]
        count_others(value, {"role", "content"}, f"{path}[]", losses)
        role = hub.role_of(as_text(value.get("role")), f"{path}[{number}]")
        yield hub.message(role, *_parts(parts, f"{path}[].content[]", losses))


def _parts(parts: list[Any], path: str, losses: Losses) -> Iterator[hub.Part]:
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in _KINDS:
            add = losses.add if as_text(kind) in _BESIDE else losses.add_unknown
            add(f"{path}.{kind or 'part'}", part)
            continue
        count_others(part, _READ, path, losses)
        match part:
            case {"type": "text"}:
                yield hub.Text(as_text(part.get("text")))
            case {"type": "reasoning"}:
                yield hub.Reasoning(as_text(part.get("text")))
            case {"type": "tool-call"}:
                yield _call(part)
            case {"output": {"value": value, **output}}:  # since version 5: {"type": "json", "value": …}
                count_others(output, {"type"}, f"{path}.output", losses)
                yield _result(part, value, failed=as_text(output.get("type")).startswith("error"))
            case _:
                yield _result(part, part.get("output", part.get("result")), failed=False)


def _call(part: dict[str, Any]) -> hub.ToolCall:
    arguments = part.get("input", part.get("args"))
    return hub.ToolCall(as_text(part.get("toolName")), arguments, as_text(part.get(_ID)))


def _result(part: dict[str, Any], output: Any, *, failed: bool) -> hub.ToolCallResponse:
    call_id, name = as_text(part.get(_ID)), as_text(part.get("toolName"))
    failed = failed or part.get("isError") is True
    return hub.ToolCallResponse(as_text(output), call_id, name, failed=failed)
