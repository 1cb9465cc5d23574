"""Decode traces from bytes, and set a score in the bytes without touching anything else."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
import numpy as np
from pydantic import ValidationError

from schemas import ReasoningTrace
from worker.errors import RejectedRecord
from worker.lane.records import RawRecord, is_utf8

_Members = dict[str, msgspec.Raw]

Members = TypeVar("Members", bound=msgspec.Struct)

# A surrogate pair, a lone surrogate, or any other escape. The last alternative keeps `\\ud800` (an escaped
# backslash, then letters) from matching as a surrogate.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_MAX_ERRORS_LISTED = 5


def check_readable(record: RawRecord) -> None:
    """Check that a record could be read from its batch, and that its headers can be published.

    Raises:
        RejectedRecord: ``undecodable``, ``too_large`` or ``invalid_headers``.
    """
    if record.fault is not None:
        raise RejectedRecord(record.fault.reason, record.fault.message)
    for index, (name, _) in enumerate(record.headers):
        if not is_utf8(name):
            raise RejectedRecord("invalid_headers", f"the name of header {index} is not UTF-8")


def decode_trace(value: bytes | None, max_bytes: int) -> ReasoningTrace:
    """Decode a raw trace.

    An escaped lone surrogate is read as U+FFFD; this affects neither score nor output.

    Args:
        value: a record's value.
        max_bytes: the largest accepted size.

    Raises:
        RejectedRecord: ``empty``, ``too_large``, ``not_json`` (RFC 8259) or ``invalid_trace``.
    """
    if not value:
        raise RejectedRecord("empty", "the record has no value")
    if len(value) > max_bytes:
        raise RejectedRecord(
            "too_large", f"the value has {len(value)} bytes, limits.trace_bytes is {max_bytes}"
        )
    text, members = _read(value)  # stricter than the model's JSON parser, which accepts NaN
    trace = _validated(text)
    _require_once("metadata", text, members)
    metadata = bytes(members["metadata"])
    _require_once("quality_score", metadata, _members(metadata))
    return trace


def _validated(text: bytes) -> ReasoningTrace:
    try:
        return ReasoningTrace.model_validate_json(text)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        if errors[0]["type"] == "json_invalid":
            raise RejectedRecord("not_json", errors[0]["msg"]) from None
        listed = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'trace'}: {one['msg']}"
            for one in errors[:_MAX_ERRORS_LISTED]
        )
        more = f"; and {len(errors) - _MAX_ERRORS_LISTED} more" if len(errors) > _MAX_ERRORS_LISTED else ""
        raise RejectedRecord("invalid_trace", listed + more) from None


def decode_members(value: bytes, members: type[Members]) -> Members:
    """Decode only some members of a trace, which is much faster than decoding all.

    Args:
        value: bytes that :func:`decode_trace` accepted, with or without a score.
        members: a msgspec.Struct of the members to decode.

    Raises:
        RejectedRecord: ``not_json`` or ``invalid_trace``.
    """
    text, _ = _read(value)
    try:
        return msgspec.json.decode(text, type=members)
    except msgspec.ValidationError as error:
        raise RejectedRecord("invalid_trace", str(error)) from None


def with_quality_score(value: bytes, score: float) -> bytes:
    """Return the trace's bytes with ``metadata.quality_score`` set and no other byte changed.

    Args:
        value: bytes that :func:`decode_trace` accepted.
        score: written as the shortest decimal that reads back as the same double.
    """
    text, members = _read(value)  # same length as value, so positions agree
    metadata = members["metadata"]
    number = msgspec.json.encode(score)
    present = msgspec.json.decode(metadata, type=_Members).get("quality_score")
    if present is not None:
        start = _position(present, text)
        return value[:start] + number + value[start + len(memoryview(present)) :]
    after_brace = _position(metadata, text) + 1
    return value[:after_brace] + b'"quality_score":' + number + b"," + value[after_brace:]


def _require_once(name: str, text: bytes, members: _Members) -> None:
    """Reject an object with a duplicate member: a consumer that keeps the first would read another score.

    The parser keeps the last one. Rename it: if the name is still there, it was a duplicate.
    """
    member = members.get(name)
    if member is None:
        return
    closing_quote = text.rindex(b'"', 0, _position(member, text))
    renamed = text[:closing_quote] + b"?" + text[closing_quote:]
    if name in _members(renamed):
        raise RejectedRecord("invalid_trace", f"{name}: appears more than once")


def _read(value: bytes) -> tuple[bytes, _Members]:
    """Return the text, with any lone surrogates replaced, and its members as views of it."""
    try:
        return value, _members(value)
    except RejectedRecord:
        text = _without_lone_surrogates(value)
        return text, _members(text)


def _members(text: bytes) -> _Members:
    try:
        return msgspec.json.decode(text, type=_Members)
    except msgspec.ValidationError as error:
        _require_json(text)  # the decoder has stopped at the first bracket
        raise RejectedRecord("invalid_trace", f"a trace is a JSON object: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RejectedRecord("not_json", str(error)) from None


def _require_json(text: bytes) -> None:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
        text.decode()  # the parser does not validate strings inside a Raw
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RejectedRecord("not_json", str(error)) from None


def _position(member: msgspec.Raw, text: bytes) -> int:
    """Return a member's start in the text, of which it is a view."""
    return _address(memoryview(member)) - _address(memoryview(text))


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)


def _without_lone_surrogates(value: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["lone"] else match[0], value)
