"""OpenInference: the attributes that Phoenix's and Arize's instrumentations write.

Source: https://arize-ai.github.io/openinference/spec/; the names of ``openinference-semantic-conventions``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.convert.hub import (
    ROLES,
    Error,
    Message,
    ModelCall,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolCallResponse,
    ToolRun,
)
from schemas.convert.losses import Losses
from schemas.convert.reading import as_text, parse_json
from schemas.convert.span import Span, lose_unread, lose_whole, text_of, unflatten
from schemas.convert.tree import Node, labels_of

KIND = "openinference.span.kind"

_INPUT, _OUTPUT = "llm.input_messages", "llm.output_messages"
_CUT_OFF = {"length", "content_filter", "max_tokens", "refusal", "error"}
_SCORES = ("annotations", "evaluations", "trace.annotations", "trace.evaluations")


def follows(span: Span) -> bool:
    """Tell whether a span follows these conventions."""
    return KIND in span.attributes


def node(span: Span) -> Node:
    """Return a span as a node of the tree."""
    losses = Losses()
    kind = as_text(span.attributes.get(KIND)).upper()
    used = {KIND, "agent.name"}
    error = _error(span)
    event: ModelCall | ToolRun | None = None
    if kind == "LLM":
        event = _model_call(span, used, error, losses)
    elif kind == "TOOL":
        event = _tool_run(span, used, error)
    elif kind == "RETRIEVER":
        event = _retrieval(span, used, error)
    elif kind == "AGENT":
        event = _values(span, used, None)
    if event is not None:
        lose_unread(span, used, losses)
    else:
        lose_whole(span, losses)
    return Node(
        trace_id=span.trace_id,
        id=span.id,
        parent_id=span.parent_id,
        start=span.start,
        end=span.end,
        agent=kind == "AGENT",
        event=event,
        error=error if kind == "AGENT" else None,
        agent_id=text_of(span, "agent.name", "graph.node.name") or (span.name if kind == "AGENT" else None),
        names=tuple(
            name
            for name in (
                text_of(span, "agent.name", "graph.node.name"),
                span.name,
                text_of(span, "service.name"),
                text_of(span, "openinference.project.name"),
            )
            if name
        ),
        labels=labels_of(_scores(span)),
        losses=losses,
        shared=span.shared,
    )


def _model_call(span: Span, used: set[str], error: Error | None, losses: Losses) -> ModelCall:
    given = _messages(span, _INPUT, "user", used, losses)
    said = _messages(span, _OUTPUT, "assistant", used, losses)
    whole = _values(span, set() if given and said else used, error)
    used.add("llm.finish_reason")
    if as_text(span.attributes.get("llm.finish_reason")).lower() in _CUT_OFF and error is None:
        error = Error()
    return ModelCall(given or whole.input, said or whole.output, error)


def _messages(span: Span, prefix: str, default: Role, used: set[str], losses: Losses) -> tuple[Message, ...]:
    values = unflatten(span.attributes, prefix)
    used.update(name for name in span.attributes if name == prefix or name.startswith(f"{prefix}."))
    return tuple(
        _message(one, default, f"{prefix}[]", losses) for one in values or () if isinstance(one, dict)
    )


def _values(span: Span, used: set[str], error: Error | None) -> ModelCall:
    """Return a call whose messages were not recorded, only its input and output as a whole."""
    used |= {"input.value", "output.value", "input.mime_type", "output.mime_type"}
    given, said = (as_text(span.attributes.get(name)) for name in ("input.value", "output.value"))
    return ModelCall(
        (Message("user", (Text(given),)),) if given else (),
        (Message("assistant", (Text(said),)),) if said else (),
        error,
    )


def _message(value: dict[str, Any], default: Role, path: str, losses: Losses) -> Message:
    message = value.get("message")
    if not isinstance(message, dict):
        losses.add(path, value)
        return Message(default, ())
    role = ROLES.get(as_text(message.get("role")).lower(), default)
    texts = list(_contents(message, path, losses))
    if role == "tool":
        said = "\n".join(part.content for part in texts if isinstance(part, Text))
        return Message(
            role, (ToolCallResponse(said, _text(message, "tool_call_id"), _text(message, "name")),)
        )
    parts: list[Part] = [*texts, *_tool_calls(message, path, losses)]
    if (name := _text(message, "function_call_name")) is not None:
        parts.append(ToolCall(name, message.get("function_call_arguments_json")))
    known = {
        "role",
        "content",
        "contents",
        "tool_calls",
        "function_call_name",
        "function_call_arguments_json",
    }
    for member, one in message.items():
        if member not in known:
            losses.add(f"{path}.message.{member}", one)
    return Message(role, tuple(parts))


def _contents(message: dict[str, Any], path: str, losses: Losses) -> Iterator[Part]:
    if message.get("content") not in (None, ""):
        yield Text(as_text(message["content"]))
    contents = message.get("contents")
    for one in contents if isinstance(contents, list) else []:
        content = one.get("message_content") if isinstance(one, dict) else None
        text = content.get("text") if isinstance(content, dict) else None
        if not isinstance(content, dict) or not isinstance(text, str):
            losses.add(f"{path}.message.contents[]", one)
        elif content.get("type") == "reasoning":
            yield Reasoning(text)
        else:
            yield Text(text)


def _tool_calls(message: dict[str, Any], path: str, losses: Losses) -> Iterator[Part]:
    calls = message.get("tool_calls")
    for one in calls if isinstance(calls, list) else []:
        call = one.get("tool_call") if isinstance(one, dict) else None
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(call, dict) and isinstance(function, dict):
            yield ToolCall(as_text(function.get("name")), function.get("arguments"), _text(call, "id"))
        else:
            losses.add(f"{path}.message.tool_calls[]", one)


def _tool_run(span: Span, used: set[str], error: Error | None) -> ToolRun:
    used |= {"tool.name", "input.value", "output.value", "input.mime_type", "output.mime_type"}
    used |= {"tool_call.id", "tool.id"}
    output = span.attributes.get("output.value")
    response = error.message if output is None and error is not None else output
    call = ToolCall(
        text_of(span, "tool.name") or span.name,
        parse_json(span.attributes.get("input.value")),
        text_of(span, "tool_call.id", "tool.id"),
        latency_ms=(span.end - span.start) / 1e6 if span.end > span.start > 0 else None,
    )
    return ToolRun(call, None if response is None else as_text(response), failed=error is not None)


def _retrieval(span: Span, used: set[str], error: Error | None) -> ToolRun:
    """Return a retrieval as the run of a tool: the query is its argument, the documents are its response."""
    used |= {"input.value", "input.mime_type", "output.value", "output.mime_type"}
    documents = unflatten(span.attributes, "retrieval.documents")
    used.update(name for name in span.attributes if name.startswith("retrieval.documents"))
    response = span.attributes.get("output.value") if documents is None else documents
    call = ToolCall(span.name, span.attributes.get("input.value"))
    return ToolRun(call, None if response is None else as_text(response), failed=error is not None)


def _error(span: Span) -> Error | None:
    if not span.failed:
        return None
    exception = next((event.attributes for event in span.events if event.name == "exception"), {})
    said = (span.message, exception.get("exception.message"))
    return Error(next((one for one in said if isinstance(one, str) and one), ""))


def _scores(span: Span) -> Iterator[tuple[Any, Any]]:
    for prefix in _SCORES:
        values = unflatten(span.attributes, prefix)
        for one in values if isinstance(values, list) else []:
            for kind in ("annotation", "evaluation"):
                score = one.get(kind) if isinstance(one, dict) else None
                if isinstance(score, dict):
                    yield score.get("name"), score.get("score")


def _text(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) and value else None
