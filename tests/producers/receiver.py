"""A receiver of OTLP over HTTP, which keeps what it gets as lines of OTLP JSON."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}
PATH = r"/{prefix:(.*/)?}v1/{signal:traces|logs|metrics}"
_IDS = {"traceId", "spanId", "parentSpanId"}


class Receiver:
    """Writes each export of spans or log records to a file as it comes, one a line; metrics are dropped."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def receive(self, http: web.Request) -> web.Response:
        signal = http.match_info["signal"]
        body = await http.read()
        if signal in MESSAGES:
            export = (
                json.loads(body) if "json" in http.content_type else _from_protobuf(MESSAGES[signal], body)
            )
            with self._file.open("a") as file:
                file.write(json.dumps(export) + "\n")
        return (
            web.json_response({})
            if "json" in http.content_type
            else web.Response(content_type="application/x-protobuf")
        )


def _from_protobuf(message_type: Any, body: bytes) -> Any:
    """Return OTLP JSON, which has ids in hexadecimal digits where protobuf's JSON has base64."""
    return _with_hex_ids(MessageToDict(message_type.FromString(body)))


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_hex_ids(part) for part in value]
    if isinstance(value, dict):
        return {
            name: base64.b64decode(part).hex() if name in _IDS else _with_hex_ids(part)
            for name, part in value.items()
        }
    return value
