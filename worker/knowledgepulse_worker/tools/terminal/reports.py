"""Reports of commands: lines and tables, JSON, and files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from knowledgepulse_worker.tools.terminal.lines import file_errors

_UNLIMITED_WIDTH = 10_000
"""Width of tables that are written to a file or a pipe: enough for all columns."""


def print_parts(*parts: str | Table) -> None:
    """Print lines, which the terminal may wrap, and tables, which are fitted to its width."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNLIMITED_WIDTH
    for part in parts:
        if isinstance(part, str):
            click.echo(part)
        else:
            console.print(part)


def print_report(
    report: Any,
    parts: Iterable[str | Table],
    *,
    as_json: bool,
    proposal: str = "",
    output: Path | None = None,
) -> None:
    """Print a report as JSON or in words, and write the proposed policy to a file or print it below these."""
    if output:
        write_text(output, proposal)
    if as_json:
        click.echo(json.dumps(plain(report), indent=2))
    else:
        print_parts(*parts, *(["", proposal.rstrip()] if proposal and not output else []))


def plain(report: Any) -> Any:
    """Return a report of dataclasses and models as plain JSON, without the models' members that are None."""
    return msgspec.to_builtins(report, enc_hook=_plain_model)


def _plain_model(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    raise NotImplementedError(type(value))


def new_table(first: str, *others: str) -> Table:
    """Return a table without lines, of figures."""
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def write_text(path: Path, text: str) -> None:
    """Write a file; raise an InputError if that fails."""
    with file_errors(path, "written"):
        path.write_text(text, encoding="utf-8")
