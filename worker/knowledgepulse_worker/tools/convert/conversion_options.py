"""The options of a conversion, without what converts: a hook is quick."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from knowledgepulse_worker.message_text import did_you_mean
from knowledgepulse_worker.tools.terminal.arguments import EXISTING, LazyChoice, Moment
from knowledgepulse_worker.tools.terminal.options import with_options


class Format(LazyChoice):
    """The name of an input format, of which there are too many to list beside an option."""

    def __init__(self) -> None:
        super().__init__("knowledgepulse_convert:INPUT_FORMATS", "auto")

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the word for the value."""
        return "FORMAT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        name = str(value)
        if name not in self.choices:
            hint = did_you_mean(name, self.choices)
            self.fail(f"there is no format {name!r}; {hint}`kp-worker convert --formats` lists them")
        return name


FORMAT = Format()


@dataclass(frozen=True, slots=True)
class Selection:
    """The sessions of a database that are wanted; all of them by default.

    Attributes:
        ids: Their ids, as the program's own.
        since: The earliest time when they were last active.
        newest: How many of them, the newest.
    """

    ids: tuple[str, ...] = ()
    since: datetime | None = None
    newest: int | None = None


EVERYTHING = Selection()
_SELECTING = ("session", "since", "newest")


def selection_options(place: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options that choose sessions of a place; the command receives them as ``wanted``."""
    add = with_options(
        click.option(
            "--session", metavar="ID", multiple=True, help="Session of an agent's database. Repeatable."
        ),
        click.option("--since", type=Moment(), help=f"Sessions {place} that were active since then."),
        click.option("--newest", type=click.IntRange(1), metavar="N", help=f"The newest N sessions {place}."),
    )

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def bundled(**values: Any) -> Any:
            ids, since, newest = (values.pop(name) for name in _SELECTING)
            return command(wanted=Selection(ids, since, newest), **values)

        return add(bundled)

    return added


_NAMES = (
    *("domain", "domain_map", "outcomes", "success_from", "visibility", "privacy_level"),
    *("keep_prompt", "per_request", "objective"),
)
_add = with_options(
    click.option(
        "--domain",
        metavar="[NAME=]DOMAIN",
        multiple=True,
        help="Task domain of the traces, or of those of an agent, service, project or format. Repeatable.",
    ),
    click.option("--domain-map", type=EXISTING, help="TOML file of such task domains."),
    click.option(
        "--outcomes",
        type=EXISTING,
        help="JSON Lines file of how runs ended: a run's or trace's `id`, `success`, `confidence`, `reward`.",
    ),
    click.option(
        "--success-from",
        metavar="NAME[=NUMBER]",
        multiple=True,
        help="Score that judges the runs: at least NUMBER, 1 by default, is a success. Repeatable.",
    ),
    click.option(
        "--visibility",
        type=click.Choice(["private", "org", "network"]),
        help="Visibility of the traces; private by default.",
    ),
    click.option(
        "--privacy-level",
        type=click.Choice(["aggregated", "federated", "private"]),
        help="Privacy level of the traces; private by default. Private traces never leave the organization.",
    ),
    click.option(
        "--keep-prompt",
        is_flag=True,
        help="Keep system text and tool definitions, as task.system and task.tools.",
    ),
    click.option(
        "--per-request", is_flag=True, help="Make one trace per user request instead of one per run."
    ),
    click.option(
        "--objective",
        metavar="TEXT",
        help="Objective of runs that contain no user message, such as streams without a prompt.",
    ),
)


def conversion_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a conversion; the command receives them as ``conversion``, for `read_options`."""

    @wraps(command)
    def bundled(**values: Any) -> Any:
        return command(conversion={name: values.pop(name) for name in _NAMES}, **values)

    return _add(bundled)


def refuse_conversion(options: Iterable[str], told: str) -> None:
    """Refuse the options of a conversion if nothing is converted.

    Args:
        options: their names.
        told: what happens to the traces without a conversion.
    """
    context = click.get_current_context()
    given = [name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{names} needs --from: without it, {told}")
