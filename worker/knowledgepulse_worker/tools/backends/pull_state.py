"""The state of a pull: a file that says which runs were taken, and survives a crash at any time.

Each line is JSON. The first says what is pulled and from when; each other one is written once a page of runs
was taken. A line that a crash cut off counts as not written. When a pull is done, the file is replaced by a
short one, which keeps only the runs that a later pull may see again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.backends.backend import RunListing
from knowledgepulse_worker.tools.terminal.lines import file_errors


class _Head(msgspec.Struct):
    """The first line: the source, the start of the next pull, the runs after it that were taken."""

    source: str
    since_ms: int | None = None
    taken: dict[str, int] = {}


class _Page(msgspec.Struct):
    """Another line: the runs of a page, and the size of the output file with their traces.

    A page without runs is the beginning of a pull.
    """

    taken: dict[str, int]
    size: int


class PullState:
    """The runs that were taken. A context manager, which locks the file.

    Args:
        path: the file; None keeps the state in memory, for a single pull.
        source: what is pulled: backend, address and project.

    Attributes:
        since_ms: the start time from which the next pull reads; None for all runs.
        taken: the runs that were taken and started at this time or later, with their starts.
        size: the size of the output file after the last page of a pull that was interrupted, else None.

    Raises:
        InputError: the file belongs to another pull, or cannot be used.
    """

    def __init__(self, path: Path | None, source: str) -> None:
        self.since_ms: int | None = None
        self.taken: dict[str, int] = {}
        self.size: int | None = None
        self._path = path
        self._source = source
        self._lock = -1

    def __enter__(self) -> Self:
        if self._path is None:
            return self
        with file_errors(self._path, "written"):
            self._lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._path.exists():
                    self._read(self._path.read_bytes())
            except BlockingIOError:
                os.close(self._lock)
                raise InputError(f"{self._path}: another pull uses it") from None
            except InputError:
                os.close(self._lock)
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            os.close(self._lock)

    def _read(self, content: bytes) -> None:
        first, *lines = content.splitlines(keepends=True) or [b""]
        try:
            head = msgspec.json.decode(first, type=_Head)
            pages = [msgspec.json.decode(line, type=_Page) for line in lines if line.endswith(b"\n")]
        except msgspec.DecodeError as error:
            raise InputError(f"{self._path}: is no state of `kp-worker pull`: {error}") from None
        if head.source != self._source:
            raise InputError(
                f"{self._path}: is the state of another pull, {head.source}; give each one a file of its own"
            )
        self.since_ms, self.taken = head.since_ms, head.taken
        for page in pages:
            self.taken |= page.taken
            self.size = page.size

    def begin(self, size: int) -> None:
        """Begin a pull, whose traces are appended to an output file of this size."""
        self._replace()
        self._append({}, size)

    def take(self, listings: Sequence[RunListing], size: int) -> None:
        """Record that runs were taken. The output file has this size, with their traces on the disk."""
        taken = {one.id: one.started_ms for one in listings}
        self.taken |= taken
        self._append(taken, size)

    def finish(self, since_ms: int | None) -> None:
        """End a pull; the next one reads from this start time on."""
        self.since_ms, self.size = since_ms, None
        if since_ms is not None:
            self.taken = {name: started for name, started in self.taken.items() if started >= since_ms}
        self._replace()

    def _append(self, taken: Mapping[str, int], size: int) -> None:
        if self._path is not None:
            with file_errors(self._path, "written"), self._path.open("ab") as file:
                file.write(msgspec.json.encode(_Page(dict(taken), size)) + b"\n")
                file.flush()
                os.fsync(file.fileno())

    def _replace(self) -> None:
        if self._path is not None:
            part = self._path.with_name(f"{self._path.name}.part")
            with file_errors(self._path, "written"):
                with part.open("wb") as file:
                    head = _Head(self._source, self.since_ms, self.taken)
                    file.write(msgspec.json.encode(head) + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(self._path)
