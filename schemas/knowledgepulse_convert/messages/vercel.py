"""Messages of the Vercel AI SDK, whose tool calls and results are content parts; those of its user interface.

Source: https://ai-sdk.dev/docs/reference/ai-sdk-core/model-message; the telemetry of ``ai``.
Compared with: versions 4 to 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import as_text, count_others, text_or_none
from knowledgepulse_convert.common.statuses import is_failure
from knowledgepulse_convert.messages import wrapped
from knowledgepulse_convert.messages.blocks import contents_of, responded

_ID = "toolCallId"
_UI_TOOL = "tool-"
_UI_READ = {"type", _ID, "toolName", "input", "rawInput", "output", "errorText", "state", "providerExecuted"}
_READ = {"type", _ID, "toolName", "input", "args", "output", "result", "isError"}


def recognises_all(document: Any) -> bool:
    """Check for a list of messages with parts that only this SDK has."""
    objects = isinstance(document, list) and all(isinstance(item, dict) for item in document)
    return objects and (
        recognises(document) or (any(map(is_ui, document)) and all("parts" in m for m in document))
    )


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


def is_ui(message: Any) -> bool:
    """Check for a message as the SDK keeps it for its user interface, with ``parts`` in place of content."""
    parts = message.get("parts") if isinstance(message, dict) and "role" in message else None
    return isinstance(parts, list) and (
        any(isinstance(part, dict) and _ID in part and "state" in part for part in parts)
        or (bool(parts) and all(map(_is_ui_text, parts)))
    )


def ui_messages_of(values: list[dict[str, Any]], path: str, losses: Losses) -> Iterator[ir.Message]:
    """Convert messages of the user interface, of which one may hold all that an agent said and called."""
    for number, value in enumerate(values):
        role = ir.role_of(as_text(value.get("role")), f"{path}[{number}]")
        count_others(value, {"role", "parts", "id"}, f"{path}[]", losses)
        said: list[ir.Part] = []
        for part in value["parts"]:
            if not isinstance(part, dict) or not _is_ui_tool(part):
                said += contents_of(part, f"{path}[].parts[]", losses)
                continue
            count_others(part, _UI_READ, f"{path}[].parts[]", losses)
            name = as_text(part.get("toolName")) or as_text(part["type"]).removeprefix(_UI_TOOL)
            call_id = text_or_none(part.get(_ID))
            given = part.get("input", part.get("rawInput"))
            yield ir.message(role, *said)  # a message of its own, as another tracer may tell the call
            said = []
            yield ir.message(role, ir.ToolCall(name, given, call_id))
            if str(part.get("state")).startswith("output"):
                yield ir.message("tool", _ui_result(part, name, call_id, path, losses))
        yield ir.message(role, *said)


_is_ui_text = any_of({"type": "step-start"}, {"type": {"text", "reasoning"}, "text": str, "content": None})


def _is_ui_tool(part: dict[str, Any]) -> bool:
    kind = as_text(part.get("type"))
    return _ID in part and (kind.startswith(_UI_TOOL) or kind == "dynamic-tool")


def _ui_result(
    part: dict[str, Any], name: str, call_id: str | None, path: str, losses: Losses
) -> ir.ToolCallResponse:
    failed, output = is_failure(part.get("state")), part.get("output", part.get("errorText"))
    match output:
        case {
            "type": "text" | "json" | "error-text" | "error-json" | "content" as kind,
            "value": output,
            **rest,
        }:
            count_others(rest, set(), f"{path}[].parts[].output", losses)
            failed = failed or kind.startswith("error")  # VoltAgent keeps it as the model got it
    return wrapped.response_of(
        output, f"{path}[].parts[].output", losses, call_id=call_id, name=name, failed=failed
    )


def messages_of(values: list[dict[str, Any]], path: str, losses: Losses) -> Iterator[ir.Message]:
    """Convert messages, or an answer's calls; raise a ConversionError if a role is unknown."""
    if all(_ID in item for item in values):
        values = [{"role": "assistant", "content": values}]
    for number, value in enumerate(values):
        content = value.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": as_text(content)}]
        count_others(value, {"role", "content"}, f"{path}[]", losses)
        role = ir.role_of(as_text(value.get("role")), f"{path}[{number}]")
        yield ir.message(role, *_parts(parts, f"{path}[].content[]", losses))


def _parts(parts: list[Any], path: str, losses: Losses) -> Iterator[ir.Part]:
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
) -> ir.ToolCallResponse:
    count_others(part, _READ, path, losses)
    return responded(as_text(output), failed, part)
