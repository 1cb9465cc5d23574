"""A folder of traces that wait for the brokers."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from knowledgepulse_worker.terminal.lines import file_errors

_LEFT = ".jsonl"
_REJECTED = ".rejected"


@dataclass(frozen=True)
class Spool:
    """Traces are first written to a file here, and deleted once the brokers have confirmed all of it.

    So nothing is lost if they are away or the process is killed; in between, a trace is published twice.
    """

    folder: Path  # created if it is missing; only its owner can read it

    def add(self, lines: Iterable[bytes]) -> None:
        """Write lines to a new file: all of them, or no file and an InputError."""
        with file_errors(self.folder, "written"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(lines)

    def _write(self, lines: Iterable[bytes]) -> None:
        part = self.folder / f"{time.time_ns():020}-{os.getpid()}.part"
        try:
            with open(part, "xb", opener=_private) as file:
                file.writelines(line.strip() + b"\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            if part.stat().st_size:
                part.rename(part.with_suffix(_LEFT))
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def files(self) -> Iterator[list[Path]]:
        """Yield the files, oldest first, that no other process sends meanwhile; or raise an InputError."""
        with file_errors(self.folder, "read"):
            lock = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield sorted(self.folder.glob(f"*{_LEFT}"))
        finally:
            os.close(lock)


def reject(file: Path) -> Path:
    """Set aside a file with a trace that is too large, so that it does not hold up those after it."""
    return file.rename(file.with_suffix(_REJECTED))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)
