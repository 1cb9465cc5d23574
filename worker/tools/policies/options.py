"""The options of the commands that read scored traces."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, cast

import click

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.terminal.arguments import Moment
from knowledgepulse_worker.terminal.options import config_option
from knowledgepulse_worker.tools.policies.inputs import Inputs

Command = Callable[..., Any]

_PLOT_SUFFIXES = (".png", ".svg")


class NewFile(click.Path):
    """A file to write, in a folder that exists: known before minutes are spent on its content."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        path = cast("Path", super().convert(value, param, ctx))
        if self._suffixes and path.suffix.lower() not in self._suffixes:
            raise InputError(f"{path}: the suffix of a plot must be one of {', '.join(self._suffixes)}")
        if not path.parent.is_dir():
            raise InputError(f"{path}: cannot be written: {os.strerror(errno.ENOENT)}")
        return path


class Number(click.FloatRange):
    """A number in a range; NaN, which compares to nothing, is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            above = "<" if self.min_open else "<="
            accepted = "a number" if self.min is None else f"in the range {self.min:g}{above}x<={self.max:g}"
            self.fail(f"{value} is not {accepted}.", param, ctx)
        return number


SHARE = Number(0, 1, min_open=True)
SCORE = Number(0, 1)
POLICY_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

policy_option = click.option(
    "--policy", "policy_file", type=POLICY_FILE, help="Policy file to use instead of the settings' policy."
)
target_option = click.option(
    "--target",
    type=SHARE,
    default=0.1,
    show_default=True,
    help="Share of each domain's traces that should pass at most.",
)
reward_option = click.option(
    "--min-reward",
    type=Number(),
    default=0.5,
    show_default=True,
    help="Lowest reward of a trace worth keeping.",
)
output_option = click.option(
    "--output", type=NewFile(), help="Write the proposed [policy] to this file instead of printing it."
)
plot_option = click.option(
    "--plot", type=NewFile(*_PLOT_SUFFIXES), help="Write a plot to this .png or .svg file."
)


def count_option(default: int, most: int) -> Callable[[Command], Command]:
    """Return the option for how many traces to label."""
    return click.option(
        "--count",
        type=click.IntRange(1, most),
        default=default,
        show_default=True,
        help="Maximum number of traces.",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")


def source_options(command: Command) -> Command:
    """Add the options that select scored traces; all that `Inputs` has come to the command as ``given``."""

    @wraps(command)
    def bundled(**options: Any) -> Any:
        given = {name: options.pop(name) for name in Inputs.__dataclass_fields__ if name in options}
        return command(given=Inputs(**given), **options)

    return _with_all(
        bundled,
        click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path)),
        config_option,
        click.option(
            "--since",
            type=Moment(),
            help="From topics, read only records from this time on: 2026-01-31T12:00, in UTC by default, or "
            "an age such as 2h. A record's time is that of its raw record.",
        ),
        click.option("--until", type=Moment(), help="Read only records before this time."),
        click.option(
            "--embedder",
            type=click.Choice(["none", "lexical", "sentence-transformers"]),
            help="Embedder for raw traces, instead of embedding.backend.",
        ),
    )


def label_options(command: Command) -> Command:
    """Add the options that select labels."""
    return _with_all(
        command,
        click.option(
            "--labels",
            "label_files",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            multiple=True,
            help="File of labels, one JSON object per line: id, keep or reward, source, group. Repeatable.",
        ),
        click.option("--labels-topic", help="Topic of labels."),
    )


def _with_all(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
