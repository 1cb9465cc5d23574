"""Find the settings file of the folder in which a command runs.

As with ruff, dbt and others, nobody has to name the file that lies where they work. But a repository that was
cloned brings a file that its reader did not write. It must not choose which functions are imported, or which
server gets a password.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from knowledgepulse_worker.errors import SettingsError
from knowledgepulse_worker.settings.loading import parse_file, read_file
from knowledgepulse_worker.settings.models import ENV_PREFIX, NESTED
from knowledgepulse_worker.settings.section import SecretSection
from knowledgepulse_worker.settings.setting_paths import sections

SETTINGS_FILE = "worker.toml"
"""The name of the file that is found."""

_FUNCTIONS = (("kafka", "sasl_oauthbearer_token_provider"), ("redaction", "function"))
"""The settings that name a function to import."""


def find_settings(folder: Path, *, connects: bool) -> Path | None:
    """Return the settings file of a folder, or else of the nearest parent within the same repository.

    Args:
        folder: where to begin.
        connects: whether the command connects to servers that the file names.

    Raises:
        SettingsError: there is a file that may only be used if somebody names it, since another user may
            write it, or since a command that connects would import a function or send a secret for it.
    """
    places = [folder, *folder.parents]
    root = next((depth for depth, place in enumerate(places) if (place / ".git").exists()), 0)
    for place in places[: root + 1]:
        file = place / SETTINGS_FILE
        if file.is_file():
            if why := _why_not(file, connects=connects):
                raise SettingsError(
                    f"{file}: was found, but is used only if --config or KP_CONFIG names it: {why}"
                )
            return file
    return None


def _why_not(file: Path, *, connects: bool) -> str | None:
    status = file.stat()
    if status.st_uid not in {0, os.geteuid()}:
        return "it belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users may write it"
    if connects:
        values = parse_file(file, read_file(file))
        return next(chain(_functions(values), _secrets(values)), None)
    return None


def _functions(values: Mapping[str, Any]) -> Iterator[str]:
    for section, key in _FUNCTIONS:
        if key in _section(values, section):
            yield f"{section}.{key} names a function to import"


def _secrets(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a section of the file would send that is not in the file itself."""
    environment = {name.upper() for name in os.environ}
    for section, model in sections().items():
        given = _section(values, section)
        if not given or not issubclass(model, SecretSection):
            continue
        for secret in model.secrets():
            for key in (secret, f"{secret}_file"):
                variable = f"{ENV_PREFIX}{section}{NESTED}{key}".upper()
                if variable in environment:
                    yield f"{variable} would be sent to where [{section}] says"
            if f"{secret}_file" in given:
                yield f"{section}.{secret}_file names a file whose content is sent"


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name, {})
    return section if isinstance(section, dict) else {}
