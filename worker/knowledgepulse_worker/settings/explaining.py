"""Errors of the settings: where the value came from, the setting, its value, and what is accepted."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from knowledgepulse_kafka.safe_text import without_secrets
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.settings.models import ENV_PREFIX, NESTED, Settings
from knowledgepulse_worker.settings.setting_paths import (
    annotation_at,
    model_at,
    names_at,
    required_at,
    sections_with,
    takes_numbers,
    takes_seconds,
)

_PYTHONS_TYPES = re.compile(r"a valid (dictionary|tuple)( or instance of \w+)?")
_TYPES = {"dictionary": "a table", "tuple": "a list"}
"""The names of pydantic's types in TOML."""


MAX_PROBLEMS = 20
"""The most problems that an error describes; a file may have a hundred thousand."""

_MAX_LENGTH = 1_000
"""The most characters of a problem's description."""

_MAX_VALUE = 300
"""The most characters of a value in it."""


def message_of(
    error: ValidationError, describe: Callable[[ErrorDetails], str], before: Sequence[str] = ()
) -> str:
    """Return the message of an error of the models: a line for each problem, up to :data:`MAX_PROBLEMS`.

    Args:
        error: the error.
        describe: returns the line of a problem.
        before: lines of other problems.
    """
    described = [describe(problem) for problem in error.errors(include_url=False)[:MAX_PROBLEMS]]
    return bounded([*before, *described], len(before) + error.error_count())


def bounded(lines: Sequence[str], count: int | None = None) -> str:
    """Return the message of problems, up to :data:`MAX_PROBLEMS`.

    Args:
        lines: the lines of all problems, or of the first ones.
        count: the number of all problems.
    """
    shown = [_shortened(printable(line), _MAX_LENGTH) for line in lines[:MAX_PROBLEMS]]
    if (others := (len(lines) if count is None else count) - MAX_PROBLEMS) > 0:
        shown.append(f"and {counted(others, 'other problem')}")
    return "\n".join(shown)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def ignored_variables() -> list[str]:
    """Return the KP_ variables that do not look like settings, such as those of a Kubernetes Service."""
    return [name for name in _foreign_variables() if NESTED not in name]


def warning_of_ignored_variables() -> str | None:
    """Return a line that names them; None if there are none."""
    if ignored := ignored_variables():
        return f"ignored, since settings are KP_<SECTION>__<KEY>: {', '.join(ignored)}"
    return None


def unknown_variables() -> Iterator[str]:
    """Describe the KP_ variables of unknown sections; the model itself rejects unknown keys of a section."""
    for name in _foreign_variables():
        if NESTED in name:
            takes = f"{ENV_PREFIX}<SECTION>{NESTED}<KEY> with a section of {', '.join(Settings.model_fields)}"
            yield f"{name}: no such setting; variables are {takes}"


def _foreign_variables() -> Iterator[str]:
    for name in sorted(os.environ):
        section = name.upper().removeprefix(ENV_PREFIX).split(NESTED)[0].lower()
        is_known = section in Settings.model_fields or name == "KP_CONFIG"  # which names the file
        if name.upper().startswith(ENV_PREFIX) and not is_known:
            yield name


def unreadable_variables() -> Iterator[str]:
    """Describe the KP_ variables for a whole section, all domains or a list that are not JSON."""
    for path, name in _variables().items():
        is_list = get_origin(annotation_at(path)) is tuple
        if is_list or model_at(path) or path[1:] == ("domains",):
            try:
                json.loads(os.environ[name])
            except (ValueError, RecursionError):
                parts = f"its parts can be set one by one, as {name}{NESTED}<KEY>"
                yield f"{name}: is not JSON; {'it takes a list of strings' if is_list else parts}"


def mistyped_numbers(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Describe the truth values and the numbers in quotation marks of a file that stand for numbers.

    The models convert them, as they have to for the environment, where each value is a text.

    Args:
        values: the values at a path.
        path: the path of settings.
    """
    for key, value in values.items():
        at = (*path, key)
        if isinstance(value, Mapping):
            yield from mistyped_numbers(value, at)
        elif takes_numbers(at):
            for element in value if isinstance(value, list) else [value]:
                if isinstance(element, bool) or (isinstance(element, str) and _is_number(element)):
                    got = json.dumps(element)
                    yield f"{'.'.join(at)}: got {got}; should be a number, without quotation marks"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def explain(error: ErrorDetails, config: Path | None, values: Mapping[str, Any]) -> str:
    """Return a line for an error of the models, which names the file or the variable that set the value.

    Args:
        error: the error.
        config: the path of the settings file, if any.
        values: the file's values.
    """
    if not error["loc"]:  # settings of several sections do not fit together
        return error["msg"].removeprefix("Value error, ")
    location = [str(part) for part in error["loc"]]
    origins = _origins(location, config, values)
    line = problem(error)
    if [name.upper() for name in origins] == [ENV_PREFIX + NESTED.join(location).upper()]:
        return origins[0] + line.removeprefix(".".join(location))
    return f"{' and '.join(origins)}: {line}" if origins else line


def _origins(location: Sequence[str], config: Path | None, values: Mapping[str, Any]) -> list[str]:
    """Return the file and the variables that set a setting, or the nearest setting that contains it."""
    for length in range(len(location), 0, -1):
        path = tuple(location[:length])
        variables = [name for at, name in _variables().items() if _sets(at, name, path)]
        value = _value_at(values, path)
        is_overridden = bool(variables) and not isinstance(value, Mapping)
        in_file = config is not None and value is not None and not is_overridden
        if in_file or variables:
            return [*([str(config)] if in_file else []), *variables]
    return []


def _variables() -> dict[tuple[str, ...], str]:
    """Return the KP_ variables by the path of the setting."""
    return {
        tuple(name.upper().removeprefix(ENV_PREFIX).lower().split(NESTED)): name
        for name in sorted(os.environ)
        if name.upper().startswith(ENV_PREFIX)
    }


def _sets(at: tuple[str, ...], name: str, path: tuple[str, ...]) -> bool:
    """Return whether a variable sets a value at a path, below it, or in the JSON of a whole section."""
    if at[: len(path)] == path:
        return True
    return path[: len(at)] == at and _value_at(_json(name), path[len(at) :]) is not None


def _json(name: str) -> Any:
    """Return a variable's value as JSON; None if it is not JSON."""
    try:
        return json.loads(os.environ[name])
    except (ValueError, RecursionError):
        return None


def _value_at(values: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of nested objects; None if there is none."""
    for part in path:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def problem(error: ErrorDetails) -> str:
    """Return a line for an error of the models."""
    location = [str(part) for part in error["loc"]]
    setting = ".".join(location)
    if error["type"] == "extra_forbidden":
        return f"{setting}: no such setting; {accepted(location)}"
    if error["type"] == "missing":
        needed = ", ".join(required_at(location[:-1]))
        return f"{setting}: is missing" + (f"; [{'.'.join(location[:-1])}] needs {needed}" if needed else "")
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = _PYTHONS_TYPES.sub(lambda found: _TYPES[found[1]], message)
    if takes_seconds(location):
        message += ", in seconds"
    elif percentage := _percentage(error["input"]):
        message = f"should be a number, such as {percentage:g}"
    got = _shown(location, error["input"])
    return f"{setting}: got {got}; {message}"


def _percentage(value: Any) -> float | None:
    """Return the share that a text such as `10%` means; None if it is no percentage."""
    number = value.strip().removesuffix("%") if isinstance(value, str) and value.strip().endswith("%") else ""
    return float(number) / 100 if _is_number(number) else None


def _shown(location: list[str], value: Any) -> str:
    """Return a value for an error message, without anything that may be a secret."""
    if any(word in part for part in location for word in ("password", "secret", "api_key")) and not location[
        -1
    ].endswith("_file"):
        return "a secret"
    if isinstance(value, str) and ("://" in value or location[-1].endswith(("url", "servers"))):
        return _shortened(repr(without_secrets(value)), _MAX_VALUE)
    if not isinstance(value, str | int | float | None):
        return "these values"
    return _shortened(repr(value), _MAX_VALUE)


def accepted(location: list[str]) -> str:
    """Return the settings that are accepted in place of an unknown one."""
    *parents, key = location
    names = names_at(parents)
    close = difflib.get_close_matches(key, names, n=1)
    meant = [".".join([*parents, *close])] if close else []
    if not parents:
        meant += [f"[{section}] {key}" for section in sections_with(key)]
    hint = f"did you mean {' or '.join(meant)}? " if meant else ""
    where = f"[{'.'.join(parents)}]" if parents else "the file"
    return f"{hint}{where} takes {', '.join(names)}"
