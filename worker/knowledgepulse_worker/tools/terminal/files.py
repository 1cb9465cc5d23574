"""Reading lines from a command's files, and printing lines."""

from __future__ import annotations

import shlex
import stat
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
from rich.progress import Progress, TaskID

from knowledgepulse_worker.errors import InputError, InvalidRecordError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.tools.terminal.console import errors, tell
from knowledgepulse_worker.tools.terminal.lines import (
    MAX_LINE,
    file_errors,
    json_or_none,
    too_long,
    without_mark,
)
from knowledgepulse_worker.tools.terminal.unsupported_files import unsupported_beginning

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
}
"""The program that decompresses a file, by how the file begins."""

_MAX_DOCUMENT = 16_777_216
"""Bytes of a file that are read to tell its format."""
_MAX_BINARY = 4096
"""Bytes of a file that are looked at for a zero byte, which no text has."""
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


def lines_of(files: Iterable[str], progress: Progress, max_bytes: int | None = None) -> Iterator[Document]:
    """Yield the non-empty lines of files.

    ``max_bytes``: of a longer line, only so many bytes and one more are kept in memory.
    """
    for name, lines in opened(files, progress, max_bytes):
        for number, text in enumerate(lines, start=1):
            if text.strip():
                yield Document(f"{name}:{number}", text)


def refuse_other_files(files: Iterable[str]) -> None:
    """Raise an InputError with the remedy if a file's beginning shows that its lines are no traces."""
    for path in filter(Path.is_file, map(Path, files)):
        name = printable(str(path))
        with file_errors(name, "read"), path.open("rb") as file:
            problem = _problem(file.read(_MAX_DOCUMENT))
        if problem:
            raise InputError(f"{name}: {problem}".replace(_FILE, printable(shlex.quote(str(path)))))


def _problem(beginning: bytes) -> str:
    """Return why a file does not hold a trace per line, and the remedy; empty if it may.

    ``beginning``: its beginning, or all of it if it is small.
    """
    for mark, program in _COMPRESSED.items():
        if beginning.startswith(mark):
            return (
                f"is compressed, but lines of text are expected; decompress it with `{program} -dk {_FILE}`"
            )
    if unread := unsupported_beginning(beginning):
        return f"is {unread}"
    if b"\0" in beginning[:_MAX_BINARY]:
        return "is not a text; one JSON trace per line is expected"
    return _problem_of_text(beginning.removeprefix(BOM_UTF8).lstrip())


def _problem_of_text(text: bytes) -> str:
    first = text.partition(b"\n")[0].strip()
    several = {b"{": ".", b"[": "'.[]'"}.get(first)
    document = json_or_none(text if several else first)
    if document in ([], {}):
        return "is empty JSON; one JSON trace per line is expected"
    if document is not None:
        from knowledgepulse_convert import input_format_of  # noqa: PLC0415 - keeps `--help` fast

        if found := input_format_of(document):
            return (
                f"looks like {found.name}, not like traces; `--from {found.name}` converts it first, and "
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
            tell(f"{location}: {error.reason}: {error}")

    def show_rest(self) -> None:
        """Print how many were not named."""
        if self.count > _MAX_REJECTIONS:
            errors.print(f"and {self.count - _MAX_REJECTIONS:,} more")


def opened(
    files: Iterable[str], progress: Progress, max_bytes: int | None = None
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each file's name and lines, and advance the one progress bar; see :func:`lines_of`.

    Raises:
        InputError: a file cannot be read.
    """
    names = list(files)
    bar = _bar(progress, list(map(_size, names)))
    for name in names:
        progress.update(bar, description=printable(name))
        with file_errors(printable(name), "read"), click.open_file(name, "rb") as file:
            yield name, without_mark(_with_progress(name, file, partial(progress.advance, bar), max_bytes))


def _bar(progress: Progress, sizes: Sequence[int | None]) -> TaskID:
    """Return the bar of all files, with these sizes in its total; that of a pipe is not known."""
    known = sum(size for size in sizes if size is not None)
    if not progress.tasks:
        return progress.add_task("", total=None if None in sizes else known)
    (bar,) = progress.tasks
    if bar.total is not None:
        progress.update(bar.id, total=bar.total + known)
    return bar.id


def _size(name: str) -> int | None:
    """Return a file's size; None for a pipe, and for what cannot be read, which opening it tells."""
    try:
        status = Path(name).stat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _with_progress(
    name: str, file: IO[Any], advance: Callable[[float], None], max_bytes: int | None
) -> Iterator[bytes]:
    most = MAX_LINE + 1 if max_bytes is None else max_bytes + 2  # with what ends the line
    while True:
        with file_errors(printable(name), "read"):
            line = rest = file.readline(most)
            advance(size := len(line))
            while len(rest) == most and not rest.endswith(b"\n") and size <= MAX_LINE:
                rest = file.readline(most)
                advance(len(rest))
                size += len(rest)
        if not line:
            return
        if size > MAX_LINE:
            raise too_long(printable(name), MAX_LINE)
        yield line
