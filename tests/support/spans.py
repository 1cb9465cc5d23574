"""Traces as the spans that an instrumented agent would send to a Collector."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

from knowledgepulse_convert import Options
from knowledgepulse_worker.tools.assemble.run_conversion import CompleteRun, ConvertedRun, convert_run

SECOND = 1_000_000_000
START = 1_767_225_600 * SECOND


def spans_of(trace: bytes) -> list[Span]:
    """Return a trace as GenAI spans, one for each step and the agent's, which ends last and comes last."""
    document = json.loads(trace)
    trace_id = sha256(document["id"].encode()).digest()[:16]
    asked = [message("user", {"type": "text", "content": document["task"]["objective"]})]
    spans = [_step(trace_id, number, step, asked) for number, step in enumerate(document["steps"], start=1)]
    return [
        *spans,
        span(trace_id, 0, "invoke_agent", {gen_ai.GEN_AI_AGENT_NAME: "tester"}, None, len(spans) + 2),
    ]


def _step(trace_id: bytes, number: int, step: dict[str, Any], asked: list[Any]) -> Span:
    if step["type"] == "tool_call" and step.get("tool"):
        values = {
            gen_ai.GEN_AI_TOOL_NAME: step["tool"]["name"],
            gen_ai.GEN_AI_TOOL_CALL_ID: f"call_{number}",
            gen_ai.GEN_AI_TOOL_CALL_ARGUMENTS: json.dumps(step.get("input") or {}),
            gen_ai.GEN_AI_TOOL_CALL_RESULT: step.get("output_summary") or "done",
        }
        return span(trace_id, number, "execute_tool", values)
    said = [message("assistant", {"type": "text", "content": step.get("content") or "…"})]
    values = {
        gen_ai.GEN_AI_INPUT_MESSAGES: json.dumps(asked),
        gen_ai.GEN_AI_OUTPUT_MESSAGES: json.dumps(said),
    }
    return span(trace_id, number, "chat", values)


def message(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": parts}


def span(
    trace_id: bytes,
    number: int,
    operation: str | None,
    values: dict[str, str],
    parent: int | None = 0,
    takes: int = 1,
) -> Span:
    """Return a span that starts ``number`` seconds after the trace; its parent is the root by default.

    Without an operation, it is that of a service which is no agent.
    """
    values = values if operation is None else {gen_ai.GEN_AI_OPERATION_NAME: operation, **values}
    return Span(
        trace_id=trace_id,
        span_id=_span_id(number),
        parent_span_id=b"" if parent is None else _span_id(parent),
        name=operation or "GET /",
        start_time_unix_nano=START + number * SECOND,
        end_time_unix_nano=START + (number + takes) * SECOND,
        attributes=[KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in values.items()],
    )


def _span_id(number: int) -> bytes:
    return (number + 1).to_bytes(8, "big")


def export(spans: Sequence[Span], *, as_json: bool = False, service: str = "test-service") -> bytes:
    """Encode spans like the Collector's Kafka exporter, as ``otlp_proto`` or ``otlp_json``."""
    name = KeyValue(key="service.name", value=AnyValue(string_value=service))
    data = TracesData(
        resource_spans=[
            ResourceSpans(resource=Resource(attributes=[name]), scope_spans=[ScopeSpans(spans=spans)])
        ]
    )
    if not as_json:
        return data.SerializeToString()
    document = MessageToDict(data)
    for encoded in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in encoded.keys() & {"traceId", "spanId", "parentSpanId"}:  # hexadecimal, unlike other bytes
            encoded[name] = base64.b64decode(encoded[name]).hex()
    return json.dumps(document).encode()


async def converted(run: CompleteRun) -> ConvertedRun:
    """Convert a run in this process."""
    return convert_run(run, Options())
