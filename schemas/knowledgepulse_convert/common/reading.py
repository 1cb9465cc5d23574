"""Reading the JSON of an input format: pydantic models declare the fields in use, all others are losses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AliasChoices, AliasGenerator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.losses import Losses

_SHOWN_PROBLEMS = 3
_INSTANCE = re.compile(r"dictionary(?: or instance of \w+)?")
_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


class InputModel(BaseModel):
    """Base class of the input models: strict types; unknown members are kept for the loss report."""

    # Deferred, since a command needs the models of one format.
    model_config = ConfigDict(strict=True, extra="allow", populate_by_name=True, defer_build=True)


class CamelModel(InputModel):
    """Base class of models whose members have camel-case or snake-case names, depending on the exporter."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(to_camel(name), name))
    )


Id = Annotated[str | None, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""A record's id, which data sets also have as a number."""
FromText = BeforeValidator(lambda value: none_if_empty(parse_json(value)))
"""Marks a list or an object that may also be a JSON text, as a table has it in a column of texts."""
_JSON = json.JSONDecoder(parse_constant=str)  # traces have no NaN
T = TypeVar("T", bound=InputModel)
R = TypeVar("R")


def read(model: type[T], value: Any, path: str = "") -> T:
    """Validate plain JSON as an input model; ``path``: the value's in the document, for the error.

    Raises:
        ConversionError: the value does not fit; the message names the members and what they should be.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConversionError(_describe(error, path)) from error


def read_record(model: type[T], value: Any, path: str = "") -> tuple[T, Losses]:
    """Read a record as :func:`read` does, and count its undeclared members in a new report."""
    record = read(model, value, path)
    return record, unmapped(record)


def unwrap(document: Any, name: str) -> Any:
    """Return the list in an object's member, or the document itself if it has no such list."""
    items = document.get(name) if isinstance(document, dict) else None
    return items if isinstance(items, list) else document


def items_of(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield each item of a list and its path in the document, or a document that is not a list."""
    if isinstance(document, list):
        yield from ((f"[{index}]", item) for index, item in enumerate(document))
    else:
        yield "", document


def each(document: Any, convert: Callable[[Any, str], R]) -> Iterator[R | ConversionError]:
    """Convert each item of a list, or a document that is not a list; yield an error in place of its item.

    Args:
        document: The list or the document.
        convert: Converts an item. Its second argument is the item's path in the document.
    """
    for path, item in items_of(document):
        try:
            yield convert(item, path)
        except ConversionError as error:
            yield error


def unmapped(model: InputModel, path: str = "") -> Losses:
    """Return a report of every member that no field declares, at any depth."""
    losses = Losses()
    count_unmapped(model, path, losses)
    return losses


def count_unmapped(model: InputModel, path: str, losses: Losses) -> None:
    """Count every member that no field declares, at any depth."""
    for name, value in (model.__pydantic_extra__ or {}).items():
        losses.add(f"{path}.{name}".lstrip("."), value)
    for name, written in _holders(type(model)):
        value = getattr(model, name)
        if isinstance(value, InputModel):
            count_unmapped(value, f"{path}.{written}".lstrip("."), losses)
        elif isinstance(value, list):
            below = f"{path}.{written}[]".lstrip(".")
            for item in value:
                if isinstance(item, InputModel) and (item.__pydantic_extra__ or _holders(type(item))):
                    count_unmapped(item, below, losses)


@cache
def _holders(model: type[InputModel]) -> list[tuple[str, str]]:
    """Return the fields of a model that may hold models, each with its name in the input: most have none."""
    fields = model.model_fields.items()
    return [(name, field.alias or name) for name, field in fields if _has_model(field.annotation)]


def _has_model(annotation: Any) -> bool:
    return (isinstance(annotation, type) and issubclass(annotation, InputModel)) or any(
        map(_has_model, get_args(annotation))
    )


def count_others(value: dict[Any, Any], names: set[str], path: str, losses: Losses) -> None:
    """Count the members of an object that are not among the names."""
    for other, member in value.items():
        if other not in names:
            losses.add(f"{path}.{other}".lstrip("."), member)


def without(members: dict[Any, Any], *names: Any) -> dict[str, Any]:
    """Return an object without the members of these names."""
    return {name: member for name, member in members.items() if name not in names}


def parse_time(value: Any) -> datetime | None:
    """Parse ISO 8601 text or seconds since 1970; None for anything else.

    Text without an offset is read as UTC.
    """
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip().upper())
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def parse_json(text: Any) -> Any:
    """Parse JSON text, or return the value unchanged if it is not JSON text."""
    if not isinstance(text, str) or not text.lstrip().startswith(("[", "{", '"')):
        return text
    try:
        return _JSON.decode(text)
    except (ValueError, RecursionError):
        return text


def none_if_empty(value: Any) -> Any:
    """Return None for an empty text and for JSON's null as one; any other value unchanged."""
    return None if isinstance(value, str) and value.strip() in ("", "null") else value


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged; an empty one for anything else."""
    return value if isinstance(value, list) else []


def text_or_none(value: Any) -> str | None:
    """Return a text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def as_text(value: Any) -> str:
    """Return a JSON value as text: a string unchanged, None as the empty string, anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _describe(error: ValidationError, path: str) -> str:
    problems = error.errors(include_url=False, include_context=False)
    descriptions = []
    for problem in problems[:_SHOWN_PROBLEMS]:
        names = (step for step in problem["loc"] if isinstance(step, int) or "[" not in step)  # of no type
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in names)
        place = "".join([path, *steps]).lstrip(".") or "the document"
        wanted = _INSTANCE.sub("object", problem["msg"])
        descriptions.append(f"{place}: {wanted}, got {_kind(problem['input'])}")
    more = len(problems) - _SHOWN_PROBLEMS
    return "; ".join(descriptions) + (f"; and {more} more" if more > 0 else "")


def _kind(value: Any) -> str:
    """Return the JSON name of a value's type, or the Python name if it is not plain JSON."""
    return _KINDS.get(type(value), type(value).__name__)
