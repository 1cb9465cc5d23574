"""Split the Collector's exports into spans, and join the spans of a run.

Source: https://opentelemetry.io/docs/specs/otlp/, the Collector's ``otlp_json`` and ``otlp_proto`` encodings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from schemas.convert import ConversionError
from worker.convert.protobuf import read_exports, split_export

_OPEN, _CLOSE = b'{"resourceSpans":[', b"]}"
_TRACE_ID, _SPAN_ID = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{16}")
_NOTHING = msgspec.Raw(b"null")


class SpanExport(NamedTuple):
    """A span, as an export of its own.

    Attributes:
        trace_id: its trace's id, in lower-case hexadecimal.
        span_id: its own id, likewise.
        is_root: whether it has no parent.
        value: the export, in the encoding that it came in.
    """

    trace_id: str
    span_id: str
    is_root: bool
    value: bytes


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    parent_span_id: str | None = None


class _ScopeSpans(msgspec.Struct, rename="camel"):
    scope: msgspec.Raw = _NOTHING
    spans: list[msgspec.Raw] = []
    schema_url: msgspec.Raw = _NOTHING


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: msgspec.Raw = _NOTHING
    scope_spans: list[_ScopeSpans] = []
    schema_url: msgspec.Raw = _NOTHING


class _Export(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


_export = msgspec.json.Decoder(_Export).decode
_span = msgspec.json.Decoder(_Span).decode


def split(value: bytes) -> list[SpanExport]:
    """Return the spans of an export, in JSON or protobuf.

    Raises:
        ConversionError: the value is neither, or a span's ids are invalid.
        MissingExtraError: the protobuf packages are not installed.
    """
    if _is_json(value):
        try:
            spans = list(_split_json(value))
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConversionError(f"not OTLP JSON: {error}") from None
    else:
        spans = [
            SpanExport(trace_id, span_id, not parent_id, one)
            for trace_id, span_id, parent_id, one in split_export(value)
        ]
    if not all(_TRACE_ID.fullmatch(span.trace_id) and _SPAN_ID.fullmatch(span.span_id) for span in spans):
        raise ConversionError("a span's trace id or span id is not 16 or 8 bytes in hexadecimal")
    return spans


def join(values: Iterable[bytes]) -> list[bytes]:
    """Join exports from :func:`split` into one for each encoding, which is nearly always a single one."""
    in_json, in_protobuf = [], []
    for value in values:
        if _is_json(value):
            in_json.append(value[len(_OPEN) : -len(_CLOSE)])
        else:
            in_protobuf.append(value)
    joined = [_OPEN + b",".join(in_json) + _CLOSE] if in_json else []
    # Concatenated messages are one message with all of their repeated fields.
    return joined + ([b"".join(in_protobuf)] if in_protobuf else [])


def read(value: bytes) -> list[Any]:
    """Parse an export that :func:`split` accepted, for :func:`schemas.convert.convert`."""
    return [json.loads(value)] if _is_json(value) else read_exports(value)


def _is_json(value: bytes) -> bool:
    return value.lstrip().startswith(b"{")


def _split_json(value: bytes) -> Iterator[SpanExport]:
    for resource in _export(value).resource_spans:
        for scope in resource.scope_spans:
            for text in scope.spans:
                span = _span(text)
                alone = {
                    "resource": resource.resource,
                    "scopeSpans": [{"scope": scope.scope, "spans": [text], "schemaUrl": scope.schema_url}],
                    "schemaUrl": resource.schema_url,
                }
                yield SpanExport(
                    span.trace_id.lower(),
                    span.span_id.lower(),
                    not span.parent_span_id,
                    _OPEN + msgspec.json.encode(_without_nothing(alone)) + _CLOSE,
                )


def _without_nothing(value: Any) -> Any:
    """Leave out the members that the export does not have."""
    if isinstance(value, dict):
        return {name: _without_nothing(one) for name, one in value.items() if one is not _NOTHING}
    return [_without_nothing(one) for one in value] if isinstance(value, list) else value
