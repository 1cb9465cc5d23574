"""What is wrong with the settings, in words: the setting, its value, and what is accepted."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from typing import Any, get_origin

from pydantic_core import ErrorDetails

from knowledgepulse_worker.settings.models import ENV_PREFIX, NESTED, Settings
from knowledgepulse_worker.settings.tree import annotation_at, model_at, names_at
from knowledgepulse_worker.urls import without_secrets


def ignored_variables() -> list[str]:
    """Return the KP_ variables that are no settings' and look like none, such as a Kubernetes Service's."""
    return [name for name in _foreign_variables() if NESTED not in name]


def unknown_variables() -> Iterator[str]:
    """Describe the KP_ variables that no section takes; the model itself refuses those inside a section."""
    for name in _foreign_variables():
        if NESTED in name:
            takes = f"{ENV_PREFIX}<SECTION>{NESTED}<KEY> with a section of {', '.join(Settings.model_fields)}"
            yield f"{name}: no such setting; variables are {takes}"


def _foreign_variables() -> Iterator[str]:
    for name in sorted(os.environ):
        section = name.upper().removeprefix(ENV_PREFIX).split(NESTED)[0].lower()
        if name.upper().startswith(ENV_PREFIX) and section not in Settings.model_fields:
            yield name


def unreadable_variables() -> Iterator[str]:
    """Describe the KP_ variables for a whole section, all domains or a list that are not JSON."""
    for name, value in sorted(os.environ.items()):
        path = name.upper().removeprefix(ENV_PREFIX).lower().split(NESTED)
        if not name.upper().startswith(ENV_PREFIX):
            continue
        is_list = get_origin(annotation_at(path)) is tuple
        if is_list or model_at(path) or path[1:] == ["domains"]:
            try:
                json.loads(value)
            except (ValueError, RecursionError):
                parts = f"its parts can be set one by one, as {name}{NESTED}<KEY>"
                yield f"{name}: is not JSON; {'it takes a list of strings' if is_list else parts}"


def explain(error: ErrorDetails) -> str:
    """Return a line for an error of the models, with the variable that could set it."""
    if not error["loc"]:  # settings of several sections do not fit together
        return error["msg"].removeprefix("Value error, ")
    variable = _variable([str(part) for part in error["loc"]])
    named = "" if error["type"] == "extra_forbidden" else f" ({variable} in the environment)"
    return problem(error) + named


def problem(error: ErrorDetails) -> str:
    """Return a line for an error of the models."""
    location = [str(part) for part in error["loc"]]
    setting = ".".join(location)
    if error["type"] == "extra_forbidden":
        return f"{setting}: no such setting; {accepted(location)}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    got = _shown(location, error["input"])
    return f"{setting}: got {got}; {message}"


def _variable(location: list[str]) -> str:
    return ENV_PREFIX + NESTED.join(location).upper()


def _shown(location: list[str], value: Any) -> str:
    """Return a value for an error message, without anything that may be a secret."""
    if any(word in part for part in location for word in ("password", "secret", "api_key")) and not location[
        -1
    ].endswith("_file"):
        return "a secret"
    if isinstance(value, str) and ("://" in value or location[-1].endswith(("url", "servers"))):
        return repr(without_secrets(value))
    return repr(value) if isinstance(value, str | int | float | None) else "these values"


def accepted(location: list[str]) -> str:
    """Return what the settings take in place of an unknown one."""
    *parents, key = location
    names = names_at(parents)
    close = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {'.'.join([*parents, close[0]])}? " if close else ""
    where = f"[{'.'.join(parents)}]" if parents else "the file"
    return f"{hint}{where} takes {', '.join(names)}"
