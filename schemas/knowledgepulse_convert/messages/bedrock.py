"""Messages of Bedrock's Converse API; a request, also with the members of its response.

Its blocks are those of the Anthropic Messages API under other names, and are converted as such.

Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html.
Compared with: Bedrock's samples.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, of_messages
from knowledgepulse_convert.common.ir import Message, Run
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, without
from knowledgepulse_convert.messages import anthropic

_BLOCKS = {
    *("text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "audio"),
    *("cachePoint", "guardContent", "citationsContent", "searchResult"),
}


def recognises(document: Any) -> bool:
    """Check for messages whose blocks are named by a member, or for a record of such messages."""
    if isinstance(document, list):
        return bool(document) and (all(map(_is_message, document)) or all(map(_is_record, document)))
    return _is_record(document)


def messages_of(items: list[Any], path: str, losses: Losses) -> list[Message]:
    """Convert messages; raise a ConversionError if an item is not a message."""
    return anthropic.messages_of([_renamed_message(message) for message in items], path, losses)


def _run_of_record(document: Any, path: str) -> Run:
    if not _is_record(document):
        raise ConversionError(f"{path or 'the document'}: no `messages` of the Converse API")
    rest = dict(document)
    about = rest.pop("ResponseMetadata", None)
    record = {
        "messages": [_renamed_message(message) for message in rest.pop("messages")],
        "system": [_renamed(block) for block in rest.pop("system", None) or ()],
        "tools": [rest.pop("toolConfig", None) or {}],
        "stop_reason": rest.pop("stopReason", None),
        "id": about.get("RequestId") if isinstance(about, dict) else None,
    }
    match rest.pop("output", None):
        case {"message": {"content": list(blocks), **others}, **beside}:
            record |= {"role": "assistant", "content": [_renamed(block) for block in blocks]}
            rest["output"] = {**beside, **without(others, "role")}
        case other:
            rest["output"] = other
    run = anthropic.run_of_record({**rest, **record}, path)
    run.losses.add("ResponseMetadata", about)
    return replace(run, ended_at=_date_of(about))


def _renamed_message(value: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("content"), list):
        return value
    return {**value, "content": [_renamed(block) for block in value["content"]]}


def _renamed(block: Any) -> Any:
    """Return a block as the Messages API has it."""
    name = next((kind for kind in block if kind in _BLOCKS), None) if isinstance(block, dict) else None
    if name is None:
        return block
    others = without(block, name)
    match name, block[name]:
        case "text", text:
            return {**others, "type": "text", "text": text}
        case "reasoningContent", {"reasoningText": {"text": text, **rest}, **beside}:
            return {**others, **beside, **rest, "type": "thinking", "thinking": text}
        case "toolUse", {"toolUseId": call_id, **rest}:
            return {**others, **rest, "type": "tool_use", "id": call_id}
        case "toolResult", {"toolUseId": call_id, **rest}:
            content, failed = rest.pop("content", None), rest.pop("status", None) == "error"
            if isinstance(content, list):
                content = [_result(result) for result in content]
            result = {"tool_use_id": call_id, "content": content, "is_error": failed}
            return {**others, **rest, "type": "tool_result", **result}
    return {**others, "type": name, "content": block[name]}


def _result(value: Any) -> Any:
    match value:
        case {"text": text, **rest} | {"json": text, **rest}:
            return {**rest, "type": "text", "text": as_text(text)}
        case {"image": _} | {"document": _} | {"video": _}:
            return {"type": "document", **value}
    return value


def _date_of(about: Any) -> datetime | None:
    """Return the time of a response, from its HTTP header."""
    match about:
        case {"HTTPHeaders": {"date": str(text)}}:
            with suppress(ValueError):
                return parsedate_to_datetime(text)
    return None


def _is_message(value: Any) -> bool:
    blocks = value.get("content") if isinstance(value, dict) and "role" in value else None
    return isinstance(blocks, list) and all(
        isinstance(block, dict) and "type" not in block and not _BLOCKS.isdisjoint(block) for block in blocks
    )


def _is_record(value: Any) -> bool:
    messages = value.get("messages") if isinstance(value, dict) and "role" not in value else None
    return isinstance(messages, list) and bool(messages) and all(map(_is_message, messages))


FORMAT = InputFormat(
    "bedrock",
    __doc__,
    "messages toolConfig",
    *of_messages(recognises, lambda items: not all(map(_is_record, items)), messages_of, _run_of_record),
)
