"""Command-line options shared by several tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from knowledgepulse_worker.tools.terminal.arguments import LazyChoice, Moment

Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(*added: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Return a decorator that adds options, in the order in which `--help` lists them."""

    def add(function: Function) -> Function:
        for option in reversed(added):
            function = option(function)
        return function

    return add


def embedder_option(told: str) -> Callable[[Function], Function]:
    """Return the option that overrides the setting embedding.backend."""
    return click.option(
        "--embedder", type=click.Choice(["none", "lexical", "sentence-transformers"]), help=told
    )


def key_option(told: str) -> Callable[[Function], Function]:
    """Return the option for the record key."""
    keys = LazyChoice("knowledgepulse_worker.tools.common.record_key:KeyBy")
    return click.option("--key", type=keys, default="id", help=told)


def period_options(told: str) -> Callable[[Function], Function]:
    """Return the options for records of a period."""
    since = f"{told} from this time on: 2026-01-31T12:00, in UTC by default, or an age such as 2h. "
    return with_options(
        click.option("--since", type=Moment(), help=f"{since}The time is that of the raw record."),
        click.option("--until", type=Moment(), help=f"{told} before this time."),
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
json_lines_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
