"""The option that all commands with settings share, and the file that commands use which only read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from knowledgepulse_worker.message_text import printable

Function = TypeVar("Function", bound=Callable[..., Any])


def config_option(function: Function) -> Function:
    """Add `--config`."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path),  # loading the settings checks that it is readable
        envvar="KP_CONFIG",
        show_envvar=True,
        help="TOML file with the settings; KP_<SECTION>__<KEY> variables override it.",
    )(function)


def settings_file(config: Path | None, *, connects: bool) -> Path | None:
    """Return the settings file of a command that only reads: the one that is named, or else found.

    What was found is said on standard error. A command that sends, writes or runs for long takes only a file
    that is named.

    Args:
        config: the value of ``--config``.
        connects: whether the command connects to servers that the file names.

    Raises:
        SettingsError: there is a file that may only be used if it is named.
    """
    if config is not None:
        return config
    from knowledgepulse_worker.settings.finding import find_settings  # noqa: PLC0415 - keeps `--help` fast

    try:
        folder = Path.cwd()
    except FileNotFoundError:  # the folder was deleted, and nothing is in it
        return None
    found = find_settings(folder, connects=connects)
    if found is not None:
        click.echo(f"settings: {printable(str(found))}", err=True)
    return found
