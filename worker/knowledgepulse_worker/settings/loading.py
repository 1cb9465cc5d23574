"""Read the settings from a file and the environment, and change them by options."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pydantic_settings
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from knowledgepulse_worker.errors import SettingsError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings.explaining import (
    accepted,
    bounded,
    explain,
    message_of,
    mistyped_numbers,
    problem,
    unknown_variables,
    unreadable_variables,
)
from knowledgepulse_worker.settings.models import Settings
from knowledgepulse_worker.settings.setting_paths import sections

_MAX_DEPTH = 100
"""Levels of tables and arrays in a settings file; no setting has a tenth of them."""


def load_settings(config: Path | None = None) -> Settings:
    """Read the file, if any, and the environment.

    Raises:
        SettingsError: all problems, one per line: the file or variable, the setting, its value, and what is
            accepted.
    """
    return settings_from({} if config is None else parse_file(config, read_file(config)), config)


def read_file(config: Path) -> bytes:
    """Return the file's content.

    Raises:
        SettingsError: the file cannot be read.
    """
    try:
        return config.read_bytes()
    except OSError as error:
        raise SettingsError(f"{config}: cannot be read: {error.strerror}") from error


def parse_file(config: Path, content: bytes) -> dict[str, Any]:
    """Parse a settings file.

    Args:
        config: its path, for the error.
        content: its content.

    Raises:
        SettingsError: the content is not TOML, or is nested too deeply.
    """
    try:
        values = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SettingsError(f"{config}: is not TOML: it is not a text in UTF-8") from None
    except (ValueError, RecursionError) as error:  # integers have a limit, too
        raise SettingsError(f"{config}: is not TOML: {error}") from error
    if _is_deeper(values, _MAX_DEPTH):
        raise SettingsError(f"{config}: its keys are nested more than {_MAX_DEPTH} levels deep")
    return values


def _is_deeper(values: dict[str, Any], limit: int) -> bool:
    """Return whether tables and arrays are nested more deeply; a key with dots nests without a bracket."""
    level: list[Any] = [values]
    for _ in range(limit):
        parents = [value.values() if isinstance(value, dict) else value for value in level]
        level = [value for parent in parents for value in parent if isinstance(value, dict | list)]
    return bool(level)


def settings_from(values: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Return the settings from a file's values, overridden by the environment.

    Args:
        values: the file's values.
        config: the file's path, for errors.

    Raises:
        SettingsError: see :func:`load_settings`.
    """
    wrong = [*unknown_variables(), *_mistyped_numbers(config, values)]
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise SettingsError(
            message_of(error, lambda problem: explain(problem, config, values), wrong)
        ) from None
    except (pydantic_settings.SettingsError, RecursionError) as error:
        raise SettingsError("\n".join([*wrong, *unreadable_variables()])) from error.__cause__
    if wrong:
        raise SettingsError(bounded(wrong))
    return settings


def _mistyped_numbers(config: Path | None, values: Mapping[str, Any]) -> Iterator[str]:
    for line in mistyped_numbers(values):
        yield line if config is None else f"{config}: {line}"


def load_policy(file: Path) -> Policy:
    """Read the ``[policy]`` of a settings file; ignore the environment and the file's other sections.

    Raises:
        SettingsError: all problems, one per line: the setting, its value, and what is accepted.
    """
    content = parse_file(file, read_file(file))
    unknown = [f"{key}: no such setting; {accepted([key])}" for key in content if key not in sections()]
    if unknown:
        raise SettingsError("\n".join(f"{file}: {line}" for line in unknown))
    if "policy" not in content:
        raise SettingsError(f"{file}: has no [policy]")
    mistyped = list(_mistyped_numbers(file, {"policy": content["policy"]}))
    try:
        policy = Policy.model_validate(content["policy"])
    except ValidationError as error:
        raise SettingsError(
            message_of(error, lambda problem: f"{file}: {_problem_in('policy', problem)}", mistyped)
        ) from None
    if mistyped:
        raise SettingsError(bounded(mistyped))
    return policy


def override(settings: Settings, section: str, values: Mapping[str, Any]) -> Settings:
    """Return the settings with some of a section's values replaced, as by command-line options.

    Raises:
        SettingsError: a value is invalid.
    """
    model = getattr(settings, section)
    try:
        changed = type(model).model_validate({**model.model_dump(exclude_unset=True), **values})
    except ValidationError as error:
        raise SettingsError(message_of(error, partial(_problem_in, section))) from None
    return settings.model_copy(update={section: changed})


def _problem_in(section: str, error: ErrorDetails) -> str:
    """Return the line of a problem in a section that was read alone."""
    return problem({**error, "loc": (section, *error["loc"])})
