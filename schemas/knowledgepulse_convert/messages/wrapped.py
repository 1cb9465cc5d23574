"""Content that frameworks and tracers wrap once more: as JSON text, in blocks, or as a dumped message.

A tracer writes what its framework holds: Strands the blocks of the Converse API, LangChain a serialised
``ToolMessage``, MCP clients a whole result. Every reader of spans unwraps its contents here, so that a text
gives the same step whichever tracer recorded it. Anything else is plain text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, count_others, parse_json, text_or_none
from knowledgepulse_convert.messages import anthropic, bedrock, gemini, langchain

_FIELD = re.compile(r"\[\[ ## (\w+) ## \]\]")
_OF_CALL = re.compile(r"\Atrajectory\Z|\Anext_tool_|_\d+\Z")
_MCP_RESULT = {"content", "isError", "structuredContent", "meta", "_meta"}
_MEDIA = {"image", "document", "video", "audio", "resource", "resource_link"}


def response_of(
    value: Any,
    path: str,
    losses: Losses,
    *,
    call_id: str | None = None,
    name: str | None = None,
    failed: bool = False,
) -> ir.ToolCallResponse:
    """Return a tool's response from its recorded value.

    Args:
        value: A text, any JSON value, or the JSON text of one. A dumped message of LangChain, a result of MCP
            and a list of text blocks give their text, and their failure flag if they have one.
        path: The value's path, for the loss report.
        losses: The report that gets the dropped values.
        call_id: The id of the call, unless a dumped message has one.
        name: The name of the tool.
        failed: Whether the tracer flags a failure.
    """
    parsed = parse_json(value)
    value = parsed if isinstance(parsed, str) else value
    if isinstance(parsed, dict) and parsed.keys() == {"output", "kwargs"}:  # OpenLLMetry's, of LangChain
        losses.add(f"{path}.kwargs", parsed["kwargs"])
        parsed = value = parsed["output"]
    if (message := _tool_message(parsed, path, losses)) is not None:
        return ir.ToolCallResponse(
            message.response, call_id or message.id, name or message.name, failed=failed or message.failed
        )
    if _is_mcp_result(parsed):
        count_others(parsed, {"content", "isError"}, path, losses)
        failed = failed or parsed.get("isError") is True
        parsed = parsed["content"]
    match parsed:
        case {"output": output} if len(parsed) == 1:  # as LangChain's tracer wraps what is no text
            parsed = value = output
        case {"id": _, "name": _, "response": response} if len(parsed) == 3:  # ADK
            parsed = value = response
        case {"tool_output": {**inner}, "tool_id": call_id, **rest}:  # LlamaIndex's workflows
            count_others(rest, {"tool_name", "tool_kwargs", "return_direct"}, path, losses)
            call_id = text_or_none(call_id)
            response = response_of(inner, path, losses, call_id=call_id, name=name, failed=failed)
            return replace(response, is_answer=rest.get("return_direct") is True)
        case {"blocks": list(blocks), "raw_output": _, "is_error": error, **rest}:  # LlamaIndex
            count_others(rest, {"tool_name", "raw_input"}, path, losses)
            parsed, failed = [{"type": "text", **block} for block in blocks], failed or error is True
    text = _joined(parsed, path, losses) if _are_blocks(parsed) else as_text(value)
    return ir.ToolCallResponse(text, call_id, name, failed=failed)


def arguments_of(value: Any, path: str, losses: Losses) -> Any:
    """Return what a tracer recorded as the arguments of a Python function: its only one, or else by name."""
    match parse_json(value):
        case {"kwargs": dict(named), "args": [argument], **rest} if not named:
            count_others(rest, set(), path, losses)
            return argument
        case {"kwargs": dict(named), **rest}:
            count_others(rest, set(), path, losses)
            return named
        case parsed:
            return parsed


def said_in(text: str, path: str, losses: Losses) -> str:
    """Return what was said in a text of DSPy, whose fields also tell the calls so far and the next one."""
    if not text.startswith("[[ ## "):
        return text
    told, _, instructions = text.partition("\n\nRespond with the corresponding output fields")
    losses.add(f"{path} in instructions", instructions)
    _, *pieces = _FIELD.split(told)
    fields = dict(zip(pieces[::2], map(str.strip, pieces[1::2]), strict=True))
    calls = {name: said for name, said in fields.items() if _OF_CALL.search(name)}
    losses.add(f"{path} in fields of calls", list(calls.values()))
    return "\n".join(said for name, said in fields.items() if said and name not in calls)


def parts_of(content: Any, role: ir.Role, path: str, losses: Losses) -> tuple[ir.Part, ...] | None:
    """Return the parts of a message's content if it is a list of a vendor's blocks, or its JSON text.

    Recognises the blocks of the Converse API, of the Messages API and of Gemini; None for anything else.
    """
    blocks = parse_json(content)
    if not isinstance(blocks, list) or not blocks:
        return None
    message = {"role": role, "content": blocks}
    if bedrock.recognises([message]):
        return bedrock.messages_of([message], path, losses)[0].parts
    if anthropic.recognises([message]):
        return anthropic.messages_of([message], path, losses)[0].parts
    if _are_gemini(blocks):
        return gemini.message_of({"parts": blocks}, role, path, losses).parts
    return None


def _tool_message(value: Any, path: str, losses: Losses) -> ir.ToolCallResponse | None:
    """Return the response in a dumped message of LangChain, which may be the only member of an object."""
    if isinstance(value, dict) and len(value) == 1:
        value = parse_json(next(iter(value.values())))
    if isinstance(value, dict) and {"content", "tool_call_id"} <= value.keys():
        value = {"type": "tool", **value}
    if not isinstance(value, dict) or not langchain.is_message(value):
        return None
    [message] = langchain.messages_of([value], path, losses)
    return next((part for part in message.parts if isinstance(part, ir.ToolCallResponse)), None)


def _is_mcp_result(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() <= _MCP_RESULT and _are_blocks(value.get("content"))


def _are_blocks(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_block, value))


def _is_block(value: Any) -> bool:
    """Check for a block of text, JSON or a medium, of MCP or of the Converse API."""
    if not isinstance(value, dict):
        return False
    if "type" in value:
        return as_text(value["type"]) in _MEDIA or (
            value["type"] == "text" and isinstance(value.get("text"), str)
        )
    if len(value) != 1:
        return False
    return isinstance(value.get("text"), str) or "json" in value or not _MEDIA.isdisjoint(value)


def _joined(blocks: list[dict[str, Any]], path: str, losses: Losses) -> str:
    texts = []
    for block in blocks:
        if "text" in block:
            count_others(block, {"type", "text"}, f"{path}[]", losses)
            texts.append(block["text"])
        elif "json" in block:
            texts.append(as_text(block["json"]))
        else:
            losses.add(f"{path}[].{block.get('type', next(iter(block)))}", block)
    return "\n".join(texts)


def _are_gemini(blocks: list[Any]) -> bool:
    calls = {"functionCall", "function_call", "functionResponse", "function_response"}
    return gemini.recognises({"parts": blocks}) and any(not calls.isdisjoint(block) for block in blocks)
