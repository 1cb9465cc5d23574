"""Bytes to a trace, and a score into the bytes, everything else untouched."""

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

# A proper surrogate pair, a lone surrogate, or any other escape; matching the last keeps `\\ud800` (an
# escaped backslash, then letters) from looking like a surrogate.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_MAX_ERRORS_TOLD = 5


def check_readable(record: RawRecord) -> None:
    """Check that a record could be read from its batch, and its headers can be published.

    Raises:
        RejectedRecord: ``undecodable``, ``too_large`` or ``invalid_headers``.
    """
    if record.fault is not None:
        raise RejectedRecord(record.fault.reason, record.fault.message)
    for place, (name, _) in enumerate(record.headers):
        if not is_utf8(name):
            raise RejectedRecord("invalid_headers", f"the name of header {place} is not UTF-8")


def decode_trace(value: bytes | None, max_bytes: int) -> ReasoningTrace:
    """Read a raw trace.

    A lone surrogate that is escaped in a string is read as U+FFFD, which changes nothing that counts.

    Args:
        value: a record's value.
        max_bytes: the largest that is read.

    Raises:
        RejectedRecord: ``empty``, ``too_large``, ``not_json`` (RFC 8259) or ``invalid_trace``.
    """
    if not value:
        raise RejectedRecord("empty", "the record has no value")
    if len(value) > max_bytes:
        raise RejectedRecord(
            "too_large", f"the value has {len(value)} bytes, limits.trace_bytes is {max_bytes}"
        )
    text, members = _read(value)  # stricter about what is JSON than the model's parser, which reads NaN
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
        told = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'trace'}: {one['msg']}" for one in errors[:_MAX_ERRORS_TOLD]
        )
        more = f"; and {len(errors) - _MAX_ERRORS_TOLD} more" if len(errors) > _MAX_ERRORS_TOLD else ""
        raise RejectedRecord("invalid_trace", told + more) from None


def decode_members(value: bytes, members: type[Members]) -> Members:
    """Read some members of a trace, which is much faster than all of it.

    Args:
        value: bytes that :func:`decode_trace` accepted, with or without a score.
        members: a msgspec.Struct that names them.

    Raises:
        RejectedRecord: ``not_json`` or ``invalid_trace``.
    """
    text, _ = _read(value)
    try:
        return msgspec.json.decode(text, type=members)
    except msgspec.ValidationError as error:
        raise RejectedRecord("invalid_trace", str(error)) from None


def with_quality_score(value: bytes, score: float) -> bytes:
    """Return the trace's bytes with ``metadata.quality_score`` set and not one other byte changed.

    Args:
        value: bytes that :func:`decode_trace` accepted.
        score: written as the shortest decimal that reads back as the same double.
    """
    text, members = _read(value)  # of the same length, so that places in it are places in the value
    metadata = members["metadata"]
    number = msgspec.json.encode(score)
    present = msgspec.json.decode(metadata, type=_Members).get("quality_score")
    if present is not None:
        start = _place(present, text)
        return value[:start] + number + value[start + len(memoryview(present)) :]
    after_brace = _place(metadata, text) + 1
    return value[:after_brace] + b'"quality_score":' + number + b"," + value[after_brace:]


def _require_once(name: str, text: bytes, members: _Members) -> None:
    """Refuse an object that has a member twice: a consumer that takes the first would read another score.

    The parser keeps the last. So that one is renamed, and the name must then be gone.
    """
    member = members.get(name)
    if member is None:
        return
    closing_quote = text.rindex(b'"', 0, _place(member, text))
    renamed = text[:closing_quote] + b"?" + text[closing_quote:]
    if name in _members(renamed):
        raise RejectedRecord("invalid_trace", f"{name}: stands there more than once")


def _read(value: bytes) -> tuple[bytes, _Members]:
    """Return the text, lone surrogates replaced where it has any, and its members, which are views of it."""
    try:
        return value, _members(value)
    except RejectedRecord:
        text = _without_lone_surrogates(value)
        return text, _members(text)


def _members(text: bytes) -> _Members:
    try:
        return msgspec.json.decode(text, type=_Members)
    except msgspec.ValidationError as error:
        _require_json(text)  # it has read no further than to the first bracket
        raise RejectedRecord("invalid_trace", f"a trace is a JSON object: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RejectedRecord("not_json", str(error)) from None


def _require_json(text: bytes) -> None:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
        text.decode()  # the parser looks into no string that it does not return
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RejectedRecord("not_json", str(error)) from None


def _place(member: msgspec.Raw, text: bytes) -> int:
    """Return where in the text a member begins; it is a view into it, so the addresses tell."""
    return _address(memoryview(member)) - _address(memoryview(text))


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)


def _without_lone_surrogates(value: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["lone"] else match[0], value)
