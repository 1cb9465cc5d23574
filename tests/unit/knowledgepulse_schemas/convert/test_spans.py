"""Span export formats (OTLP, Tempo, Jaeger, Phoenix) and conventions (GenAI, OpenInference)."""

import base64
import json

import pytest
from google.protobuf.json_format import MessageToDict
from openinference.semconv.trace import (
    MessageAttributes,
    OpenInferenceSpanKindValues,
    SpanAttributes,
    ToolCallAttributes,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import (
    ResourceSpans,
    ScopeSpans,
    Span,
    TracesData,
)
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

from knowledgepulse_schemas import SpanContext
from knowledgepulse_schemas.convert import ConversionError, convert

TRACE_ID = bytes.fromhex("5b8efff798038103d269b633813fc60c")
SECOND = 1_000_000_000
START = 1_767_225_600 * SECOND

ASK = {"role": "user", "parts": [{"type": "text", "content": "What is the weather in Paris?"}]}
CALL = {
    "role": "assistant",
    "parts": [{"type": "tool_call", "id": "call_1", "name": "weather", "arguments": {"city": "Paris"}}],
    "finish_reason": "tool_call",
}
ANSWER = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "Sunny"}]}
DONE = {
    "role": "assistant",
    "parts": [{"type": "reasoning", "content": "Good"}, {"type": "text", "content": "It is sunny."}],
    "finish_reason": "stop",
}
TRACE = [
    ("tool_call", None, "weather"),
    ("observation", "Sunny", "weather"),
    ("thought", "Good", None),
    ("thought", "It is sunny.", None),
]


def attributes(values):
    kinds = {str: "string_value", int: "int_value"}
    return [
        KeyValue(key=name, value=AnyValue(**{kinds[type(value)]: value})) for name, value in values.items()
    ]


def span(number, name, values, parent=None, at=0, takes=1):
    return Span(
        trace_id=TRACE_ID,
        span_id=number.to_bytes(8, "big"),
        parent_span_id=b"" if parent is None else parent.to_bytes(8, "big"),
        name=name,
        start_time_unix_nano=START + at * SECOND,
        end_time_unix_nano=START + (at + takes) * SECOND,
        attributes=attributes(values),
    )


def chat(given, said):
    return {
        gen_ai.GEN_AI_OPERATION_NAME: "chat",
        gen_ai.GEN_AI_INPUT_MESSAGES: json.dumps(given),
        gen_ai.GEN_AI_OUTPUT_MESSAGES: json.dumps(said),
    }


AGENT = {gen_ai.GEN_AI_OPERATION_NAME: "invoke_agent", gen_ai.GEN_AI_AGENT_NAME: "forecaster"}
TOOL = {
    gen_ai.GEN_AI_OPERATION_NAME: "execute_tool",
    gen_ai.GEN_AI_TOOL_NAME: "weather",
    gen_ai.GEN_AI_TOOL_CALL_ID: "call_1",
    gen_ai.GEN_AI_TOOL_CALL_ARGUMENTS: '{"city": "Paris"}',
    gen_ai.GEN_AI_TOOL_CALL_RESULT: "Sunny",
}


def run():
    return [
        span(1, "invoke_agent forecaster", AGENT, takes=10),
        span(2, "chat gpt-5", chat([ASK], [CALL]), parent=1, at=1),
        span(3, "execute_tool weather", TOOL, parent=1, at=3),
        span(4, "chat gpt-5", chat([ASK, CALL, ANSWER], [DONE]), parent=1, at=5),
    ]


def data(spans):
    resource = Resource(attributes=attributes({"service.name": "weather-service"}))
    return TracesData(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[ScopeSpans(spans=spans)])]
    )


def protobuf_json(spans):
    """Return the export in protobuf's own JSON mapping: base64 ids, 64-bit numbers as strings."""
    return MessageToDict(data(spans))


def otlp(spans):
    """Return the export in OTLP's JSON mapping, with hexadecimal ids."""
    document = protobuf_json(spans)
    for scope in document["resourceSpans"][0]["scopeSpans"]:
        for one in scope["spans"]:
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in one:
                    one[name] = base64.b64decode(one[name]).hex()
    return document


def snake_case(spans):
    return MessageToDict(data(spans), preserving_proto_field_name=True)


def tempo(spans):
    batch = protobuf_json(spans)["resourceSpans"][0]
    return {"batches": [{**batch, "instrumentationLibrarySpans": batch.pop("scopeSpans")}]}


def jaeger(spans):
    """Return the spans in the form of Jaeger's query API, after ingestion by OTLP."""
    found = []
    for one in spans:
        tags = [
            {"key": pair.key, "type": "string", "value": pair.value.string_value} for pair in one.attributes
        ]
        reference = {"refType": "CHILD_OF", "traceID": TRACE_ID.hex(), "spanID": one.parent_span_id.hex()}
        found.append(
            {
                "traceID": TRACE_ID.hex(),
                "spanID": one.span_id.hex(),
                "operationName": one.name,
                "references": [reference] if one.parent_span_id else [],
                "startTime": one.start_time_unix_nano // 1000,
                "duration": (one.end_time_unix_nano - one.start_time_unix_nano) // 1000,
                "tags": tags,
                "logs": [],
                "processID": "p1",
            }
        )
    processes = {"p1": {"serviceName": "weather-service", "tags": []}}
    return {"data": [{"traceID": TRACE_ID.hex(), "spans": found, "processes": processes}], "total": 1}


def only(document):
    (conversion,) = convert(document)
    assert not isinstance(conversion, ConversionError), conversion
    return conversion


EXPORT_FORMATS = {
    "otlp": otlp,
    "protobuf": protobuf_json,
    "snake_case": snake_case,
    "tempo": tempo,
    "jaeger": jaeger,
}


@pytest.mark.parametrize("export_format", EXPORT_FORMATS)
def test_all_export_formats_of_the_same_spans_give_the_same_trace(export_format):
    trace = only(EXPORT_FORMATS[export_format](run())).trace

    assert trace.id == only(otlp(run())).trace.id
    assert trace.metadata.created_at == "2026-01-01T00:00:10.000Z"
    assert trace.metadata.agent_id == "forecaster"
    assert trace.metadata.span_context == SpanContext(trace_id=TRACE_ID.hex(), span_id="0000000000000001")
    assert trace.task.objective == "What is the weather in Paris?"
    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == TRACE
    assert (trace.steps[0].input, trace.steps[0].latency_ms) == ({"city": "Paris"}, 1000)


def test_a_call_that_is_repeated_with_another_id_is_the_one_that_its_response_answers():
    """The instrumentation of the OpenAI Agents SDK repeats calls with the ids of their items."""
    repeated = {**CALL, "parts": [{**CALL["parts"][0], "id": "fc_1"}]}
    spans = run()
    spans[3] = span(4, "chat gpt-5", chat([ASK, repeated, ANSWER], [DONE]), parent=1, at=5)

    trace = only(otlp(spans)).trace

    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == TRACE


# Strands --------------------------------------------------------------------------------------------------

THOUGHT = {"type": "reasoningContent", "content": {"reasoningText": {"text": "Look it up"}}}
ASKED = [{"text": "What is the weather in Paris?"}]
CALLED = [
    {"reasoningContent": {"reasoningText": {"text": "Look it up"}}},
    {"toolUse": {"toolUseId": "call_1", "name": "weather", "input": {"city": "Paris"}}},
]
ANSWERED = [{"toolResult": {"toolUseId": "call_1", "status": "success", "content": [{"text": "Sunny"}]}}]
SAID = [{"text": "It is sunny."}]


def strands_events(**messages):
    """Return an event for each message, as Strands writes them by default."""
    return [
        Span.Event(
            name="gen_ai.choice" if name == "choice" else f"gen_ai.{name}.message",
            attributes=attributes({"message" if name == "choice" else "content": json.dumps(content)}),
        )
        for name, content in messages.items()
    ]


def strands_details(**messages):
    """Return details events, as Strands writes them in the latest conventions."""
    return [
        Span.Event(
            name="gen_ai.client.inference.operation.details",
            attributes=attributes({f"gen_ai.{name}.messages": json.dumps(content)}),
        )
        for name, content in messages.items()
    ]


def strands_run(cycles, chats):
    """Return the spans of two cycles of the event loop, each with a model call, and a tool in the first."""
    spans = [span(1, "invoke_agent forecaster", AGENT, takes=10)]
    for number, (cycle, call) in enumerate(zip(cycles, chats, strict=True)):
        at, around = 5 * number, 2 + 2 * number
        operation = {gen_ai.GEN_AI_OPERATION_NAME: "execute_event_loop_cycle", "event_loop.cycle_id": "x"}
        spans.append(span(around, "execute_event_loop_cycle", operation, parent=1, at=at, takes=5))
        spans[-1].events.extend(cycle)
        spans.append(
            span(around + 1, "chat", {gen_ai.GEN_AI_OPERATION_NAME: "chat"}, parent=around, at=at + 1)
        )
        spans[-1].events.extend(call)
    return [*spans, span(9, "execute_tool weather", TOOL, parent=2, at=3)]


STRANDS = {
    "events": strands_run(
        [
            strands_events(user=ASKED, choice=CALLED),
            strands_events(user=ASKED, assistant=CALLED, tool=ANSWERED),
        ],
        [
            strands_events(user=ASKED, choice=CALLED),
            strands_events(user=ASKED, assistant=CALLED, tool=ANSWERED, choice=SAID),
        ],
    ),
    "details": strands_run(
        [
            [*strands_details(input=[ASK]), *strands_details(input=[{**ANSWER, "role": "user"}])],
            strands_details(input=[ASK, CALL, ANSWER]),
        ],
        [
            strands_details(input=[ASK], output=[{**CALL, "parts": [THOUGHT, *CALL["parts"]]}]),
            strands_details(input=[ASK, CALL, ANSWER], output=[{**DONE, "parts": DONE["parts"][1:]}]),
        ],
    ),
}


@pytest.mark.parametrize("convention", STRANDS)
def test_cycles_of_strands_do_not_hide_the_model_calls_below_them(convention):
    trace = only(otlp(STRANDS[convention])).trace

    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == [
        ("thought", "Look it up", None),
        ("tool_call", None, "weather"),
        ("observation", "Sunny", "weather"),
        ("thought", "It is sunny.", None),
    ]
    assert trace.metadata.success


# OpenInference --------------------------------------------------------------------------------------------


def flat_message(prefix, number, message):
    return {f"{prefix}.{number}.{name}": value for name, value in message.items()}


OPENINFERENCE_CALL = {
    MessageAttributes.MESSAGE_ROLE: "assistant",
    f"{MessageAttributes.MESSAGE_TOOL_CALLS}.0.{ToolCallAttributes.TOOL_CALL_ID}": "call_1",
    f"{MessageAttributes.MESSAGE_TOOL_CALLS}.0.{ToolCallAttributes.TOOL_CALL_FUNCTION_NAME}": "weather",
    f"{MessageAttributes.MESSAGE_TOOL_CALLS}.0.{ToolCallAttributes.TOOL_CALL_FUNCTION_ARGUMENTS_JSON}": (
        '{"city": "Paris"}'
    ),
}
OPENINFERENCE_ASK = {
    MessageAttributes.MESSAGE_ROLE: "user",
    MessageAttributes.MESSAGE_CONTENT: "What is the weather in Paris?",
}
OPENINFERENCE_DONE = {
    MessageAttributes.MESSAGE_ROLE: "assistant",
    MessageAttributes.MESSAGE_CONTENT: "It is sunny.",
}


def openinference_run():
    kind = SpanAttributes.OPENINFERENCE_SPAN_KIND
    given, said = SpanAttributes.LLM_INPUT_MESSAGES, SpanAttributes.LLM_OUTPUT_MESSAGES
    kinds = OpenInferenceSpanKindValues
    return [
        (1, None, 0, {kind: kinds.AGENT.value, SpanAttributes.INPUT_VALUE: "What is the weather in Paris?"}),
        (
            2,
            1,
            1,
            {
                kind: kinds.LLM.value,
                SpanAttributes.LLM_TOKEN_COUNT_TOTAL: 9,
                **flat_message(given, 0, OPENINFERENCE_ASK),
                **flat_message(said, 0, OPENINFERENCE_CALL),
            },
        ),
        (
            3,
            1,
            3,
            {
                kind: kinds.TOOL.value,
                SpanAttributes.TOOL_NAME: "weather",
                SpanAttributes.INPUT_VALUE: '{"city": "Paris"}',
                SpanAttributes.OUTPUT_VALUE: "Sunny",
            },
        ),
        (
            4,
            1,
            5,
            {
                kind: kinds.LLM.value,
                **flat_message(given, 0, OPENINFERENCE_ASK),
                **flat_message(given, 1, OPENINFERENCE_CALL),
                **flat_message(
                    given,
                    2,
                    {
                        MessageAttributes.MESSAGE_ROLE: "tool",
                        MessageAttributes.MESSAGE_CONTENT: "Sunny",
                        MessageAttributes.MESSAGE_TOOL_CALL_ID: "call_1",
                    },
                ),
                **flat_message(said, 0, OPENINFERENCE_DONE),
            },
        ),
    ]


def openinference_otlp():
    return otlp(
        [span(number, "step", values, parent, at) for number, parent, at, values in openinference_run()]
    )


def phoenix_rest():
    spans = [
        {
            "id": f"node-{number}",
            "name": "step",
            "context": {"trace_id": TRACE_ID.hex(), "span_id": f"{number:016x}"},
            "span_kind": values[SpanAttributes.OPENINFERENCE_SPAN_KIND],
            "parent_id": None if parent is None else f"{parent:016x}",
            "start_time": f"2026-01-01T00:00:{at:02}+00:00",
            "end_time": f"2026-01-01T00:00:{at + 1:02}+00:00",
            "status_code": "OK",
            "status_message": "",
            "attributes": values,
            "events": [],
        }
        for number, parent, at, values in openinference_run()
    ]
    return {"data": spans, "next_cursor": None}


def phoenix_data_frame():
    """Return the rows of a span data frame as written by pandas, with milliseconds since 1970."""
    rows = []
    for one in phoenix_rest()["data"]:
        row = {name: value for name, value in one.items() if name not in {"context", "attributes", "id"}}
        row["start_time"] = 1_767_225_600_000 + int(one["start_time"][17:19]) * 1000
        row["end_time"] = row["start_time"] + 1000
        row |= {f"context.{name}": value for name, value in one["context"].items()}
        row |= {f"attributes.{name}": value for name, value in one["attributes"].items()}
        rows.append(row)
    return rows


@pytest.mark.parametrize("export", [openinference_otlp, phoenix_rest, phoenix_data_frame])
def test_all_export_formats_of_openinference_spans_give_the_same_trace(export):
    trace = only(export()).trace

    assert trace.id == only(openinference_otlp()).trace.id
    assert [(step.type, step.content, step.tool and step.tool.name) for step in trace.steps] == [
        ("tool_call", None, "weather"),
        ("observation", "Sunny", "weather"),
        ("thought", "It is sunny.", None),
    ]
    assert trace.steps[0].input == {"city": "Paris"}
    assert trace.metadata.created_at == "2026-01-01T00:00:01.000Z"
