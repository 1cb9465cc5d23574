"""The tree of settings: every section and key by its path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel

from knowledgepulse_worker.settings.models import Settings


def sections() -> dict[str, type[BaseModel]]:
    """Return every section's model by its name."""
    return {name: cast("type[BaseModel]", model_at([name])) for name in Settings.model_fields}


def names_at(parents: list[str]) -> list[str]:
    """Return the names that the model at a path takes."""
    model = model_at(parents)
    return [] if model is None else list(model.model_fields)


def required_at(parents: list[str]) -> list[str]:
    """Return the names that the model at a path requires."""
    model = model_at(parents)
    return (
        [] if model is None else [name for name, field in model.model_fields.items() if field.is_required()]
    )


def model_at(path: Sequence[str]) -> type[BaseModel] | None:
    """Return the model at a path, through ``dict[str, Model]`` and ``Model | None``."""
    return _model_in(annotation_at(path))


def annotation_at(path: Sequence[str]) -> Any:
    """Return the annotation at a path; None without a setting there."""
    annotation: Any = Settings
    for part in path:
        model = _model_in(annotation)
        field = model.model_fields.get(part) if model else None
        # In a dict, the path has a name chosen by the user, and the annotation has the values' type.
        annotation = field.annotation if field else next(iter(get_args(annotation)[1:]), None)
    return annotation


def takes_numbers(path: Sequence[str]) -> bool:
    """Return whether the setting at a path is a number or a list of numbers."""
    types = set(_types_in(annotation_at(path)))
    return bool(types & {int, float}) and not types & {str, bool}


def takes_seconds(path: Sequence[str]) -> bool:
    """Return whether the setting at a path is a time, which its description begins with."""
    model = model_at(path[:-1])
    field = model.model_fields.get(path[-1]) if model else None
    return field is not None and (field.description or "").startswith("seconds")


def sections_with(key: str) -> list[str]:
    """Return the names of the sections that have a key."""
    return [name for name, model in sections().items() if key in model.model_fields]


def _types_in(annotation: Any) -> Iterator[Any]:
    """Yield the types of which an annotation consists."""
    arguments = get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from _types_in(argument)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    candidates = (annotation, *get_args(annotation)) if get_origin(annotation) is not dict else ()
    return next(
        (
            candidate
            for candidate in candidates
            if isinstance(candidate, type) and issubclass(candidate, BaseModel)
        ),
        None,
    )
