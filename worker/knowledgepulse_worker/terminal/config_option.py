"""The option that all commands with settings share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


def config_option(function: Function) -> Function:
    """Add `--config`."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path),  # loading the settings checks that it is readable
        help="TOML file with the settings; KP_<SECTION>__<KEY> variables override it.",
    )(function)
