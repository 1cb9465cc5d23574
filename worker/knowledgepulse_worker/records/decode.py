"""Decode a trace from a record's bytes, and set the score in these bytes without changing any others.

Only the members that the schema names become Python objects, because a trace may consist of other members,
and their objects would take a hundred times the size of their JSON. The items of arrays become models only
in batches, for validation. The steps that are kept have the model's attributes at a tenth of its size; their
inputs, whose objects may take a hundred times the size of their JSON, are kept as JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from types import GenericAlias, NoneType, UnionType
from typing import Any, NamedTuple, TypedDict, TypeVar, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from knowledgepulse_kafka.records import RawRecord, is_utf8
from knowledgepulse_schemas import Entity, ReasoningTrace, Relationship, Step, ToolDefinition
from knowledgepulse_schemas.trace import Metadata
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.forms import Found, pointer_to_trace, refusal
from knowledgepulse_worker.records.json_text import (
    Members,
    accepted_members,
    members_of,
    position_of,
    require_json,
    require_shallow,
    schema_style,
)
from knowledgepulse_worker.records.scanned_traces import scan
from knowledgepulse_worker.records.valid_traces import (
    ENDING,
    ESCAPED_LETTER,
    METADATA,
    QUALITY_SCORE,
    Range,
    ValidTrace,
    read_ending,
    valid_trace,
)
from knowledgepulse_worker.records.wrapping import (
    MAX_WRAPPED_DEPTH,
    Document,
    Edit,
    Steps,
    ValueRead,
    begins_like_a_trace,
    documents,
    is_parsable,
    layers_of,
    place_of,
    trace_in,
)
from knowledgepulse_worker.scoring import Scorable, scorable
from knowledgepulse_worker.settings.record_settings import FRAME

Validated = TypeVar("Validated")

_MAX_ERRORS_LISTED = 5
_BRACE, _NULL = b"{n"
_MAX_JUDGED = 2**20
"""How many bytes of a document are validated as the schema does if it may not be scored."""

_MISSING = msgspec.Raw()


class _TopLevel(msgspec.Struct):
    metadata: msgspec.Raw = _MISSING


class _Metadata(msgspec.Struct):
    quality_score: msgspec.Raw = _MISSING


class _Object(TypedDict):
    """Any object; its members are skipped."""


_Scalar = bool | int | float | str | None


def _outline(annotation: Any, *, complete: bool) -> Any:
    """Return a type that reads only the members of a document that the schema names.

    The type accepts a scalar or an object in any place, so that the schema can report the error. It accepts
    an array only where the schema has one, since arrays take the most memory.

    Args:
        annotation: the type of a member of the schema.
        complete: whether to reject an item without its required members, instead of leaving that to the
            schema.
    """
    annotation = _not_none(annotation)
    if get_origin(annotation) is list:
        (element,) = get_args(annotation)
        if issubclass(element, BaseModel):
            element = _item_of(element, complete)
        return GenericAlias(list, (element,)) | _Object | _Scalar
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _members_of(annotation, complete) | _Scalar
    return _Object | _Scalar


def _not_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    return annotation


def _members_of(model: type[BaseModel], complete: bool) -> Any:
    fields = {
        field.alias or name: _outline(field.annotation, complete=complete)
        for name, field in model.model_fields.items()
        if field.annotation is not Any
    }
    if model is Metadata:
        fields[ENDING] = msgspec.Raw
    return TypedDict(model.__name__, fields, total=False)  # type: ignore[operator]  # made from the schema


def _item_of(model: type[BaseModel], complete: bool) -> Any:
    """Return a type with a model's attributes at a tenth of its size; a trace may consist of tiny items."""
    return msgspec.defstruct(
        model.__name__,
        [
            (name, *_attribute(field, complete=complete))
            for name, field in model.model_fields.items()
            if field.annotation is not Any
        ],
        kw_only=True,
        omit_defaults=True,
        gc=False,
    )


def _attribute(field: FieldInfo, *, complete: bool) -> tuple[Any, Any]:
    """Return the type and the default of an item's attribute."""
    annotation = _not_none(field.annotation)
    if get_origin(annotation) is dict:
        return msgspec.Raw, field.default
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        outline = _item_of(annotation, complete) | _Scalar
    else:
        outline = _outline(annotation, complete=complete)
    if not field.is_required():
        return outline, field.default
    return (outline, msgspec.NODEFAULT) if complete else (outline | msgspec.UnsetType, msgspec.UNSET)


_known = msgspec.json.Decoder(_members_of(ReasoningTrace, complete=False)).decode
_known_if_complete = msgspec.json.Decoder(_members_of(ReasoningTrace, complete=True)).decode
_BYTES_PER_OBJECT = 6
"""A text with shorter objects than this has empty ones, which take the most memory for their size."""
_TRACE = TypeAdapter(ReasoningTrace)
_ITEMS: dict[tuple[str, ...], TypeAdapter[Any]] = {
    ("steps",): TypeAdapter(list[Step]),
    ("task", "tools"): TypeAdapter(list[ToolDefinition]),
    ("knowledge_graph_delta", "entities"): TypeAdapter(list[Entity]),
    ("knowledge_graph_delta", "relationships"): TypeAdapter(list[Relationship]),
}
_ITEMS_AT_ONCE = 256
"""How many items of an array are validated as models at a time."""


def check_readable(record: RawRecord) -> None:
    """Check that a record could be read from its batch, and that its headers can be published.

    Raises:
        InvalidRecordError: ``undecodable``, ``too_large`` or ``invalid_headers``.
    """
    if record.fault is not None:
        raise InvalidRecordError(record.fault.reason, record.fault.message)
    for index, (name, _) in enumerate(record.headers):
        if not is_utf8(name):
            raise InvalidRecordError("invalid_headers", f"the name of header {index} is not UTF-8")


class ScorableTrace(ValueRead, frozen=True, gc=False, kw_only=True):
    """A trace that can be scored, and where its value has it.

    Attributes:
        scorable: what is read of it when it is scored and reported.
        trace: the members that the schema names; None if they were only checked.
    """

    scorable: Scorable
    trace: ReasoningTrace | None = None


class WholeTrace(NamedTuple):
    """A trace, as the schema reads it, with its place in the value.

    Attributes:
        trace: the members that the schema names.
        score_place: where its bytes have the score; empty, where it may be inserted, if they have none; None
            if it takes a parser to find.
        steps: the steps that lead to it in the value; none if it is the value.
        content: its bytes.
    """

    trace: ReasoningTrace
    score_place: Range | None
    steps: Steps
    content: bytes


def decode_trace(value: bytes | None, max_bytes: int, unwrap: Sequence[str] = ()) -> ReasoningTrace:
    """Decode a raw trace; see :func:`decode_whole`."""
    return decode_whole(value, max_bytes, unwrap).trace


def decode_scorable(value: bytes | None, max_bytes: int, unwrap: Sequence[str] = ()) -> ScorableTrace:
    """Read what a score takes of a raw trace; see :func:`decode_whole` for what is accepted."""
    value = _checked(value, max_bytes)
    if (scanned := scan(value)) is not None:
        return ScorableTrace(scanned[1], scorable=scanned[0])
    trace, score_place, steps, _ = _decode(value, unwrap)
    return ScorableTrace(score_place, steps=steps, scorable=scorable(trace), trace=trace)


def decode_whole(value: bytes | None, max_bytes: int, unwrap: Sequence[str] = ()) -> WholeTrace:
    """Decode a raw trace.

    An escaped lone surrogate is read as U+FFFD; this affects neither score nor output.

    Args:
        value: a record's value.
        max_bytes: the largest accepted size of the value.
        unwrap: the steps that may lead to a trace inside the value, by ``records.unwrap``.

    Returns:
        the trace, which takes at most 20 times the value's memory.

    Raises:
        InvalidRecordError: ``empty``, ``too_large``, ``not_json`` (RFC 8259) or ``invalid_trace``. The last
            two say what the value is.
    """
    return _decode(_checked(value, max_bytes), unwrap)


def _checked(value: bytes | None, max_bytes: int) -> bytes:
    if not value:
        raise InvalidRecordError("empty", "the record has no value")
    if len(value) > max_bytes:
        raise InvalidRecordError(
            "too_large", f"the value has {len(value)} bytes, limits.trace_bytes is {max_bytes}"
        )
    return value


def _decode(value: bytes, unwrap: Sequence[str]) -> WholeTrace:
    """Decode a trace, bare or else unwrapped, or say what the value is."""
    is_searched = not begins_like_a_trace(value) and is_parsable(value)
    found = _found(value, unwrap) if is_searched else []
    if found and found[0].steps:
        refused = InvalidRecordError("not_json" if found[0].steps[0] == FRAME else "invalid_trace", "")
    else:
        try:
            return WholeTrace(*decode_bare(value), (), value)
        except InvalidRecordError as error:
            refused = error
    if not is_searched and is_parsable(value, MAX_WRAPPED_DEPTH):
        found = _found(value, unwrap)
    places = _one_way_each(found, unwrap)
    is_allowed = any({*document.steps} <= {*unwrap} for document in places)
    read = [_read_document(value, document, refused, is_allowed) for document in places]
    valid = [one for one in read if isinstance(one, WholeTrace) or one.problem is None]
    if len(valid) == 1 and isinstance(valid[0], WholeTrace) and {*valid[0].steps} <= {*unwrap}:
        return valid[0]
    beside = found[0].beside if found else None
    documents_read = [one if isinstance(one, Found) else Found(one.steps, None) for one in read]
    raise refusal(value, refused, documents_read, unwrap, beside)


def _found(value: bytes, unwrap: Sequence[str]) -> list[Document]:
    """Return the documents of traces in a value: in the members that are searched, or else in another."""
    found = list(documents(value, unwrap))
    if not found and (pointer := pointer_to_trace(value)):
        found = list(documents(value, [*unwrap, pointer]))
    return found


def _one_way_each(found: Iterable[Document], unwrap: Sequence[str]) -> Collection[Document]:
    """Return one document for each place: by the first way whose steps are all allowed, if there is one."""
    places: dict[Steps, Document] = {}
    for document in found:
        known = places.setdefault(place := place_of(document.steps), document)
        if not {*known.steps} <= {*unwrap} and {*document.steps} <= {*unwrap}:
            places[place] = document
    return places.values()


def _read_document(
    value: bytes, document: Document, refused: InvalidRecordError, is_allowed: bool
) -> WholeTrace | Found:
    """Read a document in a value, or say why it is no trace.

    Args:
        value: the value.
        document: the document.
        refused: why the value itself is none.
        is_allowed: whether a document in the value may be scored. If none may, large ones are only named.
    """
    if not document.steps:
        return Found((), str(refused))
    content = document.content
    if not is_allowed and (content is None or document.is_valid or len(content) > _MAX_JUDGED):
        return Found(document.steps, None, document.is_valid)
    try:
        if content is None:
            content = trace_in(value, document.steps)
        return WholeTrace(*decode_bare(content), document.steps, content)
    except InvalidRecordError as error:
        return Found(document.steps, str(error))


def decode_bare(value: bytes) -> ValidTrace:
    """Decode a value that is a trace, without any wrapping.

    Raises:
        InvalidRecordError: ``not_json`` (RFC 8259) or ``invalid_trace``.
    """
    require_shallow(value)
    if (valid := valid_trace(value)) is not None:
        return valid
    text, known = _read(value)
    trace = _validated(known)
    if not _has_unique_names(text):
        top = members_of(text, _TopLevel)
        _require_once("metadata", text, top)
        metadata = bytes(top.metadata)
        _require_once("quality_score", metadata, members_of(metadata, _Metadata))
    return ValidTrace(trace, None)


def _has_unique_names(text: bytes) -> bool:
    """Return whether no member can have ``metadata`` or ``quality_score`` twice, in whatever spelling."""
    return text.count(METADATA) <= 1 and text.count(QUALITY_SCORE) <= 1 and not ESCAPED_LETTER.search(text)


def _read(value: bytes) -> tuple[bytes, Any]:
    """Return a document, with any lone surrogates replaced, and the members that the schema names."""
    known = _known if value.count(b"{") * _BYTES_PER_OBJECT < len(value) else _known_if_complete
    try:
        value.decode()  # the parser does not validate the strings that it skips
        return value, known(value)
    except DECODE_ERRORS:
        text = require_json(value)
    try:
        return text, known(text)
    except msgspec.ValidationError as error:
        raise InvalidRecordError("invalid_trace", schema_style(error)) from None


def _validated(known: Any) -> ReasoningTrace:
    """Validate the outline of a trace; its arrays are validated in batches.

    Returns:
        the trace; its steps are the items of the outline, which have the model's attributes.
    """
    arrays = {}
    for path in _ITEMS:
        parent = known
        for name in path[:-1]:
            parent = parent.get(name)
        if isinstance(parent, dict) and isinstance(items := parent.get(path[-1]), list):
            arrays[path] = items
            parent[path[-1]] = items[:_ITEMS_AT_ONCE]
    if isinstance(metadata := known.get("metadata"), dict) and ENDING in metadata:
        metadata[ENDING] = read_ending(metadata[ENDING])
    trace = _validate(_TRACE, known)
    for path, items in arrays.items():
        for start in range(_ITEMS_AT_ONCE, len(items), _ITEMS_AT_ONCE):
            _validate(_ITEMS[path], items[start : start + _ITEMS_AT_ONCE], path, start)
    # Setting a model's attributes takes longer.
    vars(trace).update(steps=arrays["steps",], knowledge_graph_delta=None)
    return trace


def _validate(
    schema: TypeAdapter[Validated], known: Any, path: tuple[str, ...] = (), start: int = 0
) -> Validated:
    """Validate the outline of a trace, or some items of one of its arrays.

    Args:
        schema: the schema of the trace or of the array.
        known: the outline, or the items.
        path: the path of the array in the trace; empty for the whole trace.
        start: the index of the first of the items.
    """
    plain = msgspec.to_builtins(known, enc_hook=_type_only)
    try:
        return schema.validate_python(plain)
    except ValidationError:
        pass
    try:
        return schema.validate_json(msgspec.json.encode(plain))  # for its messages
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        listed = "; ".join(
            f"{'.'.join(map(str, _location(problem['loc'], path, start))) or 'trace'}: {problem['msg']}"
            for problem in errors[:_MAX_ERRORS_LISTED]
        )
        more = f"; and {len(errors) - _MAX_ERRORS_LISTED} more" if len(errors) > _MAX_ERRORS_LISTED else ""
        raise InvalidRecordError("invalid_trace", listed + more) from None


def _type_only(value: msgspec.Raw) -> object:
    """Return an empty object for an object, None for null and a text for others; only the type matters."""
    first = bytes(value)[0]
    return {} if first == _BRACE else None if first == _NULL else ""


def _location(within: tuple[int | str, ...], path: tuple[str, ...], start: int) -> tuple[int | str, ...]:
    if not path:
        return within
    index, *rest = within
    return (*path, start + int(index), *rest)


def decode_members(value: bytes, members: type[Members]) -> Members:
    """Decode only some members of a trace, which is much faster than decoding all.

    Args:
        value: bytes that :func:`decode_trace` accepted, with or without a score.
        members: a msgspec.Struct of the members to decode.

    Raises:
        InvalidRecordError: ``not_json`` or ``invalid_trace``.
    """
    return members_of(require_json(value), members)


def with_quality_score(value: bytes, score: float, place: Range | None = None, steps: Steps = ()) -> bytes:
    """Return a value with the trace's ``metadata.quality_score`` set and no other byte changed.

    In a text, the member's quotes are escaped.

    Args:
        value: bytes that :func:`decode_trace` accepted.
        score: written as the shortest decimal that reads back as the same double.
        place: where the trace has its score, if that is known.
        steps: the steps that lead to the trace in the value.

    Raises:
        InvalidRecordError: the steps do not lead to a trace.
    """
    layers = layers_of(value, steps)
    start, end = place or _place_of_score(layers[-1].content if layers else value)
    number = msgspec.json.encode(score)
    if start == end:
        number = QUALITY_SCORE + b":" + number + b","
    edit = Edit(start, end, number)
    for layer in reversed(layers):
        edit = layer.outward(edit)
    return edit.of(value)


def _place_of_score(value: bytes) -> tuple[int, int]:
    """Return the range of the score in the trace's bytes; an empty range at its place if there is none."""
    text, top = accepted_members(value, _TopLevel)
    start = position_of(METADATA, top.metadata, text)
    metadata = bytes(top.metadata)
    score = members_of(metadata, _Metadata).quality_score
    if score == _MISSING:
        return start + 1, start + 1
    start += position_of(QUALITY_SCORE, score, metadata)
    return start, start + len(memoryview(score))


def _require_once(name: str, text: bytes, members: msgspec.Struct) -> None:
    """Reject an object with a duplicate member; a consumer that keeps the first would read another score.

    The parser keeps the last member of a name. If the name remains after this member is renamed, it was a
    duplicate.
    """
    member = getattr(members, name)
    if member == _MISSING:
        return
    closing_quote = text.rindex(b'"', 0, position_of(b'"%s"' % name.encode(), member, text))
    renamed = text[:closing_quote] + b"?" + text[closing_quote:]
    if getattr(members_of(renamed, type(members)), name) != _MISSING:
        raise InvalidRecordError("invalid_trace", f"{name}: appears more than once")
