"""The lines of files that people wrote."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator


def without_mark(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file without the byte order mark that some Windows editors put at its start."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix(BOM_UTF8)
