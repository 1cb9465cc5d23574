"""Reading lines from a command's files, and printing lines."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
from rich.progress import Progress

from knowledgepulse_worker.errors import InputError, InvalidRecordError
from knowledgepulse_worker.terminal.console import errors
from knowledgepulse_worker.terminal.lines import file_errors, without_mark
from knowledgepulse_worker.terminal.printable import printable_line
from knowledgepulse_worker.texts import printable

files_argument = click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True)
)
"""Files to read; `-` is standard input."""


def echo(line: str, progress: Progress) -> None:
    """Print a line to standard output; on a terminal, above the progress bar."""
    if errors.is_terminal and sys.stdout.isatty():
        progress.print(line, markup=False, emoji=False)
    else:
        click.echo(line.encode())  # UTF-8 whatever the locale


@dataclass(frozen=True)
class Document:
    """A JSON document and its location, `file` or `file:line`."""

    location: str
    text: bytes


def lines_of(files: Iterable[str], progress: Progress) -> Iterator[Document]:
    """Yield the non-empty lines of files."""
    for name, lines in opened(files, progress):
        for number, text in enumerate(lines, start=1):
            if text.strip():
                yield Document(f"{name}:{number}", text)


def refuse_pretty_printed(files: Iterable[str]) -> None:
    """Raise an InputError if a file's JSON spans lines, none of which is a trace."""
    for path in filter(Path.is_file, map(Path, files)):
        with file_errors(printable(str(path)), "read"), path.open("rb") as file:
            first = next((line.strip() for line in without_mark(file) if line.strip()), b"")
        if wanted := {b"{": ".", b"[": "'.[]'"}.get(first):
            raise InputError(
                f"{printable(str(path))}: has a trace on several lines, but one trace per line is expected; "
                f"convert it with `jq -c {wanted} {printable(shlex.quote(str(path)))}`"
            )


def print_rejected(document: Document, error: InvalidRecordError) -> None:
    """Print a document's location, and why it is not a trace, on standard error."""
    errors.print(printable_line(f"{document.location}: {error.reason}: {error}"), markup=False, emoji=False)


def opened(files: Iterable[str], progress: Progress) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each file's name and lines, and advance the progress bar.

    Raises:
        InputError: a file cannot be read.
    """
    for name in files:
        with file_errors(printable(name), "read"):
            size = Path(name).stat().st_size if Path(name).is_file() else None
        task = progress.add_task(name, total=size)
        with file_errors(printable(name), "read"), click.open_file(name, "rb") as file:
            yield name, without_mark(_with_progress(name, file, partial(progress.advance, task)))


def _with_progress(name: str, file: IO[Any], advance: Callable[[float], None]) -> Iterator[bytes]:
    while True:
        with file_errors(printable(name), "read"):
            line = file.readline()
        if not line:
            return
        advance(len(line))
        yield line
