"""The lines of files that people wrote."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from knowledgepulse_worker.errors import InputError


def without_mark(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file without the byte order mark that some Windows editors put at its start."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix(BOM_UTF8)


@contextmanager
def file_errors(path: object, action: Literal["read", "written"]) -> Iterator[None]:
    """Raise an InputError where the operating system refuses to read or write a file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be {action}: {error.strerror}") from error


def located_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the non-empty lines of a file, each with its location ``file:line``.

    Raises:
        InputError: the file is empty or cannot be read.
    """
    empty = True
    with file_errors(path, "read"), path.open("rb") as file:
        for number, text in enumerate(without_mark(file), start=1):
            if line := text.strip():
                empty = False
                yield f"{path}:{number}", line
    if empty:
        raise InputError(f"{path}: is empty")
