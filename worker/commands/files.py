"""Lines of the files that a command is given, and lines that it prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click
from rich.progress import Progress

from worker.progress import errors

files_argument = click.argument("files", nargs=-1, required=True, type=click.File("rb"))
"""Files to read; `-` is standard input."""


def echo(line: str, progress: Progress) -> None:
    """Print a line to standard output; above the bar, which it would else run into, on a terminal."""
    if errors.is_terminal and sys.stdout.isatty():
        progress.print(line, markup=False, emoji=False)
    else:
        click.echo(line)


@dataclass(frozen=True)
class Line:
    """A line, and where it was read."""

    file: str
    number: int
    text: bytes


def lines_of(files: Iterable[BinaryIO], progress: Progress) -> Iterator[Line]:
    """Yield the files' lines but empty ones."""
    for name, lines in opened(files, progress):
        for number, text in enumerate(lines, start=1):
            if text.strip():
                yield Line(name, number, text)


def opened(files: Iterable[BinaryIO], progress: Progress) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each file's name and its lines, whose reading the bar follows."""
    for file in files:
        name = getattr(file, "name", "-")  # what stands in for standard input may have none
        task = progress.add_task(name, total=Path(name).stat().st_size if Path(name).is_file() else None)
        yield name, _followed(file, partial(progress.advance, task))


def _followed(lines: Iterable[bytes], advance: Callable[[float], None]) -> Iterator[bytes]:
    for line in lines:
        advance(len(line))
        yield line
