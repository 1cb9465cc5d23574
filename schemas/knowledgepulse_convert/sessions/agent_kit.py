"""States and results of AgentKit's networks and agents.

Accepts: a network's ``state``, or the list of ``results`` in it. What ``AgentResult.export()`` returns has no
    request; ``--objective`` gives it.
Source: https://agentkit.inngest.com/concepts/state; the types of ``@inngest/agent-kit``.
Compared with: runs of 0.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.input_format import InputFormat, are_all
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of, at
from knowledgepulse_convert.common.reading import (
    as_list,
    as_text,
    count_others,
    items_of,
    parse_json,
    parse_time,
    text_or_none,
    unwrap,
)
from knowledgepulse_convert.messages.blocks import contents_of

_is_result = any_of({"agentName": str, "output": list, "toolCalls": list})
_REASON, _STOPPED = at("choices", "finish_reason"), at("stop_reason")
_ROLES: dict[str, ir.Role] = {**ir.ROLES, "tool_result": "tool"}


def _runs(document: Any) -> Iterator[ir.Run]:
    run = ir.Run([])
    if isinstance(document, dict):
        count_others(document, {"results"}, "", run.losses)
    for number, (_, result) in enumerate(items_of(unwrap(document, "results"))):
        if not _is_result(result):
            run.losses.add_unknown("results[] of another form", result)
            continue
        known = {"agentName", "output", "toolCalls", "createdAt"}
        if number == 0:
            known |= {"id", "prompt"}
            run.native_id, run.agent_id = text_or_none(result.get("id")), result["agentName"]
            run.messages += _messages(as_list(result.get("prompt")), run.losses)
        run.ended_at = parse_time(result.get("createdAt")) or run.ended_at
        run.messages += _messages(result["output"], run.losses)
        raw = parse_json(result.get("raw"))  # the model's answer: AgentKit itself names most reasons "stop"
        run.messages += ir.end_of((_REASON.of(raw) or _STOPPED.of(raw)) if isinstance(raw, dict) else None)
        run.messages += _messages(result["toolCalls"], run.losses)
        count_others(result, known, "results[]", run.losses)
    yield run


def _messages(values: list[Any], losses: Losses) -> Iterator[ir.Message]:
    for value in values:
        known = {"type", "role", "stop_reason"}
        match value:
            case {"type": "text", "role": str(role), "content": content}:
                known.add("content")
                parts = contents_of(content, "messages[].content", losses)
                yield ir.message(_ROLES.get(role, "system"), *parts)
            case {"type": "tool_call", "tools": [*tools]}:
                known.add("tools")
                yield ir.message("assistant", *(_call(tool, losses) for tool in tools))
            case {"type": "tool_result", "tool": {**tool}, "content": content}:
                known |= {"tool", "content"}
                count_others(tool, {"type", "id", "name"}, "messages[].tool", losses)
                yield ir.message("tool", _response(tool, content, losses))
            case _:
                losses.add_unknown("messages[] of another form", value)
                continue
        count_others(value, known, "messages[]", losses)


def _call(tool: Any, losses: Losses) -> ir.ToolCall | None:
    match tool:
        case {"name": str(name), "input": arguments}:
            count_others(tool, {"type", "id", "name", "input", "function"}, "messages[].tools[]", losses)
            return ir.ToolCall(name, arguments, text_or_none(tool.get("id")))
    losses.add_unknown("messages[].tools[]", tool)
    return None


def _response(tool: dict[Any, Any], content: Any, losses: Losses) -> ir.ToolCallResponse:
    failed = False
    match content:
        case {"data": data} if len(content) == 1:
            content = data
        case {"error": {"message": str(message), **rest}} if len(content) == 1:
            count_others(rest, set(), "messages[].content.error", losses)
            content, failed = message, True
        case {"error": error} if len(content) == 1:
            content, failed = error, True
    call_id, name = text_or_none(tool.get("id")), text_or_none(tool.get("name"))
    return ir.ToolCallResponse(as_text(content), call_id, name, failed)


FORMAT = InputFormat(
    "agent_kit",
    __doc__,
    "agentName output toolCalls",
    lambda document: are_all(_is_result, document, "results"),
    _runs,
)
