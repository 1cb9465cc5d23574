"""Find the documents inside a record's value that wraps them, and edit one where it is.

Three steps lead from a value to a document inside it. They may be chained:

- ``frame``: a schema registry's prefix before JSON, of 5 or 9 bytes;
- a JSON Pointer (RFC 6901), such as ``/data`` or ``/after/payload``: a member of an object;
- ``text``: a JSON string that holds a document.

A member is found by the parser, never by its bytes, which may also be in a text or in another object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from knowledgepulse_schemas.dead_letter import Form
from knowledgepulse_schemas.trace import CONTEXTS
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.json_text import (
    MAX_DEPTH,
    accepted_members,
    address_in,
    members_of,
    require_shallow,
)
from knowledgepulse_worker.records.scanned_traces import is_trace
from knowledgepulse_worker.records.valid_traces import Range
from knowledgepulse_worker.settings.record_settings import FRAME, POINTER, TEXT

Steps: TypeAlias = tuple[str, ...]

MEMBERS = ("/data", "/payload", "/after/payload")
"""The members in which known envelopes hold a document: CloudEvents', Kafka Connect's and Debezium's."""

ENVELOPES = ("specversion", "source", "data_base64", "schema", "payload", "before", "after", "op")
"""Members by which known envelopes are named."""

MAX_STEPS = 3
MAX_NAMES = 4
"""Maximum names in a pointer."""
MAX_WRAPPED_DEPTH = MAX_DEPTH + MAX_STEPS * MAX_NAMES
"""How deep a value is nested at most, with as many levels around its trace as steps may lead through."""

_TYPE = "ReasoningTrace"
_MARKS = ("@context", "@type")
_WHITESPACE = b" \t\n\r"
_BEGINNING = re.compile(rb'\s*\{\s*"@(?:context|type)"')
_QUOTE = re.compile(rb'[ \t\n\r]*"')
_JSON = b'{"'
"""The bytes with which JSON behind a frame begins."""

_MISSING = msgspec.Raw()
_HEAD = 512
_MAX_CHECKED = 2**20
"""Bytes of a document that is unescaped and checked to be named; the beginning of a larger one tells."""

_MAX_MARK = 4096
"""Bytes of ``@context`` or ``@type`` that are decoded; longer ones are searched."""

_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_PART = rb'(?:[^"\\]++|%s|\\u[0-9a-fA-F]{4}|\\.)' % _PAIR
_PARTS = re.compile(rb"%s{1,4096}+" % _PART)
_ONE_PART = re.compile(_PART)


class ValueRead(msgspec.Struct, frozen=True, gc=False):
    """What reading a record's value found.

    Attributes:
        score_place: where the trace has its score; empty, where it may be inserted, if it has none; None if
            it takes a parser to find.
        form: what a value is that holds no trace to be scored; None if it was not examined.
        steps: the steps that lead to the trace; none if it is the value.
    """

    score_place: Range | None = None
    form: Form | None = None
    steps: Steps = ()


UNREAD = ValueRead()
"""Nothing is known of how a value is read."""


class Wrapping(NamedTuple):
    """How an output's trace was read, and what the output holds.

    Attributes:
        output: ``same`` if it is wrapped as the raw record was, ``bare`` if it is the trace alone.
        steps: the steps that led to the trace in the raw record; at least one.
    """

    output: Literal["same", "bare"]
    steps: Steps

    @property
    def around(self) -> Steps:
        """The steps that lead to the trace in the output."""
        return self.steps if self.output == "same" else ()

    def header(self) -> bytes:
        """Return the value of ``kp-wrapping``."""
        return " ".join((self.output, *self.steps)).encode()


def read_wrapping(header: bytes | None) -> Wrapping | None:
    """Return what the value of ``kp-wrapping`` says; None if no worker can have written it."""
    output, *steps = (header or b"").decode("utf-8", "replace").split(" ")
    if output not in ("same", "bare") or not is_way(steps):
        return None
    return Wrapping("same" if output == "same" else "bare", tuple(steps))


def is_way(steps: Sequence[str]) -> bool:
    """Return whether these can be the steps that lead to a trace."""
    return 1 <= len(steps) <= MAX_STEPS and all(
        step in (FRAME, TEXT) or POINTER.fullmatch(step) for step in steps
    )


def trace_in(value: bytes, steps: Steps) -> bytes:
    """Return the document to which steps lead in a value.

    Raises:
        InvalidRecordError: ``invalid_trace``, a step leads nowhere.
    """
    return layers_of(value, steps)[-1].content if steps else value


class _Place(NamedTuple):
    start: int
    end: int


class Edit(NamedTuple):
    """A change of a document: the bytes in a range of it are replaced."""

    start: int
    end: int
    new: bytes

    def of(self, document: bytes) -> bytes:
        """Return the changed document."""
        return document[: self.start] + self.new + document[self.end :]


class Layer(NamedTuple):
    """A document inside another one.

    Attributes:
        step: the step that leads to it.
        start: where it begins in the outer document; a text, where its first character is.
        outer: the outer document.
        content: the document; that of a text is unescaped.
    """

    step: str
    start: int
    outer: bytes
    content: bytes

    def outward(self, edit: Edit) -> Edit:
        """Return the change of the outer document that makes a change of this one."""
        if self.step != TEXT:
            return Edit(self.start + edit.start, self.start + edit.end, edit.new)
        return Edit(
            _escaped_place(self.outer, self.start, edit.start),
            _escaped_place(self.outer, self.start, edit.end),
            msgspec.json.encode(edit.new.decode())[1:-1],
        )


def layers_of(value: bytes, steps: Steps) -> list[Layer]:
    """Return the documents to which steps lead, the innermost last.

    Raises:
        InvalidRecordError: ``invalid_trace``, a step leads nowhere.
    """
    layers: list[Layer] = []
    for step in steps:
        layer = _inside(layers[-1].content if layers else value, step)
        if layer is None:
            raise InvalidRecordError("invalid_trace", f"{step}: leads nowhere")
        layers.append(layer)
    return layers


class Document(NamedTuple):
    """A document with a trace's ``@context`` or ``@type``, valid or not.

    Attributes:
        steps: the steps that lead to it; none if it is the value.
        content: its bytes; None for a large text, of which only the beginning was read.
        beside: which of some members the object has in which it was sought first.
        is_valid: whether it is known to be a valid trace; it may also be one if this is not known.
    """

    steps: Steps
    content: bytes | None
    beside: frozenset[str] = frozenset()
    is_valid: bool = False


def documents(value: bytes, pointers: Sequence[str] = ()) -> Iterator[Document]:
    """Yield the documents of traces in a value; each place once for each way that leads to it.

    Nothing is sought inside a document of a trace.

    Args:
        value: a record's value that is not a valid trace, and that :func:`is_parsable`.
        pointers: members in which documents are sought, before the known ones.
    """
    sought = tuple(dict.fromkeys((*pointers, *MEMBERS)))
    names = (*_MARKS, *dict.fromkeys(_names(pointer)[0] for pointer in sought))
    more = tuple(name for name in ENVELOPES if name not in names)
    outermost: _Members = {}
    waiting: list[tuple[Steps, bytes, _Place]] = [((), value, _Place(0, len(value)))]
    while waiting:
        taken, outer, place = waiting.pop()
        has_more = len(taken) < MAX_STEPS
        if _QUOTE.match(outer, place.start):  # a text, of which no copy is needed
            if has_more and _is_told_in_text(outer, place):
                yield Document((*taken, TEXT), None, frozenset(outermost))
            elif has_more and (text := _text(outer, place)) is not None:
                waiting.append(((*taken, TEXT), text, _Place(0, len(text))))
            continue
        content = outer[place.start : place.end]
        if taken and _is_told(content):
            yield Document(taken, content, frozenset(outermost), is_valid=len(content) <= _MAX_CHECKED)
        elif taken[-1:] == (TEXT,) and not is_parsable(content, MAX_WRAPPED_DEPTH):
            continue
        elif has_more and (start := frame_length(content)):
            waiting.append(((*taken, FRAME), content, _Place(start, len(content))))
        elif _is_document(content, members := _members(content, names, more)):
            yield Document(taken, content, frozenset(outermost))
        elif has_more:
            outermost = outermost or members
            found = [(pointer, _member(content, members, _names(pointer))) for pointer in reversed(sought)]
            waiting += [((*taken, pointer), content, place) for pointer, place in found if place is not None]


def is_parsable(value: bytes, depth: int = MAX_DEPTH) -> bool:
    """Return whether a parser, which does not validate all texts, can recurse into a value or its JSON."""
    content = value[frame_length(value) :]
    try:
        content.decode()
        require_shallow(content, depth)
    except (UnicodeDecodeError, InvalidRecordError):
        return False
    return True


def begins_like_a_trace(content: bytes) -> bool:
    """Return whether a document begins like nearly all traces, with ``@context`` or ``@type``."""
    return _BEGINNING.match(content) is not None


def _is_told(content: bytes) -> bool:
    """Return whether a scan tells that a document is a trace or, if it is large, its beginning does."""
    if len(content) > _MAX_CHECKED:
        return _names_a_trace(content[:_HEAD])
    return begins_like_a_trace(content) and is_trace(content)


def _is_told_in_text(outer: bytes, place: _Place) -> bool:
    """Return whether a text in a document is large, and its beginning tells that it is a trace."""
    if place.end - place.start <= _MAX_CHECKED:
        return False
    end = outer.rfind(b'\\"', place.start, place.start + _HEAD)  # an escape before a quote is whole
    head = outer[place.start : end] + b'"'
    beginning = _text(head, _Place(0, len(head))) if end > 0 else None
    return beginning is not None and _names_a_trace(beginning)


def _names_a_trace(beginning: bytes) -> bool:
    return begins_like_a_trace(beginning) and any(name.encode() in beginning for name in CONTEXTS)


def members_of_envelope(content: bytes) -> frozenset[str]:
    """Return which members of known envelopes an object has."""
    return frozenset(_members(content, (), ENVELOPES))


def place_of(steps: Steps) -> Steps:
    """Return the single steps of a way; two ways to one place have the same ones."""
    return tuple(
        single
        for step in steps
        for single in ([f"/{name}" for name in step[1:].split("/")] if step.startswith("/") else [step])
    )


def _is_document(content: bytes, members: _Members) -> bool:
    """Return whether a document has a trace's ``@context`` or ``@type``, valid or not."""
    return any(
        place is None or _names_ours(content[place.start : place.end])
        for name, place in members.items()
        if name in _MARKS
    )


def _names_ours(member: bytes) -> bool:
    """Return whether ``@context`` or ``@type`` has our name, alone or among others."""
    if len(member) > _MAX_MARK:
        return any(name.encode() in member for name in (_TYPE, *CONTEXTS))
    try:
        named = msgspec.json.decode(member)
    except DECODE_ERRORS:
        return False
    return any(name in (_TYPE, *CONTEXTS) for name in (named if isinstance(named, list) else [named]))


def _inside(content: bytes, step: str) -> Layer | None:
    """Return the document inside another one, if a step leads there."""
    if step == FRAME:
        start = frame_length(content)
        return Layer(FRAME, start, content, content[start:]) if start else None
    if step == TEXT:
        quote = _QUOTE.match(content)
        text = _text(content, _Place(0, len(content))) if quote else None
        if quote is None or text is None or not is_parsable(text, MAX_WRAPPED_DEPTH):
            return None
        return Layer(TEXT, quote.end(), content, text)
    names = _names(step)
    place = _member(content, _members(content, names[:1]), names)
    return None if place is None else Layer(step, place.start, content, content[place.start : place.end])


def _names(pointer: str) -> tuple[str, ...]:
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in pointer[1:].split("/"))


def frame_length(value: bytes) -> int:
    """Return the length of a schema registry's prefix before JSON; 0 if there is none.

    Five bytes are a zero and the schema's id. Nine are Apicurio's, whose id has eight bytes: here its first
    four must be zero and the others not, since in Avro and in Protobuf with a prefix of five bytes, a length
    and a tag may stand before a text that begins with a brace.
    """
    if value[:1] != b"\0":
        return 0
    if value[5:6] and value[5] in _JSON:
        return 5
    return 9 if value[9:10] and value[9] in _JSON and not any(value[1:5]) and any(value[5:9]) else 0


def _text(outer: bytes, place: _Place) -> bytes | None:
    """Return what a JSON text in a document holds; None if it is malformed."""
    try:
        return msgspec.json.decode(memoryview(outer)[place.start : place.end], type=str).encode()
    except DECODE_ERRORS:
        return None


_Members: TypeAlias = dict[str, _Place | None]
"""Where an object has some members; None for one that it has several times."""


def _member(content: bytes, members: _Members, names: tuple[str, ...]) -> _Place | None:
    """Return where names lead in an object, of whose members those of the first names are known."""
    place = members.get(names[0])
    if place is None or len(names) == 1:
        return place
    inner = content[place.start : place.end]
    within = _member(inner, _members(inner, names[1:2]), names[1:])
    return None if within is None else _Place(place.start + within.start, place.start + within.end)


def _members(content: bytes, names: tuple[str, ...], more: tuple[str, ...] = ()) -> _Members:
    """Return where an object has members with these names; nothing for what is not an object.

    The parser keeps the last of several members with the same name. If a name remains after this member is
    renamed, there is another.

    Args:
        content: a document.
        names: members that an object must not have twice.
        more: members that it may have twice.
    """
    if content.lstrip(_WHITESPACE)[:1] != b"{":
        return {}
    try:
        outline = _outline((*names, *more))
        text, parsed = accepted_members(content, outline)
        members: _Members = {
            name: _Place(start := address_in(member, text), start + len(memoryview(member)))
            for name, member in zip((*names, *more), msgspec.structs.astuple(parsed), strict=True)
            if member != _MISSING
        }
        once = {name: place for name, place in members.items() if name in names}
        if _may_appear_again(text, once):
            again = members_of(_renamed(text, once), outline)
            for name, member in zip(names, msgspec.structs.astuple(again), strict=False):
                if member != _MISSING:
                    members[name] = None
    except InvalidRecordError:
        return {}
    return members


def _may_appear_again(text: bytes, members: _Members) -> bool:
    """Return whether an object may have one of its members twice; the one that is known is the last."""
    return any(
        text.count(b'"%s"' % name.encode(), 0, place.start) > 1 or text.find(b"\\", 0, place.start) >= 0
        for name, place in members.items()
        if place is not None
    )


def _renamed(text: bytes, members: _Members) -> bytes:
    """Return an object whose members have other names."""
    parts, end = [], 0
    for place in sorted(place for place in members.values() if place is not None):
        closing_quote = text.rindex(b'"', 0, place.start)
        parts += [text[end:closing_quote], b"?"]
        end = closing_quote
    return b"".join((*parts, text[end:]))


@lru_cache(maxsize=64)
def _outline(names: tuple[str, ...]) -> Any:
    """Return a type that reads only some members of an object."""
    fields = [(f"member_{index}", msgspec.Raw, _MISSING) for index in range(len(names))]
    return msgspec.defstruct(
        "Outline", fields, rename={field: name for (field, *_), name in zip(fields, names, strict=True)}
    )


def _escaped_place(outer: bytes, begin: int, place: int) -> int:
    """Return where a place in an unescaped text is in its string.

    Args:
        outer: the document with the string.
        begin: where the string's first character is.
        place: the place in the text, in bytes.
    """
    at = begin
    for find in (_PARTS.match, _ONE_PART.match):
        while place and (part := find(outer, at)) and (size := _unescaped_size(part[0])) <= place:
            at, place = part.end(), place - size
    return at + place


def _unescaped_size(part: bytes) -> int:
    return len(msgspec.json.decode(b'"%s"' % part, type=str).encode())
