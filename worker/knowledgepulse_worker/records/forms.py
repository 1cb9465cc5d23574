"""Say what a value is that is not a valid trace, and what to do about it.

A few bytes tell most forms. The members of envelopes are read by the parser. Which member of another envelope
holds a trace is sought in a bounded number of steps.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from knowledgepulse_schemas.dead_letter import Form
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.wrapping import Steps, frame_length, members_of_envelope
from knowledgepulse_worker.settings.record_settings import FRAME, POINTER, TEXT

_HEAD = 4096
"""Bytes that are examined of a value that is not JSON; the largest value that may be an address."""
_MAX_EXAMINED = 2**20
"""How many bytes of an envelope are examined for the member that holds a trace."""

_WHITESPACE = b" \t\r\n"
_COMPRESSED: tuple[tuple[bytes, Form], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"\x82SNAPPY\x00", "snappy"),
)
_UTF_16 = re.compile(rb'\xff\xfe|\xfe\xff|[\[{"]\0|\0[\[{"]\0|\0\0\0[\[{"]\0\0\0')
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f\x80-\xc1\xf5-\xff]")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://\S+")
_ADDRESS_NAMES = frozenset({"url", "uri", "href", "location", "address", "link", "ref", "path"})
_DOCUMENT_IN_TEXT = re.compile(rb'[ \t\r\n]*"(?:\s|\\[trn])*+(?:[\[{]|\\")')
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}\s*")
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}\[\],]', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:")
_TYPE = b"ReasoningTrace"
_MAX_INDEXES = 16
_MAX_FIELDS = 10_000


class Found(NamedTuple):
    """A document of a trace inside a value.

    Attributes:
        steps: the steps that lead to it.
        problem: why it is not a valid trace; None if none was found.
        is_judged: whether it was validated to its end.
    """

    steps: Steps
    problem: str | None
    is_judged: bool = True


class _Named(NamedTuple):
    """A form, the words for it, and what to do if no trace was found in it."""

    form: Form
    words: str = ""
    remedy: str = ""


def refusal(
    value: bytes,
    error: InvalidRecordError,
    found: Sequence[Found],
    allowed: Sequence[str],
    beside: frozenset[str] | None = None,
) -> InvalidRecordError:
    """Return the error of a value that is not scored: what the value is, and what to do.

    Args:
        value: a record's value.
        error: why it is not a valid trace.
        found: the documents of traces inside it, one for each place.
        allowed: the steps that may lead to a trace, by ``records.unwrap``.
        beside: which members of known envelopes the outermost object has, if that was found.
    """
    if found and not found[0].steps:
        return InvalidRecordError(error.reason, str(error), "trace")
    named = _named(value, error, beside)
    if found and named.form == "json":
        named = _Named("envelope", "an envelope")
    if not named.words:
        return InvalidRecordError(error.reason, str(error), named.form)
    end = _trace_inside(found, allowed) if found else f". {named.remedy}" if named.remedy else ""
    return InvalidRecordError(error.reason, f"the value is {named.words}{end}", named.form)


def pointer_to_trace(content: bytes) -> str | None:
    """Return where an object may hold a trace: the JSON Pointer of the member with the name of its type.

    Return None if it holds none, or none in the part that is examined.
    """
    hint = content.find(_TYPE, 0, _MAX_EXAMINED)
    if hint < 0:
        return None
    names: list[str] = []
    in_object: list[bool] = []
    for token in _TOKEN.finditer(content, 0, hint + len(_TYPE)):
        mark = token[0]
        if token.end() > hint:
            way = names[:-1] if mark == b'"%s' % _TYPE else names
            pointer = "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in way)
            return pointer if POINTER.fullmatch(pointer) else None
        if mark in b"{[":
            in_object.append(mark == b"{")
            names.append("" if mark == b"{" else "0")
        elif mark in b"}]":
            del names[-1:], in_object[-1:]
        elif mark == b"," and names and not in_object[-1]:
            names[-1] = str(int(names[-1]) + 1)
        elif names and in_object[-1] and _COLON.match(content, token.end()):
            names[-1] = _name(mark)
    return None


def _name(mark: bytes) -> str:
    try:
        return msgspec.json.decode(mark, type=str)
    except DECODE_ERRORS:
        return ""  # with which nothing can be found


def _trace_inside(found: Sequence[Found], allowed: Sequence[str]) -> str:
    """Return the end of the message about a value with traces inside."""
    open_ones = [one for one in found if one.problem is None]
    if not open_ones:
        return f"; the trace {_where(found[0].steps)} is not valid: {found[0].problem}"
    valid = [one for one in open_ones if one.is_judged]
    if len(valid) > 1:
        places = " and ".join(_where(one.steps) for one in valid)
        return f"; valid traces are {places}, and none of them is scored. Publish one trace per record"
    one = [*valid, *open_ones][0]
    steps = json.dumps([*dict.fromkeys((*allowed, *one.steps))])
    kind = "valid trace" if one.is_judged else "trace too large to be checked here"
    return (
        f"; a {kind} is {_where(one.steps)}. Set records.unwrap = {steps} to have it scored, "
        "then replay it by `kp-worker dead-letters replay`"
    )


def _where(steps: Steps) -> str:
    words = {FRAME: "behind the prefix", TEXT: "in the text"}
    return " ".join(words.get(step, f"in {step}") for step in reversed(steps))


def _named(value: bytes, error: InvalidRecordError, beside: frozenset[str] | None) -> _Named:
    if start := frame_length(value):
        behind = _of_json(value[start:], beside)
        prefix = f"{_prefix(value, start)}, then {behind.words or 'JSON'}"
        return _Named("registry_json", prefix, behind.remedy)
    if _UTF_16.match(value):
        return _Named("utf_16", "UTF-16 or UTF-32", "Publish JSON in UTF-8 (RFC 8259)")
    if value.startswith(b"\xef\xbb\xbf"):
        return _Named(
            "byte_order_mark", "a text with a byte order mark", "RFC 8259 forbids the mark: leave it out"
        )
    if named := _compressed(value) or _registry(value):
        return named
    if _NO_TEXT.match(value):
        return _binary(value)
    return _of_text(value, error) if error.reason == "not_json" else _of_json(value, beside)


def _prefix(value: bytes, length: int) -> str:
    return f"a schema registry's prefix (schema id {int.from_bytes(value[1:length])})"


def _compressed(value: bytes) -> _Named | None:
    form: Form | None = next((form for magic, form in _COMPRESSED if value.startswith(magic)), None)
    if form is None and _is_zlib(value):
        form = "zlib"
    if form is None and _is_raw_snappy(value):
        form = "snappy"
    if form is None:
        return None
    setting = "gzip" if form == "zlib" else form
    return _Named(
        form,
        f"compressed with {form}",
        "Publish JSON, and have Kafka compress it: the producer's setting "
        f"compression.type={setting} does, and every consumer reads it",
    )


def _is_zlib(value: bytes) -> bool:
    if value[:1] != b"x" or int.from_bytes(value[:2]) % 31:
        return False
    try:
        return bool(zlib.decompressobj().decompress(value[:_HEAD], 16))
    except zlib.error:
        return False


def _is_raw_snappy(value: bytes) -> bool:
    """Return whether a value begins like JSON compressed with Snappy: a length, then a literal."""
    length, at = _varint(value, 0)
    tag = value[at : at + 1]
    if not tag or tag[0] & 3 or not len(value) // 2 < length < 64 * len(value):
        return False
    size = tag[0] >> 2
    text = at + 1 + max(0, size - 59)
    return value[text : text + 1] in (b"{", b"[", b'"') and size >= 1


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, and the place behind it; -1 if there is none."""
    number = 0
    for index in range(10):
        byte = value[at + index : at + index + 1]
        if not byte:
            break
        number |= (byte[0] & 0x7F) << 7 * index
        if byte[0] < 0x80:
            return number, at + index + 1
    return -1, at


def _registry(value: bytes) -> _Named | None:
    """Name a schema registry's prefix before something else than JSON."""
    if value[:1] != b"\0" or len(value) < 6 or not any(value[1:9]):
        return None
    length = 5 if any(value[1:5]) else 9
    remedy = (
        "Publish JSON: with the serializer for JSON Schema, or by way of a converter that reads the topic "
        "and writes JSON"
    )
    if _is_protobuf(value[length:]):
        return _Named("registry_protobuf", f"{_prefix(value, length)}, then Protobuf, not JSON", remedy)
    return _Named(
        "registry_avro", f"{_prefix(value, length)}, then Avro or another binary format, not JSON", remedy
    )


def _is_protobuf(body: bytes) -> bool:
    """Return whether bytes are the indexes of a message type and then all fields of a message."""
    indexes, at = _varint(body, 0)
    if not 0 <= indexes <= 2 * _MAX_INDEXES or indexes % 2:
        return False
    for _ in range(indexes // 2):
        _, at = _varint(body, at)
    for _ in range(_MAX_FIELDS):
        tag, at = _varint(body, at)
        if tag < 8:
            return False
        kind = tag & 7
        if kind == 2:
            size, at = _varint(body, at)
            at = at + size if size >= 0 else len(body) + 1
        elif kind == 0:
            number, at = _varint(body, at)
            at = at if number >= 0 else len(body) + 1
        else:
            at += {1: 8, 5: 4}.get(kind, len(body) + 1)
        if at >= len(body):
            return at == len(body)
    return False


def _binary(value: bytes) -> _Named:
    remedy = "Publish JSON in UTF-8"
    if value[0] & 0xF0 == 0x80 or value[:1] in b"\xde\xdf":  # a map
        try:
            msgspec.msgpack.decode(value, type=msgspec.Raw)
        except DECODE_ERRORS:
            pass
        else:
            return _Named("binary", "MessagePack, a binary format", remedy)
    return _Named("binary", "in a binary format", remedy)


def _of_text(value: bytes, error: InvalidRecordError) -> _Named:
    """Name a text that is not JSON."""
    if trailing := _TRAILING.search(str(error)):
        if value[int(trailing[1]) - 1 :][:1] in (b"{", b"[", b"\x1e"):
            return _Named("documents", "several JSON documents", "Publish one trace per record")
    elif len(value) <= _HEAD and _ADDRESS.fullmatch(value.decode(errors="replace").strip()):
        return _address()
    elif _is_base64(value):
        return _Named("base64", "a text in base64", "Publish the JSON itself")
    return _Named("malformed")


def _address() -> _Named:
    return _Named(
        "address", "an address and not a trace", "Publish the trace itself: the worker fetches nothing"
    )


def _is_base64(value: bytes) -> bool:
    head = value[:_HEAD]
    if not _BASE64.fullmatch(head):
        return False
    begin = b64decode(head[:16], altchars=b"-_" if re.search(rb"[-_]", head[:16]) else None)
    return begin.lstrip(_WHITESPACE)[:1] in (b"{", b"[", b'"') or begin.startswith(b"\x1f\x8b")


def _of_json(content: bytes, beside: frozenset[str] | None) -> _Named:
    """Name a JSON document; no words are needed for one that only is not a trace."""
    match content.lstrip(_WHITESPACE)[:1]:
        case b"[":
            return _Named("array", "an array", "Publish one trace per record, without the array")
        case b'"':
            return _of_string(content)
        case b"{":
            return _of_object(content, members_of_envelope(content) if beside is None else beside)
    return _Named("json")


def _of_string(content: bytes) -> _Named:
    if _DOCUMENT_IN_TEXT.match(content):
        remedy = "Publish the document itself: the producer encodes it twice"
        return _Named("text", "a JSON text that holds a document", remedy)
    if len(content) > _HEAD:
        return _Named("json")
    try:
        text = msgspec.json.decode(content, type=str)
    except DECODE_ERRORS:
        return _Named("json")
    return _address() if _ADDRESS.fullmatch(text.strip()) else _Named("json")


def _of_object(content: bytes, members: frozenset[str]) -> _Named:
    if {"specversion", "source"} <= members:
        if "data_base64" in members:
            return _Named(
                "cloudevent",
                "a CloudEvent with data_base64, which is not read",
                "Have the event carry the trace as JSON: datacontenttype application/json, and data",
            )
        return _Named("cloudevent", "a CloudEvent", "Its data should be the trace")
    if {"schema", "payload"} <= members:
        return _Named(
            "connect", "an envelope of Kafka Connect's JsonConverter", "Its payload should be the trace"
        )
    if "after" in members and members & {"before", "op"}:
        return _Named("debezium", "a change event of Debezium", "Its after.payload should be the trace")
    return _address() if len(content) <= _HEAD and _has_address(content) else _Named("json")


def _has_address(content: bytes) -> bool:
    try:
        decoded = msgspec.json.decode(content, type=dict[str, object])
    except DECODE_ERRORS:
        return False
    members = {name.casefold(): member for name, member in decoded.items()}
    return {"bucket", "key"} <= members.keys() or any(
        isinstance(member, str) and _ADDRESS.fullmatch(member)
        for name, member in members.items()
        if name in _ADDRESS_NAMES
    )
