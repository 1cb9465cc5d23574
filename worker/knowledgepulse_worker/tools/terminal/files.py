"""Reading lines from a command's files, and printing lines."""

from __future__ import annotations

import json
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
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.terminal.printable import printable_line
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.lines import file_errors, without_mark

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
}
"""The program that decompresses a file, by how the file begins."""

_MAX_DOCUMENT = 16_777_216
"""Bytes of a file that is read as one document, to tell its format."""
_MAX_REJECTIONS = 10
"""Documents of which each is named that is no trace; a picture has thousands of lines."""
_FILE = "\0"
"""Stands for the file in a command, since the name itself may contain anything."""


def echo(line: str | bytes, progress: Progress) -> None:
    """Print a line, in UTF-8 whatever the locale; on a terminal, above the progress bar."""
    if errors.is_terminal and sys.stdout.isatty():
        progress.print(line.decode() if isinstance(line, bytes) else line, markup=False, emoji=False)
    else:
        click.echo(line.encode() if isinstance(line, str) else line)


def echo_pieces(pieces: Iterable[bytes], progress: Progress) -> None:
    """Print a line that comes in pieces, as :func:`echo` does."""
    if errors.is_terminal and sys.stdout.isatty():
        echo(b"".join(pieces), progress)
        return
    stdout = click.get_binary_stream("stdout")
    stdout.writelines(pieces)
    stdout.write(b"\n")
    stdout.flush()


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


def refuse_other_files(files: Iterable[str]) -> None:
    """Raise an InputError with the remedy if a file's beginning shows that its lines are no traces."""
    for path in filter(Path.is_file, map(Path, files)):
        name = printable(str(path))
        with file_errors(name, "read"), path.open("rb") as file:
            first = next((line.strip() for line in without_mark(file) if line.strip()), b"")
            problem = _problem(path, first, is_small=path.stat().st_size <= _MAX_DOCUMENT)
        if problem:
            raise InputError(f"{name}: {problem}".replace(_FILE, printable(shlex.quote(str(path)))))


def _problem(path: Path, first: bytes, *, is_small: bool) -> str:
    """Return why a file does not hold a trace per line, and the remedy; empty if it may.

    Args:
        path: the file.
        first: its first line.
        is_small: whether it may be read as one document.
    """
    for mark, program in _COMPRESSED.items():
        if first.startswith(mark):
            return (
                f"is compressed, but lines of text are expected; decompress it with `{program} -dk {_FILE}`"
            )
    several = {b"{": ".", b"[": "'.[]'"}.get(first)
    document = _json(path.read_bytes() if several and is_small else first)
    if name := _format_of(document):
        return (
            f"looks like {name}, not like traces; `--from {name}` converts it first, and "
            f"`kp-worker convert {_FILE}` prints its traces"
        )
    if several:
        return (
            "has a trace on several lines, but one trace per line is expected; "
            f"convert it with `jq -c {several} {_FILE}`"
        )
    if isinstance(document, dict) and "quality_score" in document and "steps" not in document:
        return "is output of `kp-worker score`, and its traces are scored already"
    return ""


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _format_of(document: Any) -> str | None:
    """Return the name of the format from which `kp-worker convert` reads a document, if there is one."""
    if document is None:
        return None
    from knowledgepulse_schemas.convert import input_format_of  # noqa: PLC0415 - keeps `--help` fast

    input_format = input_format_of(document)
    return input_format.name if input_format else None


class Rejections:
    """The documents that are no traces: the first ones are named on standard error, all are counted.

    Attributes:
        count: their number.
    """

    def __init__(self) -> None:
        self.count = 0

    def show(self, location: str, error: InvalidRecordError) -> None:
        """Print a document's location, and why it is not a trace, if it is one of the first."""
        self.count += 1
        if self.count <= _MAX_REJECTIONS:
            errors.print(printable_line(f"{location}: {error.reason}: {error}"), markup=False, emoji=False)

    def show_rest(self) -> None:
        """Print how many were not named."""
        if self.count > _MAX_REJECTIONS:
            errors.print(f"and {self.count - _MAX_REJECTIONS:,} more")


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
