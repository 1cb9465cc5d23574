"""OTLP protobuf: decode exports of spans to OTLP JSON.

Source: https://opentelemetry.io/docs/specs/otlp/#binary-protobuf-encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from knowledgepulse_schemas.convert import ConversionError
from knowledgepulse_worker.extras import extra

_LENGTH = 4
"""Size of the big-endian length prefix of each export in the Collector's file exporter format."""


def read_exports(data: bytes) -> list[dict[str, Any]]:
    """Decode a single export, or several length-prefixed ones.

    Raises:
        ConversionError: the data is neither.
        MissingExtraError: the protobuf packages are not installed.
    """
    exports = list(_framed(data)) or [data]
    return [_read(export) for export in exports]


def split_export(data: bytes) -> Iterator[tuple[str, str, str, bytes]]:
    """Yield each span of an export: trace id, span id, parent's id, and an export with only this span.

    Ids are in hexadecimal; the parent's is empty for a root.

    Raises:
        ConversionError: the data is not an export.
        MissingExtraError: the protobuf packages are not installed.
    """
    with extra("otel"):
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # noqa: PLC0415 - JSON does not need it
    for resource in _parse(data).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                alone = TracesData()
                with_resource = alone.resource_spans.add(schema_url=resource.schema_url)
                if resource.HasField("resource"):
                    with_resource.resource.CopyFrom(resource.resource)
                with_scope = with_resource.scope_spans.add(schema_url=scope.schema_url)
                if scope.HasField("scope"):
                    with_scope.scope.CopyFrom(scope.scope)
                with_scope.spans.append(span)
                ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                yield *ids, alone.SerializeToString()


def _framed(data: bytes) -> Iterator[bytes]:
    """Yield length-prefixed exports; nothing if the lengths do not add up to the size of the data.

    No export is empty, or zeros would be millions of them.
    """
    starts = []
    position = 0
    while position + _LENGTH <= len(data):
        start = position + _LENGTH
        starts.append(start)
        position = start + int.from_bytes(data[position:start], "big")
        if position == start:
            return
    if position == len(data):
        for start, stop in pairwise([*starts, len(data) + _LENGTH]):
            yield data[start : stop - _LENGTH]


def _read(export: bytes) -> dict[str, Any]:
    with extra("otel"):
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - JSON does not need it
    document: dict[str, Any] = MessageToDict(_parse(export))
    return document


def _parse(export: bytes) -> Any:
    with extra("otel"):
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - JSON does not need it
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # noqa: PLC0415
    try:
        return TracesData.FromString(export)
    except DecodeError as error:
        raise ConversionError(f"neither JSON nor OTLP protobuf: {error}") from error
