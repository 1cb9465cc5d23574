"""What the commands print and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.changes import changes

_UNLIMITED = 10_000
"""Width of tables that are written to a file or a pipe: enough for all columns."""


def print_parts(*parts: str | Table) -> None:
    """Print lines, which the terminal may wrap, and tables, which are fitted to its width."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNLIMITED
    for part in parts:
        if isinstance(part, str):
            click.echo(part)
        else:
            console.print(part)


def print_changes(old: Policy, new: Policy, head: str) -> None:
    """Print the changes of a new policy below a head, or that there are none."""
    lines = changes(old, new)
    if not lines:
        print_parts("no effect on the score or decision of any trace")
    else:
        print_parts(head, *(f"  {line}" for line in lines))


def require_no_input(output: Path, inputs: Iterable[Path | None]) -> None:
    """Raise an InputError if writing a file would overwrite what the command reads."""
    if output.exists() and any(one is not None and one.exists() and one.samefile(output) for one in inputs):
        raise InputError(f"{output}: is read by this command; write to another file")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an OSError to an InputError that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
