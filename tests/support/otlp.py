"""OTLP logs and spans, parsed with OpenTelemetry's own types."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData


def logs_of(value: bytes) -> list[tuple[Any, Any, Any]]:
    """Return the resource, the scope and the log record of each log record in an export in OTLP JSON."""
    document = json.loads(value)
    for resource in document["resourceLogs"]:
        for scope in resource["scopeLogs"]:
            for record in scope["logRecords"]:
                _encode_ids(record)
    return logs_in(ParseDict(document, LogsData()))


def spans_of(value: bytes) -> list[tuple[Any, Any, Any]]:
    """Return the resource, the scope and the span of each span in an export in OTLP JSON."""
    document = json.loads(value)
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                _encode_ids(span)
    return spans_in(ParseDict(document, TracesData()))


def spans_in(data: TracesData) -> list[tuple[Any, Any, Any]]:
    """Return the resource, the scope and the span of each span in parsed spans."""
    return [
        (resource.resource, scope.scope, span)
        for resource in data.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _encode_ids(member: dict[str, Any]) -> None:
    """Encode ids in base64, the one difference between OTLP JSON and protobuf's JSON mapping."""
    for name in {"traceId", "spanId", "parentSpanId"} & member.keys():
        member[name] = base64.b64encode(bytes.fromhex(member[name])).decode()


def logs_in(data: LogsData) -> list[tuple[Any, Any, Any]]:
    """Return the resource, the scope and the log record of each log record in parsed logs."""
    return [
        (resource.resource, scope.scope, record)
        for resource in data.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def attributes_of(message: Any) -> dict[str, Any]:
    """Return the attributes of a log record or a resource by name."""
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in message.attributes
    }
