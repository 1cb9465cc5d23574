"""Parse parts of a JSON text, and say where they are in it."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
import numpy as np

from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.valid_traces import ESCAPED_LETTER

Members = TypeVar("Members", bound=msgspec.Struct)

MAX_DEPTH = 201
"""The trace's object and 200 levels inside it; how deep parsers can recurse depends on their caller."""

# A surrogate pair, a lone surrogate, or any other escape. The last alternative keeps `\\ud800` (an escaped
# backslash, then letters) from matching as a surrogate.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_WHITESPACE_AND_COLON = b" \t\n\r:"
_STEP = np.zeros(256, dtype=np.int8)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1
_AT_ONCE = 2**16
_NO_BRACKETS = bytes(np.flatnonzero(_STEP == 0).tolist())
(_QUOTE,) = b'"'
_NO_BRACKETS_OR_QUOTES = _NO_BRACKETS.replace(b'"', b"")


def require_json(value: bytes) -> bytes:
    """Return a document, with any lone surrogates replaced.

    Raises:
        InvalidRecordError: ``not_json``.
    """
    try:
        _check_json(value)
    except InvalidRecordError:
        if (text := _without_lone_surrogates(value)) == value:
            raise
        _check_json(text)
        return text
    return value


def _check_json(text: bytes) -> None:
    try:
        text.decode()
        msgspec.json.decode(text, type=msgspec.Raw)
    except DECODE_ERRORS as error:
        raise InvalidRecordError("not_json", str(error)) from None


def require_shallow(text: bytes, depth: int = MAX_DEPTH) -> None:
    """Require that objects and arrays are nested no deeper than parsers can recurse.

    Raises:
        InvalidRecordError: ``not_json``.
    """
    # There are too few brackets for deep nesting in most texts.
    if _opening_brackets(text) <= depth:
        return
    if _depth(text) > depth and _depth(_brackets_outside_strings(text)) > depth:
        raise InvalidRecordError("not_json", f"it is nested more than {depth} levels deep")


def _opening_brackets(text: bytes) -> int:
    codes = np.frombuffer(text, dtype=np.uint8)
    parts = (codes[start : start + _AT_ONCE] for start in range(0, len(codes), _AT_ONCE))
    return sum(int(np.count_nonzero(part & 0xDF == 0x5B)) for part in parts)  # `{` is `[` with another bit


def _depth(text: bytes) -> int:
    """Return how deep brackets are nested in the text, including brackets in strings."""
    brackets = np.frombuffer(text.translate(None, _NO_BRACKETS), dtype=np.uint8)
    return int(np.cumsum(_STEP[brackets], dtype=np.int32).max(initial=0))


def _brackets_outside_strings(text: bytes) -> bytes:
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")  # in this order: `\\"` ends a string
    structure = np.frombuffer(unescaped.translate(None, _NO_BRACKETS_OR_QUOTES), dtype=np.uint8)
    quotes = np.cumsum(structure == _QUOTE, dtype=np.uint8)  # may wrap around, which keeps it odd or even
    return bytes(structure[quotes % 2 == 0])


def accepted_members(value: bytes, members: type[Members]) -> tuple[bytes, Members]:
    """Decode members of bytes that :func:`decode_trace` accepted.

    Returns:
        the bytes with any lone surrogates replaced, which are as many, and the members.
    """
    try:
        return value, members_of(value, members)
    except InvalidRecordError:
        if (text := _without_lone_surrogates(value)) == value:
            raise
        return text, members_of(text, members)


def members_of(text: bytes | msgspec.Raw, members: type[Members]) -> Members:
    """Decode some members of an object.

    Raises:
        InvalidRecordError: ``not_json`` or ``invalid_trace``.
    """
    try:
        return msgspec.json.decode(text, type=members)
    except msgspec.ValidationError as error:
        raise InvalidRecordError("invalid_trace", schema_style(error)) from None
    except msgspec.DecodeError as error:
        raise InvalidRecordError("not_json", str(error)) from None


def address_in(member: msgspec.Raw, text: bytes) -> int:
    """Return the start of a member in the text, of which it is a view."""
    return _address(memoryview(member)) - _address(memoryview(text))


def position_of(name: bytes, member: msgspec.Raw, text: bytes) -> int:
    """Return the start of a member in the text, of which it is a view.

    Most texts have the member's name only once, which is found sooner than an address.

    Args:
        name: the member's name with its quotes.
        member: the member.
        text: the text.
    """
    if text.count(name) == 1 and not ESCAPED_LETTER.search(text):
        start = text.index(name) + len(name)
        while text[start] in _WHITESPACE_AND_COLON:
            start += 1
        return start
    return address_in(member, text)


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0])


def _without_lone_surrogates(value: bytes) -> bytes:
    if not _SURROGATE.search(value):
        return value
    text = bytearray(value)
    for match in _ESCAPE.finditer(value):
        if match["lone"]:
            text[match.start() : match.end()] = rb"\ufffd"
    return bytes(text)


def schema_style(error: msgspec.ValidationError) -> str:
    """Format an error of the outline like the schema's own: location, then problem."""
    what, _, where = str(error).partition(" - at `$")
    path = where.rstrip("`").replace("[", ".").replace("]", "").lstrip(".")
    return f"{path or 'trace'}: {what}"
