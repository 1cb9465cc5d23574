"""Files that are on the disk when a function returns, and files that one process uses at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import BinaryIO


def private(path: str, flags: int) -> int:
    """Open a file that, if it is new, only its owner may read; an opener for :func:`open`."""
    return os.open(path, flags, 0o600)


def write(path: Path, lines: Iterable[bytes], *, append: bool = False) -> None:
    """Write a file, or append to it, and wait until it is on the disk."""
    with open(path, "ab" if append else "wb", opener=private) as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())


def write_all(file: FileIO, pieces: Iterable[bytes]) -> None:
    """Write pieces to a file without a buffer, of which a full disk may take only the beginning."""
    for piece in pieces:
        rest = piece
        while rest:
            rest = rest[file.write(rest) :]


def try_lock(file: int | BinaryIO | FileIO) -> bool:
    """Lock a file until it is closed; return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
