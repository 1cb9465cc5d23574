"""The lines of files that people wrote."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from knowledgepulse_worker.errors import InputError

MAX_LINE = 256 * 2**20
"""Bytes of a line, and of a document on several lines. A device without an end has no line's end, either."""


def too_long(name: str, most: int) -> InputError:
    """Return the error for a file with a line, or a document, of more than so many bytes."""
    return InputError(f"{name}: has a line or a document of more than {most // 2**20} MiB")


def json_or_none(text: bytes) -> Any:
    """Return what JSON says; None if the text is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


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
        InputError: the file is empty, cannot be read, or has a line of more than :data:`MAX_LINE`.
    """
    empty = True
    with file_errors(path, "read"), path.open("rb") as file:
        for number, text in enumerate(without_mark(iter(partial(file.readline, MAX_LINE + 1), b"")), start=1):
            if len(text) > MAX_LINE:
                raise too_long(str(path), MAX_LINE)
            if line := text.strip():
                empty = False
                yield f"{path}:{number}", line
    if empty:
        raise InputError(f"{path}: is empty")
