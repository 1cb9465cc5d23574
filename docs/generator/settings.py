"""All settings, from their models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from knowledgepulse_worker.settings import ENV_PREFIX, NESTED, Settings, sections

_TYPES = {
    bool: "`true` or `false`",
    float: "number",
    int: "integer",
    str: "text",
    Path: "path",
    SecretStr: "secret text",
}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def page() -> str:
    """Return a section for each section of the settings file."""
    return "\n".join(line for name, model in sections().items() for line in _section(name, model))


def _section(name: str, model: type[BaseModel]) -> Iterator[str]:
    yield f"\n## `[{name}]`\n"
    if described := Settings.model_fields[name].description:
        yield f"{_prose(described)}\n"
    for key, field in model.model_fields.items():
        yield f"### `{name}.{key}`\n"
        if field.description:
            yield f"{_prose(field.description)}\n"
        yield f"- Type: {_type(field.annotation)}{_bounds(field)}"
        yield f"- Default: {_default(field)}"
        yield f"- Environment: `{ENV_PREFIX}{name.upper()}{NESTED}{key.upper()}`\n"


def _prose(text: str) -> str:
    return re.sub(r"([<>*_])(?![^`]*`(?:[^`]*`[^`]*`)*[^`]*$)", r"\\\1", text)


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin in {Union, UnionType}:
        return " or ".join(_type(argument) for argument in arguments if argument is not NoneType)
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "tables by name"
    return _TYPES.get(annotation, "table")


def _bounds(field: FieldInfo) -> str:
    bounds = [
        f"{words} {getattr(limit, name):,}"
        for limit in field.metadata
        for name, words in _BOUNDS.items()
        if getattr(limit, name, None) is not None
    ]
    return f", {' and '.join(bounds)}" if bounds else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "not set"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in ({}, "") else "empty"
