"""Split the Collector's exports into spans, and join the spans of a run.

The messages of a span may be in log records, which are split and joined as spans are.

Source: https://opentelemetry.io/docs/specs/otlp/, the Collector's ``otlp_json`` and ``otlp_proto`` encodings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from knowledgepulse_convert import ConversionError
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.tools.convert.protobuf import read_exports, split_export

_OPEN, _OPEN_LOGS, _CLOSE = b'{"resourceSpans":[', b'{"resourceLogs":[', b"]}"
_TRACE_ID = re.compile("(?!0+$)[0-9a-f]{32}")
_SPAN_ID = re.compile("(?!0{16})[0-9a-f]{16}(?:/[0-9a-f]+)?")
_NOTHING = msgspec.Raw(b"null")


class SpanExport(NamedTuple):
    """An export with a single span, or a single log record of one.

    Attributes:
        trace_id: in lower-case hexadecimal.
        span_id: in lower-case hexadecimal; that of a log record has a hash of the record behind it.
        is_root: whether the span has no parent.
        value: the export, in the encoding in which it arrived.
    """

    trace_id: str
    span_id: str
    is_root: bool
    value: bytes


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    parent_span_id: str | None = None


class _LogRecord(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""


class _Scope(msgspec.Struct, rename="camel", omit_defaults=True):
    scope: msgspec.Raw = _NOTHING
    spans: list[msgspec.Raw] = []
    log_records: list[msgspec.Raw] = []
    schema_url: msgspec.Raw = _NOTHING


class _Resource(msgspec.Struct, rename="camel", omit_defaults=True):
    resource: msgspec.Raw = _NOTHING
    scope_spans: list[_Scope] = []
    scope_logs: list[_Scope] = []
    schema_url: msgspec.Raw = _NOTHING


class _Export(msgspec.Struct, rename="camel"):
    resource_spans: list[_Resource] | msgspec.UnsetType = msgspec.UNSET
    resource_logs: list[_Resource] | msgspec.UnsetType = msgspec.UNSET


_export = msgspec.json.Decoder(_Export).decode
_span = msgspec.json.Decoder(_Span).decode
_log_record = msgspec.json.Decoder(_LogRecord).decode


def split(value: bytes, max_bytes: int | None = None) -> list[SpanExport]:
    """Return the spans of an export, in JSON or protobuf, or the log records of spans of one in JSON.

    ``max_bytes``: the total size that the spans may have, each with its own copy of the resource.

    Raises:
        ConversionError: the value is neither, or a span's ids are invalid.
        InvalidRecordError: the spans are larger than ``max_bytes``.
        MissingExtraError: the protobuf packages are not installed.
    """
    try:
        return _bounded(_split(value), max_bytes)
    except DECODE_ERRORS as error:
        raise ConversionError(f"not OTLP JSON: {error}") from None


def _bounded(exports: Iterable[SpanExport], max_bytes: int | None) -> list[SpanExport]:
    """Return spans with valid ids, up to a size."""
    spans: list[SpanExport] = []
    size = 0
    for span in exports:
        if not (_TRACE_ID.fullmatch(span.trace_id) and _SPAN_ID.fullmatch(span.span_id)):
            raise ConversionError("a span's trace id or span id is not 16 or 8 bytes in hexadecimal, or zero")
        size += len(span.value)
        if max_bytes is not None and size > max_bytes:
            raise InvalidRecordError(
                "too_large",
                f"its spans, each with its resource, exceed assemble.open_bytes = {max_bytes}; export "
                "smaller batches, or fewer resource attributes",
            )
        spans.append(span)
    return spans


def join(values: Iterable[bytes]) -> list[bytes]:
    """Join exports from :func:`split` into one of each kind; nearly always, there is only one."""
    in_json: dict[bytes, list[bytes]] = {_OPEN: [], _OPEN_LOGS: []}
    in_protobuf = []
    for value in values:
        if _is_split_json(value):
            opening = next(opening for opening in in_json if value.startswith(opening))
            in_json[opening].append(value[len(opening) : -len(_CLOSE)])
        else:
            in_protobuf.append(value)
    joined = [opening + b",".join(parts) + _CLOSE for opening, parts in in_json.items() if parts]
    # Concatenated messages are one message with all of their repeated fields.
    return joined + ([b"".join(in_protobuf)] if in_protobuf else [])


def read(value: bytes) -> list[Any]:
    """Parse an export that :func:`split` accepted, for :func:`knowledgepulse_convert.convert`."""
    return [json.loads(value)] if _is_split_json(value) else read_exports(value)


def _is_split_json(value: bytes) -> bool:
    """Check for JSON from :func:`split`, which begins without white space."""
    return value.startswith(b"{")


def _split(value: bytes) -> Iterator[SpanExport]:
    if not value.lstrip().startswith(b"{"):
        return _split_protobuf(value)
    try:
        value.decode()  # the parser skips text that it does not need
        return _split_json(_export(value))
    except DECODE_ERRORS:
        # A newline is also how protobuf begins, and "{" a resource of 123 bytes.
        if value.startswith(b"\n"):
            return _split_protobuf(value)
        raise


def _split_protobuf(value: bytes) -> Iterator[SpanExport]:
    for trace_id, span_id, parent_id, spans in split_export(value):
        yield SpanExport(trace_id, span_id, _is_no_id(parent_id), spans)


def _split_json(export: _Export) -> Iterator[SpanExport]:
    if export.resource_spans is msgspec.UNSET and export.resource_logs is msgspec.UNSET:
        raise msgspec.ValidationError("Object missing required field `resourceSpans`")
    for resource in export.resource_spans or ():
        for scope in resource.scope_spans:
            for text in scope.spans:
                span = _span(text)
                alone = replace(resource, scope_spans=[replace(scope, spans=[text])])
                value = msgspec.json.encode(_Export([alone]))
                is_root = _is_no_id(span.parent_span_id or "")
                yield SpanExport(span.trace_id.lower(), span.span_id.lower(), is_root, value)
    for resource in export.resource_logs or ():
        for scope in resource.scope_logs:
            for text in scope.log_records:
                record = _log_record(text)
                if not (record.trace_id and record.span_id):
                    continue  # it belongs to no run
                alone = replace(resource, scope_logs=[replace(scope, log_records=[text])])
                value = msgspec.json.encode(_Export(resource_logs=[alone]))
                identity = f"{record.span_id.lower()}/{sha256(value).hexdigest()[:16]}"
                yield SpanExport(record.trace_id.lower(), identity, is_root=False, value=value)


def _is_no_id(parent_id: str) -> bool:
    """Check for a missing parent, which some exporters write as zeros."""
    return not parent_id.strip("0")
