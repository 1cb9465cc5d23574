"""Properties of all conversions."""

import json
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from knowledgepulse_convert import (
    AUTO,
    INPUT_FORMATS,
    Conversion,
    ConversionError,
    convert,
    input_format_of,
)
from knowledgepulse_convert.common import boilerplate
from knowledgepulse_schemas import ReasoningTrace
from support.conversions import small_documents

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
arbitrary_json = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def members(value):
    """Yield the names and the texts in a document."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield "name", name
            yield from members(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from members(inner)
    elif isinstance(value, str):
        yield "text", value


FOUND = set(members(list(small_documents().values())))
NAMES = sorted(value for kind, value in FOUND if kind == "name")
VALUES = sorted(value for kind, value in FOUND if kind == "text")
likely_json = st.recursive(
    st.sampled_from(VALUES) | scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=30,
)


DEPTH = 5_000
"""Five times what Python's stack holds."""


def outcomes(document, source):
    return list(convert(document, source))


@given(arbitrary_json | likely_json, st.sampled_from([AUTO, *INPUT_FORMATS]))
@example(
    {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "", "spanId": "", "attributes": None}]}]}]},
    "otlp",
)
@example({"trajectory": [], "object": ["trace"]}, AUTO)
@example(
    [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": ["text"]}]}]}], "anthropic"
)
@example({"traceId": "a", "spanId": "1", "attributes": {"gen_ai.operation.name": ["chat"]}}, "otlp")
@example({"type": []}, AUTO)
@example({"type": [], "sessionID": "a", "part": {}}, AUTO)
@example([{"role": "tool", "content": [{"type": ["tool-result"], "toolCallId": "1"}]}], AUTO)
@example([{"data": {"messages": []}}], AUTO)
@example([{"lc": 1, "id": [], "kwargs": {}}], AUTO)
@example(None, "openclaw")
def test_any_document_gives_valid_traces_or_conversion_errors(document, source):
    for outcome in outcomes(document, source):
        if isinstance(outcome, Conversion):
            ReasoningTrace.model_validate_json(outcome.trace.to_json())
        else:
            assert isinstance(outcome, ConversionError)
            assert str(outcome)
            assert not str(outcome).startswith("the converter failed: ")


@pytest.mark.parametrize("document", [None, True, 1, 1.5, "text", "", [None], [1], ["text"], [[]], [[{}]]])
def test_every_format_refuses_a_document_that_has_no_object(document):
    for source in INPUT_FORMATS:
        for outcome in outcomes(document, source):
            assert isinstance(outcome, ConversionError)
            assert not str(outcome).startswith("the converter failed: "), source


def test_a_too_deeply_nested_document_is_of_no_source():
    document = []
    for _ in range(DEPTH):
        document = [document]

    assert input_format_of(document) is None


def test_a_list_or_an_object_in_place_of_a_word_is_of_no_source():
    assert input_format_of({"type": [], "sessionID": "a", "part": {}}) is None


@pytest.mark.parametrize("source", INPUT_FORMATS)
def test_too_deeply_nested_documents_are_rejected(source):
    deep = inner = {}
    for _ in range(DEPTH):
        inner["parts"] = inner = {}

    for document in (deep, [deep], {"messages": [{"role": "user", "content": deep}]}):
        assert all(isinstance(outcome, ConversionError) for outcome in outcomes(document, source))


# Conversations that every message format can express ------------------------------------------------------

# Hypothesis tries the constants of the converters, among them what programs write.
texts = st.text(st.characters(codec="utf-8"), min_size=1).filter(
    lambda text: text.strip() and not boilerplate.split([text])[0] and not boilerplate.is_given_up(text)
)
arguments = st.dictionaries(
    st.text(st.characters(codec="utf-8")), st.integers() | st.booleans() | texts, max_size=3
)
turns = st.one_of(
    st.tuples(st.just("user"), texts),
    st.tuples(st.just("assistant"), texts),
    st.tuples(st.just("thought"), texts),
    st.tuples(st.just("call"), texts, arguments, texts, st.booleans()),
)
objectives = texts.map(lambda text: f"Please do this: {text}")  # a short one may not be the objective
conversations = st.tuples(objectives, st.lists(turns, min_size=1, max_size=8))


def as_openai(objective, spoken):
    messages, numbers = [{"role": "user", "content": objective}], count()
    for turn in spoken:
        match turn:
            case "call", name, values, answer, _:
                call_id = f"call_{next(numbers)}"
                function = {"name": name, "arguments": json.dumps(values)}
                call = {"id": call_id, "type": "function", "function": function}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                messages.append({"role": "tool", "tool_call_id": call_id, "content": answer})
            case "thought", text:
                messages.append({"role": "assistant", "content": None, "reasoning_content": text})
            case role, text:
                messages.append({"role": role, "content": text})
    return messages


def as_anthropic(objective, spoken):
    messages, numbers = [{"role": "user", "content": objective}], count()
    for turn in spoken:
        match turn:
            case "call", name, values, answer, failed:
                call_id = f"toolu_{next(numbers)}"
                use = {"type": "tool_use", "id": call_id, "name": name, "input": values}
                result = {
                    "type": "tool_result",
                    "tool_use_id": call_id,
                    "content": answer,
                    "is_error": failed,
                }
                messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
            case "thought", text:
                messages.append({"role": "assistant", "content": [{"type": "thinking", "thinking": text}]})
            case role, text:
                messages.append({"role": role, "content": [{"type": "text", "text": text}]})
    return messages


def as_langchain(objective, spoken):
    messages, numbers = [{"type": "human", "content": objective}], count()
    for turn in spoken:
        match turn:
            case "call", name, values, answer, failed:
                call_id = f"call_{next(numbers)}"
                call = {"name": name, "args": values, "id": call_id, "type": "tool_call"}
                status = "error" if failed else "success"
                messages.append({"type": "ai", "content": "", "tool_calls": [call]})
                messages.append(
                    {"type": "tool", "content": answer, "tool_call_id": call_id, "status": status}
                )
            case "thought", text:
                messages.append({"type": "ai", "content": [{"type": "reasoning", "reasoning": text}]})
            case role, text:
                messages.append({"type": "human" if role == "user" else "ai", "content": text})
    return messages


def as_spans(objective, spoken):
    """Return a chat per assistant turn, each with the conversation so far."""
    said, spans, numbers = [{"role": "user", "parts": [{"type": "text", "content": objective}]}], [], count(2)
    for turn in spoken:
        number = next(numbers)
        match turn:
            case "call", name, values, answer, _:
                call = {"type": "tool_call", "id": f"call_{number}", "name": name, "arguments": values}
                output = {"role": "assistant", "parts": [call]}
                response = {"type": "tool_call_response", "id": f"call_{number}", "response": answer}
                after = [{"role": "tool", "parts": [response]}]
            case "user", text:
                said.append({"role": "user", "parts": [{"type": "text", "content": text}]})
                continue
            case kind, text:
                part = {"type": "reasoning" if kind == "thought" else "text", "content": text}
                output, after = {"role": "assistant", "parts": [part]}, []
        spans.append(_chat(number, said, output))
        said += [output, *after]
    spans.append(_chat(next(numbers), said, None))
    root = {"traceId": "a", "spanId": "1", "attributes": _pairs({"gen_ai.operation.name": "invoke_agent"})}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [root, *spans]}]}]}


def _chat(number, given, output):
    values = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(given)}
    if output is not None:
        values["gen_ai.output.messages"] = json.dumps([output])
    times = {"startTimeUnixNano": str(number), "endTimeUnixNano": str(number)}
    return {"traceId": "a", "spanId": str(number), "parentSpanId": "1", "attributes": _pairs(values), **times}


def _pairs(values):
    return [{"key": name, "value": {"stringValue": value}} for name, value in values.items()]


SPELLINGS = {"openai": as_openai, "anthropic": as_anthropic, "langchain": as_langchain, "otlp": as_spans}


def expected(spoken, *, flagged):
    failed = False
    for turn in spoken:
        match turn:
            case "user", text:
                yield ("observation", text)
            case "call", name, _, answer, fails:
                yield ("error_recovery" if failed else "tool_call", name)
                failed = fails and flagged
                yield ("observation", answer)
            case _, text:
                yield ("error_recovery" if failed else "thought", text)
                failed = False


@pytest.mark.parametrize("source", SPELLINGS)
@settings(max_examples=40)
@given(conversations)
def test_every_turn_becomes_a_step_in_order(source, conversation):
    objective, spoken = conversation

    (outcome,) = outcomes(SPELLINGS[source](objective, spoken), source)

    assert outcome.trace.task.objective == objective
    found = [
        (step.type, step.content if step.content is not None else step.tool.name)
        for step in outcome.trace.steps
    ]
    assert found == list(expected(spoken, flagged=source in {"anthropic", "langchain"}))
