"""How a source's JSON is read: a pydantic model names what is used, and the rest is a loss."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.convert.errors import ConversionError
from schemas.convert.losses import Losses

_SHOWN_PROBLEMS = 3
_INSTANCE = re.compile(r"dictionary or instance of \w+")
_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


class Reading(BaseModel):
    """Base of the models: types are strict, and members that no field names are kept, to be reported."""

    model_config = ConfigDict(strict=True, extra="allow", populate_by_name=True)


T = TypeVar("T", bound=Reading)
R = TypeVar("R")


def read(model: type[T], value: Any, path: str = "") -> T:
    """Return the value as its model.

    Args:
        model: what is read of it.
        value: plain JSON.
        path: where it stands in the document, for the error.

    Raises:
        ConversionError: it does not fit; the text names each member and what it should be.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConversionError(_told(error, path)) from error


def each(values: list[Any], become: Callable[[Any, str], R]) -> Iterator[R | ConversionError]:
    """Yield what each value becomes, or the error that says why it does not: the others go on."""
    for number, value in enumerate(values):
        try:
            yield become(value, f"[{number}]")
        except ConversionError as error:
            yield error


def lose_unread(read: Reading, path: str, losses: Losses) -> None:
    """Report every member that no field names, here and below."""
    for name, value in (read.model_extra or {}).items():
        losses.add(f"{path}.{name}".lstrip("."), value)
    for name, field in type(read).model_fields.items():
        below = f"{path}.{field.alias or name}".lstrip(".")
        value = getattr(read, name)
        if isinstance(value, Reading):
            lose_unread(value, below, losses)
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, Reading):
                    lose_unread(one, f"{below}[]", losses)


def parse_time(value: Any) -> datetime | None:
    """Return the moment that a source writes as ISO 8601 text or as seconds since 1970, else None.

    A text without an offset is taken for UTC.
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
    """Return what a text says as JSON, or the text itself where it is none."""
    if not isinstance(text, str) or not re.match(r'\s*[\[{"]', text):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_text(value: Any) -> str:
    """Return a JSON value as text: a string as it is, nothing as the empty text, else its JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _told(error: ValidationError, path: str) -> str:
    problems = error.errors(include_url=False, include_context=False)
    told = []
    for problem in problems[:_SHOWN_PROBLEMS]:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"])
        place = "".join([path, *steps]).lstrip(".") or "the document"
        wanted = _INSTANCE.sub("object", problem["msg"])
        told.append(f"{place}: {wanted}, got {_kind(problem['input'])}")
    more = len(problems) - _SHOWN_PROBLEMS
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


def _kind(value: Any) -> str:
    """Return what a value is called in JSON, or its type where it has not been dumped to JSON."""
    return _KINDS.get(type(value), type(value).__name__)
