"""Decode a valid trace in one pass.

Nearly all traces are valid, and msgspec checks most of what the schema demands while it parses, in a fifth of
the time that the schema takes after it. What it does not accept is left to :mod:`.decode`, which decides, and
explains a refusal. So this may accept only what the schema accepts, with the same values; each doubt is None.
"""

from __future__ import annotations

from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
from annotated_types import Ge, Le, MinLen
from pydantic import AfterValidator, AllowInfNan, BaseModel, FailFast
from pydantic.fields import FieldInfo

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.trace import check_date_time
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS

_BRACE, _NULL = b"{n"


def valid_trace(value: bytes) -> ReasoningTrace | None:
    """Return the trace that a record's value holds, or None if that takes a closer look.

    Args:
        value: a record's value, in which objects and arrays are nested no deeper than parsers can recurse,
            and of which ``metadata`` and ``quality_score`` are no duplicates.

    Returns:
        the members that the schema names, with the attributes of the models, without the knowledge graph.
            The inputs of steps are views of the value's JSON.
    """
    try:
        if not value.isascii():
            value.decode()  # the parser does not validate the strings that it skips
        trace = _decode(value)
        check_date_time(trace.metadata.created_at)
    except (*DECODE_ERRORS, ValueError):
        return None
    for step in trace.steps:
        if step.input is None:
            continue
        first = memoryview(step.input)[0]
        if first == _NULL:
            step.input = None
        elif first != _BRACE:
            return None
    trace.knowledge_graph_delta = None
    return cast("ReasoningTrace", trace)  # it has the attributes


def _struct(model: type[BaseModel]) -> Any:
    """Return a type that accepts only what a model accepts, and has its attributes.

    Members of any type are not read.
    """
    fields = {name: field for name, field in model.model_fields.items() if field.annotation is not Any}
    return msgspec.defstruct(
        model.__name__,
        [
            (name, _type(field), *([] if field.is_required() else [field.get_default()]))
            for name, field in fields.items()
        ],
        kw_only=True,
        omit_defaults=True,
        gc=False,
        rename={name: field.alias for name, field in fields.items() if field.alias},
    )


def _type(field: FieldInfo) -> Any:
    limits: dict[str, Any] = {}
    for constraint in field.metadata:
        if isinstance(constraint, AfterValidator):
            _require(constraint.func is check_date_time, constraint)
        elif pattern := getattr(constraint, "pattern", None):
            limits["pattern"] = pattern
        elif name := _LIMITS.get(type(constraint)):
            limits[name] = getattr(constraint, name)
        else:
            _require(isinstance(constraint, _OF_NO_DOCUMENT), constraint)
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


def _require(is_known: bool, constraint: object) -> None:
    if not is_known:
        raise TypeError(f"the schema has a constraint that would not be checked: {constraint!r}")


_UNIONS = (Union, UnionType)
_LIMITS = {MinLen: "min_length", Ge: "ge", Le: "le"}
"""Constraints of the schema, by msgspec's name and theirs."""
_OF_NO_DOCUMENT = (FailFast, AllowInfNan)
"""Constraints that no document violates that msgspec accepts: JSON has neither infinity nor NaN."""

_decode = msgspec.json.Decoder(_struct(ReasoningTrace)).decode
