"""Records that the OpenTelemetry Collector's Kafka exporter wrote, and the spans that it had received."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status, TracesData
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

from support.spans import SECOND, START, message, span

ENCODINGS = ("otlp_proto", "otlp_json")
RECORDED = Path(__file__).parents[1] / "contract" / "data" / "otel-collector-0.155.0.json"

_ORIGIN = "The OpenTelemetry Collector's Kafka exporter 0.155.0, as configured by deploy/otel-collector"

Records = list[tuple[bytes, bytes]]


def record(file: Path, records: Mapping[str, Records]) -> None:
    """Write keys and values of the records of each encoding to a file that can replace :data:`RECORDED`."""
    kept = {
        encoding: [{"key": key.decode(), "value": base64.b64encode(value).decode()} for key, value in ones]
        for encoding, ones in records.items()
    }
    file.write_text(json.dumps({"origin": _ORIGIN, **kept}, indent=1) + "\n")


def recorded(encoding: str) -> Records:
    """Return keys and values of the recorded records of an encoding, by offset."""
    return [
        (load["key"].encode(), base64.b64decode(load["value"]))
        for load in json.loads(RECORDED.read_text())[encoding]
    ]


def sent() -> bytes:
    """Return the request whose records are :data:`RECORDED`, with two runs of two libraries of a service."""
    service = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="weather"))])
    scopes = [("opentelemetry.instrumentation.openai", b"\xa1" * 16), ("own", b"\xb2" * 16)]
    return TracesData(
        resource_spans=[
            ResourceSpans(
                resource=service,
                scope_spans=[
                    ScopeSpans(scope=InstrumentationScope(name=name, version="1.0"), spans=_run(trace_id))
                    for name, trace_id in scopes
                ],
                schema_url="https://opentelemetry.io/schemas/1.37.0",
            )
        ]
    ).SerializeToString()


def _run(trace_id: bytes) -> list[Span]:
    """Return a run with values of every type, a failed tool call and an exception."""
    asked = message("user", {"type": "text", "content": 'Is "25 °C" warm?\nYes or no.'})
    called = {gen_ai.GEN_AI_TOOL_NAME: "forecast", gen_ai.GEN_AI_TOOL_CALL_ID: "call_1"}
    tool = span(trace_id, 2, "execute_tool", called | {gen_ai.GEN_AI_TOOL_CALL_ARGUMENTS: '{"city": "Oslo"}'})
    tool.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message="timeout"))
    tool.events.add(
        name="exception",
        time_unix_nano=START + 3 * SECOND,
        attributes=[KeyValue(key="exception.type", value=AnyValue(string_value="TimeoutError"))],
    )
    answers = []
    for number, text in ((1, "Ask the forecast."), (3, "Yes.")):
        answer = span(
            trace_id,
            number,
            "chat",
            {
                gen_ai.GEN_AI_INPUT_MESSAGES: json.dumps([asked]),
                gen_ai.GEN_AI_OUTPUT_MESSAGES: json.dumps(
                    [message("assistant", {"type": "text", "content": text})]
                ),
            },
        )
        answer.kind = Span.SPAN_KIND_CLIENT
        answer.attributes.add(key=gen_ai.GEN_AI_USAGE_INPUT_TOKENS, value=AnyValue(int_value=2**40))
        answer.attributes.add(key=gen_ai.GEN_AI_REQUEST_TEMPERATURE, value=AnyValue(double_value=0.1))
        answer.attributes.add(key="streamed", value=AnyValue(bool_value=True))
        reasons = ArrayValue(values=[AnyValue(string_value="stop")])
        answer.attributes.add(key=gen_ai.GEN_AI_RESPONSE_FINISH_REASONS, value=AnyValue(array_value=reasons))
        answers.append(answer)
    agent = span(trace_id, 0, "invoke_agent", {gen_ai.GEN_AI_AGENT_NAME: "forecaster"}, None, 5)
    agent.trace_state, agent.flags = "vendor=1", 0x101
    return [answers[0], tool, answers[1], agent]
