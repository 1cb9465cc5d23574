"""OTLP as protobuf: exports of spans as the same plain JSON that OTLP's JSON gives.

Source: https://opentelemetry.io/docs/specs/otlp/#binary-protobuf-encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.convert import ConversionError
from worker.extras import extra

_LENGTH = 4
"""Bytes of the big-endian length before each export in what the Collector's file exporter writes."""


def read_exports(data: bytes) -> list[dict[str, Any]]:
    """Return the exports in a file: one alone, or several with the length of each before it.

    Raises:
        ConversionError: it is neither.
        MissingExtraError: the packages that read protobuf are not installed.
    """
    exports = list(_framed(data)) or [data]
    return [_read(export) for export in exports]


def _framed(data: bytes) -> Iterator[bytes]:
    """Yield the exports of a file in frames; none where the lengths do not add up to it."""
    begins = []
    at = 0
    while at + _LENGTH <= len(data):
        begins.append(at + _LENGTH)
        at += _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
    if at == len(data):
        yield from (data[begin : begin + _length(data, begin)] for begin in begins)


def _length(data: bytes, begin: int) -> int:
    return int.from_bytes(data[begin - _LENGTH : begin], "big")


def _read(export: bytes) -> dict[str, Any]:
    with extra("otel"):
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - JSON needs none of it
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # noqa: PLC0415
    try:
        document: dict[str, Any] = MessageToDict(TracesData.FromString(export))
    except DecodeError as error:
        raise ConversionError(f"neither JSON nor OTLP's protobuf: {error}") from error
    return document
