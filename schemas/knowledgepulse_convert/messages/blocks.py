"""A part of a message in any vendor's form: its type says what it is, its members have one of a few names.

Formats that a table describes and formats modelled on OpenAI's API are read with these names. Those of other
big vendors have readers of their own, which know the meaning of every member.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.exit_codes import exit_code_of
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, count_others, text_or_none, without
from knowledgepulse_convert.common.statuses import is_failure
from knowledgepulse_convert.common.words import words

_TYPES = ("type", "part_kind", "kind", "block_type")
_TEXT = words("text input_text output_text summary_text reasoning_text tool_output logs text_content")
_OF_ROLE: dict[str, ir.Role] = {"user-prompt": "user", "system-prompt": "system"}
"""Types of texts that tell their role: a message of Pydantic AI may have both."""
_REASONING = {"thinking", "think", "reasoning", "text_reasoning", "reasoning_content"}
_CALL = words(
    """
    tool_use toolCall toolUse tool.call tool-call tool_call tool_call_chunk invalid_tool_call function_call
    functionCall toolRequest
    """
)
_RESPONSE = words(
    """
    tool_result toolResult tool.result tool-result tool-return function_result retry-prompt tool_call_result
    functionResponse toolResponse
    """
)
_WRAPPERS = {"part"} | _CALL | _RESPONSE
_WRAPPED = ("toolRequest", "toolResponse", "tool_result")
"""Types of blocks of Goose and Amp that hold a call or a result."""
_MEDIA = words(
    """
    image image_url image_file input_image audio input_audio video video_url media file input_file document
    blob uri computer_screenshot cache_point redacted_thinking redactedThinking source source-url
    source-document step-start tool-approval-request
    """
)
"""Types of blocks that hold no text, reasoning or call."""
_NAMES = ("name", "toolName", "tool_name", "tool_type")
_CALL_IDS = ("toolCallId", "toolUseId", "tool_call_id", "call_id", "tool_id", "ref", "id")
_RESPONSE_IDS = ("tool_use_id", "mcp_tool_use_id", "custom_tool_use_id", *_CALL_IDS)
_ARGUMENTS = ("input", "arguments", "args", "parameters", "action", "tool_kwargs")
_SERVER = "mcp_server_name"
_RESULTS = ("content", "contents", "result", "response", "output", "value", "text")
_FAILED = ("is_error", "isError", "error", "tool_call_error")
_STATES = ("success", "status", "outcome")


def _with_type(block: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(block.get("type"), str):
        raise PydanticCustomError("missing", "no `type`")
    return block


Block = Annotated[dict[str, Any], AfterValidator(_with_type)]
"""A block with a type, in an input model."""
Parts = Iterator[tuple[ir.Role | None, ir.Part]]
"""The parts of a block, each with the role that the block tells."""


def parts_of(block: Any, path: str, losses: Losses, kind: str = "") -> Parts:
    """Read a text, a block, or a list of them; a block of a type that is not known is a suspect loss.

    ``kind``: the type of a block that has none, and whose path says what it is.
    """
    if isinstance(block, list):
        for inner in block:
            yield from parts_of(inner, path, losses)
    elif not isinstance(block, dict):
        if text := as_text(block):
            yield None, ir.Text(text)
    else:
        yield from _parts(block, path, losses, kind)


def contents_of(block: Any, path: str, losses: Losses, kind: str = "") -> list[ir.Part]:
    """Return what :func:`parts_of` reads, without the roles that blocks tell."""
    return [part for _, part in parts_of(block, path, losses, kind)]


def text_of(block: Any, path: str, losses: Losses) -> str:
    """Return the visible text of what :func:`parts_of` reads, one part a line."""
    return ir.join_texts(contents_of(block, path, losses))


def responded(text: str, retry: bool, block: dict[str, Any]) -> ir.ToolCallResponse:
    """Return the response in a block with one of the usual names for its call."""
    call_id, name = _first(block, _RESPONSE_IDS), _first(block, _NAMES)
    return ir.ToolCallResponse(text, text_or_none(call_id), text_or_none(name), retry or is_failed(block))


def is_failed(response: dict[str, Any]) -> bool:
    """Check for one of the usual flags of a failure."""
    return (
        response.get("success") is False
        or is_failure(response.get("status"))
        or is_failure(response.get("outcome"))
        or exit_code_of(response) != 0
        or any(response.get(flag) not in (None, False, "") for flag in _FAILED)
    )


def _parts(block: dict[str, Any], path: str, losses: Losses, kind: str = "") -> Parts:
    if block.get("type") in _WRAPPED:
        block = _unwrapped(block, path, losses)
    wrappers = (wrapper for wrapper in block if wrapper in _WRAPPERS and isinstance(block[wrapper], dict))
    if not _WRAPPERS.isdisjoint(block) and (name := next(wrappers, None)):
        inner = block[name]  # the block is in a member, whose name is its type if it has none
        count_others(block, {name, *_TYPES}, path, losses)
        yield from _parts(inner if _first(inner, _TYPES) else {"type": name, **inner}, path, losses)
        return
    if not kind and (kind := as_text(_first(block, _TYPES))):
        path, kind = f"{path}.{kind}", kind.lower() if kind.isupper() else kind  # LangChain4j's "TEXT"
    if kind in _OF_ROLE:
        count_others(block, {*_TYPES, "content"}, path, losses)
        for _, part in parts_of(block.get("content"), path, losses):
            yield _OF_ROLE[kind], part
    elif kind in _TEXT or (not kind and isinstance(block.get("text"), str)):
        text = _read(block, ("text", "content", "logs", "thought"), path, losses)
        yield None, ir.Reasoning(text) if block.get("thought") is True else ir.Text(text)
    elif kind in _REASONING:
        names = (*_REASONING, "reasoning_text", "text", "content")
        yield None, ir.Reasoning(_read(block, names, path, losses))
    elif kind in _CALL or (kind in ("", "function") and isinstance(block.get("name"), str)):
        count_others(block, {*_TYPES, *_NAMES, *_CALL_IDS, *_ARGUMENTS, _SERVER}, path, losses)
        name, call_id = as_text(_first(block, _NAMES)), text_or_none(_first(block, _CALL_IDS))
        yield None, ir.ToolCall(name, _first(block, _ARGUMENTS), call_id, text_or_none(block.get(_SERVER)))
    elif kind in _RESPONSE:
        yield from _response(block, path, losses)
    else:
        yield from _other_parts(kind, block, path, losses)


def _unwrapped(block: dict[str, Any], path: str, losses: Losses) -> dict[str, Any]:
    """Return a call or a result of Goose's or Amp's in the usual form, and any other block unchanged."""
    inner: dict[Any, Any]
    match block:
        case {"type": "toolRequest", "toolCall": {"value": {**call}, **beside}, **outer}:
            count_others(beside, {"status"}, f"{path}.toolCall", losses)
            inner = {**call, "type": "tool_call"}
        case {"type": "toolResponse", "toolResult": {**result}, **outer}:
            inner = {**result, "type": "tool_result"}
        case {"type": "tool_result", "toolUseID": str(call_id), "run": dict(run), **outer}:  # Amp's
            count_others(run, {"status", "result", "error", "reason"}, f"{path}.run", losses)
            returned, problem = run.get("result"), run.get("error") or run.get("reason")
            exit_code = returned.get("exitCode") if isinstance(returned, dict) else None
            failed = is_failure(run.get("status")) or bool(exit_code)
            inner = {"type": "tool_result", "result": returned, "error": problem, "is_error": failed}
            inner["tool_use_id"] = call_id
        case _:
            return block
    count_others(outer, {"id"}, path, losses)
    return {**inner, "id": outer.get("id")}


def _other_parts(kind: str, block: dict[str, Any], path: str, losses: Losses) -> Parts:
    if kind == "search_result":
        yield None, ir.Text(as_text(without(block, *_TYPES)))
    elif kind == "refusal":
        yield None, ir.Text(_read(block, ("refusal",), path, losses))
        yield None, ir.Error(interruption=True)
    elif kind in _MEDIA:
        losses.add(path, block)
    else:
        losses.add_unknown(path, block, {"content": block})


def _response(block: dict[str, Any], path: str, losses: Losses) -> Parts:
    origin = block.get("origin")  # Haystack repeats the call
    if isinstance(origin, dict):
        losses.add(f"{path}.origin", without(origin, "tool_name", "id"))
        block = {"name": origin.get("tool_name"), "id": origin.get("id"), **block}
    known = {*_TYPES, *_NAMES, *_RESPONSE_IDS, *_RESULTS, *_FAILED, *_STATES, "origin"}
    count_others(block, known, path, losses)
    result = _first(block, _RESULTS)
    if isinstance(result, dict) and not _first(result, _TYPES):  # Kimi's flags are in the result
        known = {*_RESULTS, *_FAILED}
        count_others(result, known, f"{path}.result", losses) if known & result.keys() else None
        block = {**block, **{name: result[name] for name in _FAILED if name in result}}
        result = _first(result, _RESULTS) if known & result.keys() else as_text(result)
    problem = block.get("error")
    if isinstance(problem, dict):
        count_others(problem, {"message"}, f"{path}.error", losses)
        problem = problem.get("message")
    if isinstance(problem, str) and problem not in as_text(result):
        result = "\n".join(filter(None, [as_text(result), problem]))
    text = text_of(result, path, losses)
    yield "tool", responded(text, block.get("part_kind") == "retry-prompt", block)


def _read(block: dict[str, Any], names: tuple[str, ...], path: str, losses: Losses) -> str:
    count_others(block, {*_TYPES, *names}, path, losses)
    return as_text(_first(block, names))


def _first(block: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((block[name] for name in names if block.get(name) is not None), None)
