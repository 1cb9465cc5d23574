"""OTLP protobuf: decode exports of spans to OTLP JSON.

Source: https://opentelemetry.io/docs/specs/otlp/#binary-protobuf-encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from knowledgepulse_convert import ConversionError
from knowledgepulse_worker.extras import extra

_RESOURCE_SPANS, _SCOPE_SPANS, _SPANS = 1, 2, 2
"""The numbers of these members in ``TracesData``, ``ResourceSpans`` and ``ScopeSpans``."""

_LENGTH = 4
"""Size of the big-endian length prefix of each export in the Collector's file exporter format."""


def read_exports(data: bytes) -> list[dict[str, Any]]:
    """Decode a single export, or several length-prefixed ones.

    Raises:
        ConversionError: the data is neither.
        MissingExtraError: the protobuf packages are not installed.
    """
    with extra("otel"):
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - JSON does not need it
    return [MessageToDict(_parse(export)) for export in list(_framed(data)) or [data]]


def split_export(data: bytes) -> Iterator[tuple[str, str, str, bytes]]:
    """Yield each span of an export: trace id, span id, parent's id, and an export with only this span.

    Ids are in hexadecimal; the parent's is empty for a root.

    Raises:
        ConversionError: the data is not an export.
        MissingExtraError: the protobuf packages are not installed.
    """
    for resource in _parse(data).resource_spans:
        beside_scopes = _without(resource, "scope_spans")
        for scope in resource.scope_spans:
            beside_spans = _without(scope, "spans")
            for span in scope.spans:
                in_scope = beside_spans + _member(_SPANS, span.SerializeToString())
                in_resource = beside_scopes + _member(_SCOPE_SPANS, in_scope)
                ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                yield *ids, _member(_RESOURCE_SPANS, in_resource)


def _without(message: Any, member: str) -> bytes:
    """Serialise a message without one of its members, once for all of its spans."""
    rest = type(message)()
    rest.CopyFrom(message)
    rest.ClearField(member)
    serialised: bytes = rest.SerializeToString()
    return serialised


def _member(number: int, message: bytes) -> bytes:
    """Return a message as a member of another: its number with the wire type LEN, its length, its content.

    Source: https://protobuf.dev/programming-guides/encoding/.
    """
    encoded = bytearray([number << 3 | 2])
    length = len(message)
    while length > 127:
        encoded.append(length & 127 | 128)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + message


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


def _parse(export: bytes) -> Any:
    with extra("otel"):
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - JSON does not need it
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # noqa: PLC0415
    try:
        return TracesData.FromString(export)
    except DecodeError as error:
        raise ConversionError(f"neither JSON nor OTLP protobuf: {error}") from error
