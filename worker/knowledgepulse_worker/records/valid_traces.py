"""Decode a valid trace in one pass.

Nearly all traces are valid, and msgspec checks most of what the schema demands while it parses, in a fifth of
the time that the schema takes after it. What it does not accept is left to :mod:`.decode`, which decides, and
explains a refusal. So this may accept only what the schema accepts, with the same values; each doubt is None.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeAlias, Union, cast, get_args, get_origin

import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.trace import Ending, Metadata, check_date_time, ending_of, is_judged
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS

METADATA = b'"metadata"'
QUALITY_SCORE = b'"quality_score"'
ENDING = "ending"
"""The member of any type that is read."""
ESCAPED_LETTER = re.compile(rb"\\u00(?:[67]|5[fF])")
"""Finds an escaped letter or underscore, with which a name can be written otherwise."""

_BRACE, _NULL, _BACKSLASH, _QUOTE = b'{n\\"'
_DELETE = b"\x7f"
_MARK = b'"%s":0,' % _DELETE
"""A member that no trace has. The parser keeps the last of several members with the same name, so if it finds
the mark in the first ``metadata`` of the text, there is no other."""
_BRACKET = re.compile(rb"[\[\]{}]")
_BRACE_BEHIND_COLON = re.compile(rb"[ \t\n\r]*:[ \t\n\r]*\{")
_NUMBER_BEHIND_COLON = re.compile(rb"[ \t\n\r]*:[ \t\n\r]*([-+.0-9a-zA-Z]+)")


_LONGEST = 64
"""More bytes than a text of those that are read takes, even if each of its letters is escaped."""

Range: TypeAlias = tuple[int, int]
"""A part of a record's value: its start and its end."""


class ValidTrace(NamedTuple):
    """A trace, as the schema reads it.

    Attributes:
        trace: the members that the schema names, with the attributes of the models, without the knowledge
            graph. The inputs of steps are views of a copy of the value.
        score_place: where the value has the score; empty, where it may be inserted, if it has none; None if
            it takes a parser to find.
    """

    trace: ReasoningTrace
    score_place: Range | None


def valid_trace(value: bytes) -> ValidTrace | None:
    """Return the trace that a record's value holds, or None if that takes a closer look.

    Args:
        value: a record's value, in which objects and arrays are nested no deeper than parsers can recurse.
    """
    found = value.find(METADATA)
    brace = _BRACE_BEHIND_COLON.match(value, found + len(METADATA))
    if found < 0 or brace is None or _DELETE in value or ESCAPED_LETTER.search(value, 0, found):
        return None
    begin = brace.end()
    try:
        if not value.isascii():
            value.decode()  # the parser does not validate the strings that it skips
        trace = _decode(value[:begin] + _MARK + value[begin:])
        marked, metadata = bytes(trace.metadata), _decode_metadata(trace.metadata)
        check_date_time(metadata.created_at)
    except (*DECODE_ERRORS, ValueError):
        return None
    members = marked[1 + len(_MARK) :]
    if marked.find(_MARK) != 1 or members.count(QUALITY_SCORE) > 1 or ESCAPED_LETTER.search(members):
        return None
    for step in trace.steps:
        if step.input is None:
            continue
        first = memoryview(step.input)[0]
        if first == _NULL:
            step.input = None
        elif first != _BRACE:
            return None
    metadata.ending = read_ending(metadata.ending)
    trace.metadata, trace.knowledge_graph_delta = metadata, None
    return ValidTrace(cast("ReasoningTrace", trace), _place_of_score(members, begin))


def read_ending(value: msgspec.Raw | bytes | None) -> Ending | None:
    """Return how a run ended by the JSON of its ``metadata.ending``; None for any other form."""
    return ending_of(_short_text(value))


def read_judged(value: msgspec.Raw | bytes | None) -> bool | None:
    """Return whether somebody judged a run by the JSON of its ``metadata.outcome_source``."""
    return is_judged(_short_text(value))


def read_assumed(value: msgspec.Raw | bytes | None) -> bool:
    """Return whether a converter assumed the confidence, by the JSON of ``metadata.confidence_source``."""
    return _short_text(value) == "default"


def _short_text(value: msgspec.Raw | bytes | None) -> str | None:
    """Return the text that a member's JSON is, empty if no member that is read has it; None for no text."""
    if value is None or memoryview(value)[0] != _QUOTE:
        return None
    try:
        return "" if len(memoryview(value)) > _LONGEST else msgspec.json.decode(value, type=str)
    except DECODE_ERRORS:  # a lone surrogate
        return ""


def _place_of_score(members: bytes, begin: int) -> Range | None:
    """Return the place of the score in a trace's bytes if it takes no parser to find, as in most traces.

    Args:
        members: the members of the metadata, among them the score at most once.
        begin: where they begin in the trace's bytes.
    """
    at = members.find(QUALITY_SCORE)
    if at < 0:
        return begin, begin
    if members[at - 1] == _BACKSLASH or _BRACKET.search(members, 0, at):
        return None
    score = _NUMBER_BEHIND_COLON.match(members, at + len(QUALITY_SCORE))
    return (begin + score.start(1), begin + score.end(1)) if score else None


def _struct(model: type[BaseModel], raw: str = "") -> Any:
    """Return a type that accepts only what a model accepts, and has its attributes.

    Members of any type are not read, except for the one to keep raw, which is read by no type.
    """
    typed = {
        name: field
        for name, field in model.model_fields.items()
        if field.annotation is not Any or name == raw
    }
    return msgspec.defstruct(
        model.__name__,
        [
            (
                name,
                msgspec.Raw if name == raw else _type(field),
                *([] if field.is_required() else [field.get_default()]),
            )
            for name, field in typed.items()
        ],
        kw_only=True,
        omit_defaults=True,
        gc=False,
        rename={name: field.alias for name, field in typed.items() if field.alias},
    )


def _type(field: FieldInfo) -> Any:
    limits: dict[str, Any] = {}
    for constraint in field.metadata:
        for name, value in demands_of(constraint).items():
            if name in _LIMITS:
                limits[name] = value
            elif name not in OF_NO_DOCUMENT and value is not check_date_time:
                raise TypeError(f"the schema has a constraint that would not be checked: {constraint!r}")
    parts = get_args(field.annotation) if get_origin(field.annotation) in _UNIONS else (field.annotation,)
    read = [_read_as(part, limits) for part in parts]
    return msgspec.Raw if msgspec.Raw in read else Union[*read]  # which has no unions; a null is Raw, too


def _read_as(annotation: Any, limits: dict[str, Any]) -> Any:
    if annotation is NoneType:
        return None
    if get_origin(annotation) is dict:
        return msgspec.Raw
    if get_origin(annotation) is list:
        (item,) = get_args(annotation)
        annotation = GenericAlias(list, (_read_as(item, {}),))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        annotation = _struct(annotation)
    return Annotated[annotation, msgspec.Meta(**limits)] if limits else annotation


def demands_of(constraint: Any) -> dict[str, Any]:
    """Return what a constraint demands, by name, since its type differs between releases of pydantic."""
    if is_dataclass(constraint):
        return {member.name: getattr(constraint, member.name) for member in fields(constraint)}
    return dict(vars(constraint))


_UNIONS = (Union, UnionType)
_LIMITS = frozenset({"min_length", "ge", "le", "pattern"})
"""Constraints of the schema, by their names in pydantic and in msgspec."""
OF_NO_DOCUMENT = frozenset({"fail_fast", "allow_inf_nan"})
"""Constraints that no document violates that msgspec accepts: JSON has neither infinity nor NaN."""

_decode = msgspec.json.Decoder(_struct(ReasoningTrace, raw="metadata")).decode
_decode_metadata = msgspec.json.Decoder(_struct(Metadata, raw=ENDING)).decode
