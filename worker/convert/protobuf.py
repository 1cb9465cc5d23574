"""OTLP protobuf: decode exports of spans to OTLP JSON.

Source: https://opentelemetry.io/docs/specs/otlp/#binary-protobuf-encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.convert import ConversionError
from worker.extras import extra

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


def _framed(data: bytes) -> Iterator[bytes]:
    """Yield length-prefixed exports; nothing if the lengths do not add up to the size of the data."""
    frames = []
    position = 0
    while position + _LENGTH <= len(data):
        start = position + _LENGTH
        position = start + int.from_bytes(data[position:start], "big")
        frames.append(data[start:position])
    if position == len(data):
        yield from frames


def _read(export: bytes) -> dict[str, Any]:
    with extra("otel"):
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - JSON does not need it
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # noqa: PLC0415
    try:
        document: dict[str, Any] = MessageToDict(TracesData.FromString(export))
    except DecodeError as error:
        raise ConversionError(f"neither JSON nor OTLP protobuf: {error}") from error
    return document
