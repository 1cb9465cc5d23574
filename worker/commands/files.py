"""Reading lines from a command's files, and printing lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click
from rich.progress import Progress

from worker.errors import RejectedRecord
from worker.progress import errors
from worker.terminal import printable

files_argument = click.argument("files", nargs=-1, required=True, type=click.File("rb"))
"""Files to read; `-` is standard input."""


def echo(line: str, progress: Progress) -> None:
    """Print a line to standard output; on a terminal, above the progress bar."""
    if errors.is_terminal and sys.stdout.isatty():
        progress.print(line, markup=False, emoji=False)
    else:
        click.echo(line)


@dataclass(frozen=True)
class Document:
    """A JSON document and its location, `file` or `file:line`."""

    place: str
    text: bytes


def lines_of(files: Iterable[BinaryIO], progress: Progress) -> Iterator[Document]:
    """Yield the non-empty lines of files."""
    for name, lines in opened(files, progress):
        for number, text in enumerate(lines, start=1):
            if text.strip():
                yield Document(f"{name}:{number}", text)


def print_rejected(document: Document, error: RejectedRecord) -> None:
    """Print a document's location, and why it is not a trace, on standard error."""
    errors.print(printable(f"{document.place}: {error.reason}: {error}"), markup=False, emoji=False)


def opened(files: Iterable[BinaryIO], progress: Progress) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each file's name and lines, and advance the progress bar."""
    for file in files:
        name = getattr(file, "name", "-")  # a replaced standard input may have no name
        task = progress.add_task(name, total=Path(name).stat().st_size if Path(name).is_file() else None)
        yield name, _with_progress(file, partial(progress.advance, task))


def _with_progress(lines: Iterable[bytes], advance: Callable[[float], None]) -> Iterator[bytes]:
    for line in lines:
        advance(len(line))
        yield line
