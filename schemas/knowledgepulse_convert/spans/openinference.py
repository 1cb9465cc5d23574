"""OpenInference, the conventions of Phoenix's and Arize's instrumentations.

Source: https://arize-ai.github.io/openinference/spec/; the names of ``openinference-semantic-conventions``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_list, as_text, count_others, text_or_none
from knowledgepulse_convert.messages import wrapped
from knowledgepulse_convert.messages.any_vendor import messages_of
from knowledgepulse_convert.messages.definitions import definitions_of
from knowledgepulse_convert.spans.conversation import ModelCall, ToolRun
from knowledgepulse_convert.spans.span import Span, node_of, unflatten
from knowledgepulse_convert.spans.tree import Node

KIND = "openinference.span.kind"

_INPUT, _OUTPUT = "llm.input_messages", "llm.output_messages"
_TOOLS = "llm.tools"
_VALUES = {"input.value", "output.value", "input.mime_type", "output.mime_type"}
_READ = {"role", "content", "contents", "tool_calls"} | {"function_call_name", "function_call_arguments_json"}
_READ_OF_TOOL = {"role", "content", "contents", "tool_call_id", "name"}
_ROLES = ir.ROLES | {"tool-response": "tool"}  # smolagents
_TITLE = re.compile(r"\A(?:Observation|Error):\n")
"""What smolagents writes before a response."""
_CUT_OFF = re.compile(r"reason\W+(?:length|max_tokens)", re.IGNORECASE)
"""A finish reason in the JSON of a call's output, or in a text in it."""
_SCORES = ("annotations", "evaluations", "trace.annotations", "trace.evaluations")


def follows(span: Span) -> bool:
    """Check whether a span follows these conventions."""
    return KIND in span.attributes


def node(span: Span) -> Node:
    """Convert a span to a node of the call tree."""
    losses = Losses()
    kind = as_text(span.attributes.get(KIND)).upper()
    used = {KIND, "agent.name"}
    error = span.error()
    event: ModelCall | ToolRun | None = None
    if kind == "LLM":
        event = _model_call(span, used, error, losses)
    elif kind == "TOOL":
        event = _tool_run(span, used, error, losses)
    elif kind == "RETRIEVER":
        event = _retrieval(span, used, error)
    elif kind == "AGENT":
        event = ModelCall(
            _value(span, "input", "user", used, losses), _value(span, "output", "assistant", used, losses)
        )
    own_name = span.text("agent.name", "graph.node.name")
    return node_of(
        span,
        event,
        error,
        used,
        losses,
        agent=kind == "AGENT",
        agent_id=own_name or (span.name if kind == "AGENT" else None),
        names=(own_name, span.name, *span.texts("service.name", "openinference.project.name")),
        scores=_scores(span),
        returned=partial(_value, span, "output", "assistant", used, losses) if kind == "CHAIN" else None,
    )


def _model_call(span: Span, used: set[str], error: ir.Error | None, losses: Losses) -> ModelCall:
    inputs = _messages(span, _INPUT, "user", used, losses)
    outputs = _messages(span, _OUTPUT, "assistant", used, losses)
    if any(map(_is_untold, inputs)):
        inputs = _responding(span, used, losses) or inputs
    tools = definitions_of(span.nested(_TOOLS, used) or [], _TOOLS, losses)
    used.add("llm.finish_reason")
    return ModelCall(
        (*tools, *(inputs or _value(span, "input", "user", used, losses))),
        outputs or _value(span, "output", "assistant", used, losses),
        error or next(_cut_off(span), None),
        whole=not inputs and not outputs,
    )


def _is_untold(message: ir.Message) -> bool:
    """Check for a turn of the agent or a tool that has only its role."""
    if message.role == "tool":
        return not ir.transcript_of([message])
    return message.role == "assistant" and not message.parts


def _responding(span: Span, used: set[str], losses: Losses) -> tuple[ir.Message, ...]:
    """Return the messages in a call's whole input, if it has responses that its message attributes lack."""
    messages = _value(span, "input", "user", used, losses)
    are_told = any(isinstance(part, ir.ToolCallResponse) for part in ir.parts_in(messages))
    return messages if are_told else ()


def _cut_off(span: Span) -> Iterator[ir.Error]:
    """Yield an error if a call's finish reason, or its whole output, says that its answer was cut off."""
    yield from ir.cut_off(span.attributes.get("llm.finish_reason"))
    if _CUT_OFF.search(as_text(span.attributes.get("output.value"))):
        messages = _value(span, "output", "assistant", set(), Losses())
        yield from (part for part in ir.parts_in(messages) if isinstance(part, ir.Error))


def _messages(
    span: Span, prefix: str, default: ir.Role, used: set[str], losses: Losses
) -> tuple[ir.Message, ...]:
    """Return the messages in numbered attributes; none if they have no content."""
    messages = tuple(
        _message(message, default, f"{prefix}[]", losses)
        for message in span.nested(prefix, used) or ()
        if isinstance(message, dict)
    )
    return messages if any(message.parts for message in messages) else ()


def _value(span: Span, name: str, role: ir.Role, used: set[str], losses: Losses) -> tuple[ir.Message, ...]:
    """Return the messages in a call's whole input or output."""
    used |= {f"{name}.value", f"{name}.mime_type"}
    return messages_of(span.attributes.get(f"{name}.value"), role, f"{name}.value", losses)


def _message(value: dict[str, Any], default: ir.Role, path: str, losses: Losses) -> ir.Message:
    message = value.get("message")
    if not isinstance(message, dict):
        losses.add(path, value)
        return ir.message(default)
    count_others(value, {"message"}, path, losses)
    role = _ROLES.get(as_text(message.get("role")).lower(), default)
    if "role" not in message and "contents" in message:  # reasoning, of the Agents SDK for JavaScript
        thoughts = _contents(message, "assistant", path, losses)
        return ir.message("assistant", ir.reasoning(ir.join_texts(thoughts)))
    texts = list(_contents(message, role, path, losses))
    if role == "tool":
        call_id, name = text_or_none(message.get("tool_call_id")), text_or_none(message.get("name"))
        count_others(message, _READ_OF_TOOL, f"{path}.message", losses)
        text = _TITLE.sub("", ir.join_texts(texts))
        response = wrapped.response_of(text, f"{path}.message.content", losses, call_id=call_id, name=name)
        return ir.message(role, response)
    count_others(message, _READ, f"{path}.message", losses)
    parts = [*texts, *_tool_calls(message, path, losses)]
    if (name := text_or_none(message.get("function_call_name"))) is not None:
        parts.append(ir.ToolCall(name, message.get("function_call_arguments_json")))
    return ir.message(role, *parts)


def _contents(message: dict[str, Any], role: ir.Role, path: str, losses: Losses) -> Iterator[ir.Part]:
    content, blocks = message.get("content"), [*_blocks(message, path, losses)]
    parts = None
    if role != "tool":
        parts = wrapped.parts_of(content, role, f"{path}.message.content", losses)
    if parts is not None:
        yield from parts
    elif content not in (None, "", ir.join_texts(blocks)):  # some write a text in both
        yield ir.Text(wrapped.said_in(as_text(content), f"{path}.message.content", losses))
    yield from blocks


def _blocks(message: dict[str, Any], path: str, losses: Losses) -> Iterator[ir.Part]:
    for item in as_list(message.get("contents")):
        match item:
            case {"message_content": {"text": str(text), **content}, **rest}:
                count_others(rest | content, {"type"}, f"{path}.message.contents[]", losses)
                yield ir.Reasoning(text) if content.get("type") == "reasoning" else ir.Text(text)
            case _:
                losses.add(f"{path}.message.contents[]", item)


def _tool_calls(message: dict[str, Any], path: str, losses: Losses) -> Iterator[ir.Part]:
    for item in as_list(message.get("tool_calls")):
        match item:
            case {"tool_call": {"function": dict(function), **call}, **rest}:
                count_others(rest | call, {"id", "type"}, f"{path}.message.tool_calls[]", losses)
                count_others(function, {"name", "arguments"}, f"{path}.message.tool_calls[].function", losses)
                name, arguments = as_text(function.get("name")), function.get("arguments")
                yield ir.ToolCall(name, arguments, text_or_none(call.get("id")))
            case _:
                losses.add(f"{path}.message.tool_calls[]", item)


def _tool_run(span: Span, used: set[str], error: ir.Error | None, losses: Losses) -> ToolRun:
    used |= {"tool.name", "tool_call.id", "tool.id", *_VALUES}
    return span.tool_run(
        span.text("tool.name") or span.name.removesuffix(".__call__"),  # DSPy's
        span.attributes.get("input.value"),
        span.attributes.get("output.value"),
        error,
        losses,
        call_id=span.text("tool_call.id", "tool.id"),
    )


def _retrieval(span: Span, used: set[str], error: ir.Error | None) -> ToolRun:
    """Convert a retrieval to a tool execution: the query is the argument, the documents are the response."""
    used |= _VALUES
    documents = span.nested("retrieval.documents", used)
    response = span.attributes.get("output.value") if documents is None else documents
    call = ir.ToolCall(span.name, span.attributes.get("input.value"))
    return ToolRun(call, None if response is None else as_text(response), failed=error is not None)


def _scores(span: Span) -> Iterator[tuple[Any, Any]]:
    for entry in (entry for prefix in _SCORES for entry in as_list(unflatten(span.attributes, prefix))):
        match entry:
            case {"annotation": dict(score)} | {"evaluation": dict(score)}:
                yield score.get("name"), score.get("score")
