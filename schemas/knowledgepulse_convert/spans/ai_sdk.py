"""The spans of the Vercel AI SDK: ``ai.generateText`` with the model calls and the tools below it.

Source: https://ai-sdk.dev/docs/ai-sdk-core/telemetry#collected-data.
"""

from __future__ import annotations

from collections.abc import Iterator

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, count_others, parse_json, text_or_none
from knowledgepulse_convert.messages import vercel
from knowledgepulse_convert.messages.definitions import definitions_of
from knowledgepulse_convert.spans.conversation import ModelCall, ToolRun
from knowledgepulse_convert.spans.span import Span, node_of
from knowledgepulse_convert.spans.tree import Node

_OPERATION = "ai.operationId"
_FUNCTION = "ai.telemetry.functionId"
_AGENTS = {"ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"}
_MODEL_CALLS = (".doGenerate", ".doStream")
_TOOL = "ai.toolCall"
_PROMPT, _MESSAGES, _TOOLS = "ai.prompt", "ai.prompt.messages", "ai.prompt.tools"
_CALLS, _FINISH = "ai.response.toolCalls", "ai.response.finishReason"


def follows(span: Span) -> bool:
    """Check whether the AI SDK recorded a span."""
    return _OPERATION in span.attributes


def node(span: Span) -> Node:
    """Convert a span to a node; raise a ConversionError if its messages are malformed."""
    losses = Losses()
    operation = as_text(span.attributes.get(_OPERATION))
    used = {_OPERATION, _FUNCTION, "operation.name", "resource.name"}
    error = span.error()
    is_agent, is_model_call = operation in _AGENTS, operation.endswith(_MODEL_CALLS)
    event: ModelCall | ToolRun | None = None
    if operation == _TOOL:
        event = _tool_run(span, used, error, losses)
    elif is_agent or is_model_call:
        inputs = (_prompt if is_agent else _messages)(span, used, losses)
        outputs = ir.message("assistant", *_response(span, used, losses))
        if inputs or outputs.parts or (is_model_call and error is not None):
            event = ModelCall(tuple(inputs), (outputs,), None if is_agent else error)
    return node_of(
        span,
        event,
        error,
        used,
        losses,
        agent=is_agent,
        silent=is_model_call and event is None,
        agent_id=span.text(_FUNCTION),
        names=span.texts(_FUNCTION, "service.name"),
        scores=(),
    )


def _prompt(span: Span, used: set[str], losses: Losses) -> list[ir.Message]:
    """Return the messages of a program's request: a system text, and a prompt or messages."""
    used.add(_PROMPT)
    prompt = parse_json(span.attributes.get(_PROMPT))
    if not isinstance(prompt, dict):
        losses.add(_PROMPT, prompt)
        return []
    count_others(prompt, {"system", "prompt", "messages"}, _PROMPT, losses)
    messages = [ir.message("system", ir.Text(text)) for text in [as_text(prompt.get("system"))] if text]
    for value in (prompt.get("prompt"), prompt.get("messages")):
        if isinstance(value, list):
            messages += vercel.messages_of(value, _PROMPT, losses)
        elif value:
            messages.append(ir.message("user", ir.Text(as_text(value))))
    return messages


def _messages(span: Span, used: set[str], losses: Losses) -> list[ir.Message]:
    """Return the messages that the model received."""
    used |= {_MESSAGES, _TOOLS}
    messages = [*definitions_of(span.attributes.get(_TOOLS) or [], _TOOLS, losses)]
    values = parse_json(span.attributes.get(_MESSAGES))
    if isinstance(values, list) and values:
        messages += vercel.messages_of(values, _MESSAGES, losses)
    return messages


def _response(span: Span, used: set[str], losses: Losses) -> Iterator[ir.Part]:
    """Yield the parts of an answer, and an error if it was cut off."""
    used |= {"ai.response.reasoning", "ai.response.text", "ai.response.object", _CALLS, _FINISH}
    if reasoning := as_text(span.attributes.get("ai.response.reasoning")):
        yield ir.Reasoning(reasoning)
    for name in ("ai.response.text", "ai.response.object"):
        if text := as_text(span.attributes.get(name)):
            yield ir.Text(text)
    calls = parse_json(span.attributes.get(_CALLS))
    if isinstance(calls, list) and calls:
        for message in vercel.messages_of(calls, _CALLS, losses):
            yield from message.parts
    yield from ir.cut_off(as_text(span.attributes.get(_FINISH)).replace("-", "_"))


def _tool_run(span: Span, used: set[str], error: ir.Error | None, losses: Losses) -> ToolRun:
    used |= {f"{_TOOL}.name", f"{_TOOL}.id", f"{_TOOL}.args", f"{_TOOL}.result"}
    return span.tool_run(
        as_text(span.attributes.get(f"{_TOOL}.name")) or span.name,
        parse_json(span.attributes.get(f"{_TOOL}.args")),
        span.attributes.get(f"{_TOOL}.result"),
        error,
        losses,
        call_id=text_or_none(span.attributes.get(f"{_TOOL}.id")),
    )
