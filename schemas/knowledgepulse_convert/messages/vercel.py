"""Messages of the Vercel AI SDK, whose tool calls and results are content parts.

Source: https://ai-sdk.dev/docs/reference/ai-sdk-core/model-message; the telemetry of ``ai``.
Compared with: versions 4 to 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import hub
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, count_others
from knowledgepulse_convert.messages.blocks import contents_of, responded

_ID = "toolCallId"
_READ = {"type", _ID, "toolName", "input", "args", "output", "result", "isError"}


def recognises_all(document: Any) -> bool:
    """Check for a list of messages with parts that only this SDK has."""
    objects = isinstance(document, list) and all(isinstance(item, dict) for item in document)
    return objects and recognises(document)


def recognises(values: list[dict[str, Any]]) -> bool:
    """Check for tool calls, or for messages with parts that only this SDK has."""
    if all(_ID in item for item in values):
        return True
    return any(
        isinstance(part, dict) and _ID in part
        for item in values
        if "role" in item and isinstance(item.get("content"), list)
        for part in item["content"]
    )


def messages_of(values: list[dict[str, Any]], path: str, losses: Losses) -> Iterator[hub.Message]:
    """Convert messages, or an answer's calls; raise a ConversionError if a role is unknown."""
    if all(_ID in item for item in values):
        values = [{"role": "assistant", "content": values}]
    for number, value in enumerate(values):
        content = value.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": as_text(content)}]
        count_others(value, {"role", "content"}, f"{path}[]", losses)
        role = hub.role_of(as_text(value.get("role")), f"{path}[{number}]")
        yield hub.message(role, *_parts(parts, f"{path}[].content[]", losses))


def _parts(parts: list[Any], path: str, losses: Losses) -> Iterator[hub.Part]:
    for part in parts:
        match part:
            case {"type": "tool-result", "output": {"value": value, **output}}:
                # since version 5: {"type": "json", "value": …}
                count_others(output, {"type"}, f"{path}.output", losses)
                yield _result(
                    part, value, path, losses, failed=as_text(output.get("type")).startswith("error")
                )
            case {"type": "tool-result"}:
                yield _result(part, part.get("output", part.get("result")), path, losses)
            case _:
                yield from contents_of(part, path, losses, "" if "type" in part else "tool-call")


def _result(
    part: dict[str, Any], output: Any, path: str, losses: Losses, *, failed: bool = False
) -> hub.ToolCallResponse:
    count_others(part, _READ, path, losses)
    return responded(as_text(output), failed, part)
