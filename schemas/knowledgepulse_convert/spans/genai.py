"""OpenTelemetry's semantic conventions for generative AI, and their dialects.

The messages of a model call are searched for in this order: the span's attributes or its
``gen_ai.client.inference.operation.details`` events; the attributes of Google's ADK; the numbered attributes
of OpenLLMetry; one event per message, as in earlier versions of the conventions. Logfire writes such events
as the JSON text of an attribute.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.python_repr import parse_repr
from knowledgepulse_convert.common.reading import (
    as_list,
    as_text,
    count_others,
    parse_json,
    text_or_none,
    without,
)
from knowledgepulse_convert.common.statuses import is_failure
from knowledgepulse_convert.messages import any_vendor, gemini
from knowledgepulse_convert.messages.definitions import definitions_of
from knowledgepulse_convert.messages.otel import flat_message, messages_of
from knowledgepulse_convert.spans.conversation import ModelCall, ToolRun
from knowledgepulse_convert.spans.span import Event, Span, node_of
from knowledgepulse_convert.spans.tree import Node

OPERATION = "gen_ai.operation.name"
_MODEL_CALLS = ("chat", "text_completion", "generate_content")
_AGENTS = ("invoke_agent", "invoke_workflow")
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_SYSTEM = "gen_ai.system_instructions"
_TOOLS = "gen_ai.tool.definitions"
_FINISH = "gen_ai.response.finish_reasons"
_DETAILS = "gen_ai.client.inference.operation.details"
_IN_DETAILS = {_INPUT, _OUTPUT, _SYSTEM, _TOOLS}
_EVENTS = "events"
_CYCLE = "event_loop.cycle_id"
"""An attribute of Strands' spans around a model call and its tools, which repeat some of their messages."""
_EVALUATION = "gen_ai.evaluation.result"
SCORE = ("gen_ai.evaluation.name", "gen_ai.evaluation.score.value")
"""The attributes of an evaluation's event that hold the name and the value of its score."""
_ENTITY_OUTPUT = "traceloop.entity.output"
_TOOL_CALL = "gen_ai.tool.call"
_TOOL = "tool.name"
"""The name of a tool that ran, in spans of OpenLLMetry for LlamaIndex."""
_CREW, _CREW_FAILURE = "crewai.crew.tasks_output", "ToolFailureRecord("
_MERGED = "(merged tools)"
"""The tool's name in the span of ADK that repeats the responses of parallel calls."""
_ADK = "gcp.vertex.agent"
_ADK_REQUEST, _ADK_RESPONSE = f"{_ADK}.llm_request", f"{_ADK}.llm_response"
_KOOG = "koog.node.output"
_KOOG_FAILED = ("ToolResultKind.Failure", "ToolResultKind.ValidationError")
_OUTCOMES = ("gen_ai.tool.status", f"{_TOOL_CALL}.outcome")
"""Where Strands and rig write whether a call failed."""
_LISTED = re.compile(r"\[([\w, -]+)\]")
"""How Koog writes a list of finish reasons."""


def follows(span: Span) -> bool:
    """Check whether the Agent Development Kit recorded a span, whose names of operations others have, too."""
    return span.scope == _ADK or _ADK_REQUEST in span.attributes


def node(span: Span) -> Node:
    """Convert a span to a node, or raise a ConversionError if its messages violate the conventions."""
    losses = Losses()
    used = {OPERATION, "gen_ai.agent.name", "gen_ai.agent.id", "error.type"}
    error = span.error(span.attributes.get("error.type"))
    event: ModelCall | ToolRun | None = None
    if span.attributes.get("gen_ai.tool.name") == _MERGED:
        pass
    elif (
        span.attributes.get(OPERATION) == "execute_tool" or _kind(span) == "tool" or _TOOL in span.attributes
    ):
        event = _tool_run(span, used, error, losses)
    elif _CYCLE not in span.attributes:
        call = _model_call(span, used, losses)
        if call.input or call.output:
            event = ModelCall(call.input, call.output, error)
        elif error is not None and span.attributes.get(OPERATION) in _MODEL_CALLS:
            event = ModelCall(error=error)
    return node_of(
        span,
        event,
        error,
        used,
        losses,
        silent=event is None and span.attributes.get(OPERATION) in _MODEL_CALLS,
        agent=span.attributes.get(OPERATION) in _AGENTS or _kind(span) == "agent",
        agent_id=span.text("gen_ai.agent.id", "gen_ai.agent.name"),
        names=span.texts("gen_ai.agent.name", "gen_ai.agent.id", "gen_ai.workflow.name", "service.name"),
        scores=scores_of(span),
        returned=partial(_workflow_output, span, losses) if _kind(span) == "workflow" else None,
        failures=_failures(span),
        reason=_reason_of_koog(span),
    )


def _workflow_output(span: Span, losses: Losses) -> tuple[ir.Message, ...]:
    """Return the messages that OpenLLMetry says a graph of LangGraph returned."""
    output = parse_json(span.attributes.get(_ENTITY_OUTPUT))
    returned = output.get("outputs") if isinstance(output, dict) else None
    return any_vendor.messages_of(returned, "assistant", _ENTITY_OUTPUT, losses) if returned else ()


def _failures(span: Span) -> Iterator[ToolRun]:
    """Yield the executions that have failed in the tasks of a crew, or in a node of Koog's graph."""
    koog, outputs = as_text(span.attributes.get(_KOOG)), span.attributes.get(_CREW)
    if any(failed in koog for failed in _KOOG_FAILED):
        yield from _failures_of_koog(parse_json(koog))
    tasks = parse_repr(outputs) if isinstance(outputs, str) and _CREW_FAILURE in outputs else ()
    for record in (record for task in tasks for record in task.get("tool_failures", ())):
        match record:
            case {"tool_name": str(name), "tool_args": arguments, "failure": {"message": str(message)}}:
                yield ToolRun(ir.ToolCall(name, arguments), message, failed=True)


def _reason_of_koog(span: Span) -> Any:
    """Return why the answer of a node of Koog's graph ended; its model calls say "stop" whatever it was."""
    output = as_text(span.attributes.get(_KOOG))
    parsed = parse_json(output) if "finishReason" in output else None
    return parsed.get("finishReason") if isinstance(parsed, dict) else None


def _failures_of_koog(output: Any) -> Iterator[ToolRun]:
    """Yield the failed ones of the results of a node, as the spans of unknown tools do not tell them."""
    results = output.get("toolResults") if isinstance(output, dict) else None
    for result in as_list(results):
        match result:
            case {"tool": str(name), "output": text, "resultKind": {"type": str(kind)}, **rest} if (
                kind.endswith(_KOOG_FAILED)
            ):
                call = ir.ToolCall(name, rest.get("toolArgs"), text_or_none(rest.get("id")))
                yield ToolRun(call, as_text(text), failed=True)


def evaluation_event(name: Any, value: Any) -> Event:
    """Return the event of a score."""
    return Event(_EVALUATION, dict(zip(SCORE, (name, value), strict=True)))


def scores_of(span: Span) -> Iterator[tuple[Any, Any]]:
    """Yield the name and the value of each score in a span's events."""
    for event in span.events:
        if event.name == _EVALUATION:
            yield event.attributes.get(SCORE[0]), event.attributes.get(SCORE[1])


def _model_call(span: Span, used: set[str], losses: Losses) -> ModelCall:
    call = _recorded(span, used, losses) or _adk(span, used, losses) or _numbered(span, used, losses)
    if not (call.input or call.output):
        call = _events(span, used, losses)
    reasons = parse_json(span.attributes.get(_FINISH))
    if isinstance(reasons, str) and (listed := _LISTED.fullmatch(reasons)):
        reasons = listed[1].split(", ")
    used.add(_FINISH)
    errors = [error for reason in as_list(reasons) for error in ir.cut_off(reason)][:1]
    has_error = any(isinstance(part, ir.Error) for part in ir.parts_in(call.output))
    if errors and not has_error:
        call = ModelCall(call.input, (*call.output, ir.message("assistant", *errors)))
    return call


def _recorded(span: Span, used: set[str], losses: Losses) -> ModelCall | None:
    """Read the message attributes of the span or of its details events."""
    details = _details(span, losses)
    found = {name: parse_json(span.attributes.get(name, details.get(name))) for name in (_INPUT, _OUTPUT)}
    if OPERATION not in span.attributes and any(isinstance(value, str) for value in found.values()):
        return None  # OpenLIT's, of a function
    if found[_INPUT] is None and found[_OUTPUT] is None:
        return None
    used |= {*found, _SYSTEM, _TOOLS}
    system = [*definitions_of(span.attributes.get(_TOOLS, details.get(_TOOLS)) or [], _TOOLS, losses)]
    if instructions := parse_json(span.attributes.get(_SYSTEM, details.get(_SYSTEM))):
        if not isinstance(instructions, list):
            instructions = [{"type": "text", "content": instructions}]
        system += messages_of([{"role": "system", "parts": instructions}], _SYSTEM, losses)
    inputs, outputs = (messages_of(found[name] or [], name, losses) for name in (_INPUT, _OUTPUT))
    if not _calls_in(outputs):
        outputs = (*outputs, *_calls_beside(span, used, losses))
    return ModelCall((*system, *inputs), outputs)


def _calls_beside(span: Span, used: set[str], losses: Losses) -> Iterator[ir.Message]:
    """Yield the calls that some write elsewhere: litellm, and OpenLLMetry for LlamaIndex."""
    calls = _calls_in(_numbered(span, used, losses).output)
    if not calls and "tool_call" in as_text(span.attributes.get(_FINISH)):
        output = parse_json(span.attributes.get(_ENTITY_OUTPUT))
        calls = _calls_in(any_vendor.messages_of(output, "assistant", _ENTITY_OUTPUT, losses))
    if calls:
        yield ir.message("assistant", *calls)


def _calls_in(messages: Iterable[ir.Message]) -> list[ir.ToolCall]:
    return [part for part in ir.parts_in(messages) if isinstance(part, ir.ToolCall)]


def _details(span: Span, losses: Losses) -> dict[str, Any]:
    """Return the attributes of all details events: some write the input and the output to one each.

    If two have the same attribute, the later one is newer, and the earlier one is a loss unless it is equal.
    """
    details: dict[str, Any] = {}
    for event in (event for event in span.events if event.name == _DETAILS):
        for name, value in event.attributes.items():
            if name in _IN_DETAILS and name in details and details[name] != value:
                losses.add(f"events.{_DETAILS}.{name}", details[name])
            details[name] = value
    return details


def _adk(span: Span, used: set[str], losses: Losses) -> ModelCall | None:
    request, response = (parse_json(span.attributes.get(name)) for name in (_ADK_REQUEST, _ADK_RESPONSE))
    if not isinstance(request, dict) or not isinstance(request.get("contents"), list):
        return None
    used |= {_ADK_REQUEST, _ADK_RESPONSE}
    count_others(request, {"contents", "config"}, _ADK_REQUEST, losses)
    config = request.get("config")
    system = _adk_system(config, losses) if isinstance(config, dict) else ()
    path = f"{_ADK_REQUEST}.contents"
    inputs = tuple(gemini.message_of(content, "user", path, losses) for content in request["contents"])
    if not isinstance(response, dict):
        losses.add(_ADK_RESPONSE, response)
        return ModelCall((*system, *inputs))
    count_others(response, {"content", "finish_reason", "finishReason"}, _ADK_RESPONSE, losses)
    return ModelCall((*system, *inputs), gemini.answer_of(response, _ADK_RESPONSE, losses))


def _adk_system(config: dict[str, Any], losses: Losses) -> Iterator[ir.Message]:
    names = ("system_instruction", "systemInstruction")  # the second is of ADK for Java
    text, tools = next((config[name] for name in names if name in config), None), config.get("tools")
    rest = without(config, *names, "tools")
    losses.add(f"{_ADK_REQUEST}.config", rest)
    yield from definitions_of(tools or [], f"{_ADK_REQUEST}.config.tools", losses)
    if isinstance(text, dict) and gemini.recognises(text):
        yield gemini.message_of(without(text, "role"), "system", f"{_ADK_REQUEST}.config", losses)
    elif text:
        yield ir.message("system", ir.Text(as_text(text)))


def _numbered(span: Span, used: set[str], losses: Losses) -> ModelCall:
    """Read OpenLLMetry's attributes: ``gen_ai.prompt.0.role``, ``gen_ai.completion.0.content`` and so on."""
    roles: dict[str, ir.Role] = {"gen_ai.completion": "assistant", "gen_ai.prompt": "user"}
    outputs, inputs = (
        tuple(
            flat_message(message, role, prefix, losses)
            for message in as_list(span.nested(prefix, used))
            if isinstance(message, dict)
        )
        for prefix, role in roles.items()
    )
    return ModelCall(inputs, outputs)


def _events(span: Span, used: set[str], losses: Losses) -> ModelCall:
    """Read the events of single messages."""
    inputs, outputs = [], []
    for event in (*span.events, *_events_attribute(span, used, losses)):
        kind = event.name.removeprefix("gen_ai.").removesuffix(".message")
        if event.name == "gen_ai.choice":
            outputs.append(flat_message(_choice(event), "assistant", event.name, losses))
        elif event.name == f"gen_ai.{kind}.message" and kind in ir.ROLES:
            inputs.append(
                flat_message({"role": kind, **event.attributes}, ir.ROLES[kind], event.name, losses)
            )
    return ModelCall(tuple(inputs), tuple(outputs))


def _choice(event: Event) -> dict[str, Any]:
    """Return the message of a choice, whose ``message`` is an object, or a message's content."""
    body = parse_json(event.attributes.get("message"))
    if isinstance(body, dict):
        return {**event.attributes, **body}
    return {"content": body, **event.attributes}


def _events_attribute(span: Span, used: set[str], losses: Losses) -> Iterator[Event]:
    """Yield the events in an attribute: a list of objects with the event's name and its members."""
    values = parse_json(span.attributes.get(_EVENTS))
    if not isinstance(values, list) or not any(map(_is_event, values)):
        return
    used.add(_EVENTS)
    for value in values:
        if _is_event(value):
            yield Event(value["event.name"], without(value, "event.name"))
        else:
            losses.add_unknown(f"attributes.{_EVENTS}[]", value)


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("event.name"), str)


def _tool_run(span: Span, used: set[str], error: ir.Error | None, losses: Losses) -> ToolRun:
    def first(*names: str) -> Any:
        used.update(names)
        return next((span.attributes[name] for name in names if name in span.attributes), None)

    name = first("gen_ai.tool.name", _TOOL, "traceloop.entity.name")
    call_id = first(f"{_TOOL_CALL}.id", "gen_ai.tool_call.id")  # the second is of ADK for Java
    arguments = first(
        f"{_TOOL_CALL}.arguments",
        f"{_ADK}.tool_call_args",
        "gen_ai.tool.args",
        *("tool.arguments", "traceloop.entity.input"),
    )
    result = first(f"{_TOOL_CALL}.result", f"{_ADK}.tool_response", "gen_ai.output", _ENTITY_OUTPUT)
    if arguments is None and result is None:
        arguments, result = _tool_events(span)
    if arguments is None and result is None:
        losses.add("a tool's arguments and result, which were not recorded", "-")
    return span.tool_run(
        as_text(name) or span.name,
        arguments,
        result,
        error,
        losses,
        call_id=text_or_none(call_id),
        failed=is_failure(first(*_OUTCOMES)),
    )


def _tool_events(span: Span) -> tuple[Any, Any]:
    """Return the arguments and the result that a tool's span has in events, as messages of a model call."""
    found = {event.name: event.attributes for event in span.events}
    arguments, answer = found.get("gen_ai.tool.message", {}), found.get("gen_ai.choice", {})
    return parse_json(arguments.get("content")), answer.get("message")


def _kind(span: Span) -> Any:
    return span.attributes.get("traceloop.span.kind")
