"""The state of a pull: a file that says which runs were taken, and survives a crash at any time.

Each line is JSON. The first says what is pulled and from when; each other one is a page of runs that was
taken. A line that a crash cut off counts as not written. When a pull is done, the file is replaced by a
short one, which keeps only the runs that a later pull may see again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self
from uuid import uuid4

import msgspec

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.backends.backend import RunListing
from knowledgepulse_worker.tools.backends.backend_client import shown_address
from knowledgepulse_worker.tools.common.durable_files import try_lock, write
from knowledgepulse_worker.tools.terminal.lines import file_errors

FILE, TOPIC = "file ", "topic "
"""The beginnings of the names of outputs."""


def cut(path: Path, size: int) -> None:
    """Cut a file to a size, if it is larger."""
    if path.stat().st_size > size:
        os.truncate(path, size)


def source_name(backend: str, url: str, project: str) -> str:
    """Return what is pulled, without the user and the password in its address."""
    return f"{backend} {shown_address(url)} {project}"


class _Head(msgspec.Struct):
    """The first line.

    Attributes:
        source: what is pulled.
        id: distinguishes this state from others, also of the same source.
        since_ms: the start of the next pull.
        taken: the runs that were taken and started at this time or later, with their starts.
        output: the output of the pull that is under way, or was interrupted; None if none is.
    """

    source: str
    id: str
    since_ms: int | None = None
    taken: dict[str, int] = {}
    output: str | None = None


class _Page(msgspec.Struct):
    """Another line: the runs of a page, and the mark of the output after it.

    A page without runs is the beginning of a pull.
    """

    taken: dict[str, int]
    mark: int


def _without_secrets(source: str) -> str:
    """Return the source of a state that an earlier release may have written, with the address as it was."""
    match source.split(" ", 2):
        case [backend, url, project]:
            return source_name(backend, url, project)
    return source


class PullState:
    """The runs that were taken. A context manager, which locks the file.

    Args:
        path: the file; None keeps the state in memory, for a single pull.
        source: what is pulled: backend, address and project.

    Raises:
        InputError: the file belongs to another pull, or cannot be used.
    """

    def __init__(self, path: Path | None, source: str) -> None:
        self._path = path
        self._lock = -1
        self._pages: list[_Page] = []
        self._head = _Head(source, uuid4().hex)

    def __enter__(self) -> Self:
        if self._path is None:
            return self
        with file_errors(self._path, "written"):
            self._lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._read(self._path)
            except InputError:
                os.close(self._lock)
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            os.close(self._lock)

    def _read(self, path: Path) -> None:
        if not try_lock(self._lock):
            raise InputError(f"{path}: another pull uses it")
        if not path.exists():
            return
        first, *lines = path.read_bytes().splitlines(keepends=True) or [b""]
        try:
            head = msgspec.json.decode(first, type=_Head)
            pages = [msgspec.json.decode(line, type=_Page) for line in lines if line.endswith(b"\n")]
        except msgspec.DecodeError as error:
            raise InputError(f"{path}: is no state of `kp-worker pull`: {error}") from None
        source = _without_secrets(head.source)
        if source != self._head.source:
            raise InputError(
                f"{path}: is the state of another pull, {source}; give each one a file of its own"
            )
        self._head, self._pages = msgspec.structs.replace(head, source=source), pages

    @property
    def id(self) -> str:
        """Distinguishes this state from others, also of the same source."""
        return self._head.id

    @property
    def since_ms(self) -> int | None:
        """The start time from which the next pull reads; None for all runs."""
        return self._head.since_ms

    @property
    def taken(self) -> dict[str, int]:
        """The runs that were taken and started at this time or later, with their starts."""
        return self._head.taken

    def interrupted(self, output: str) -> int | None:
        """Return the mark after the last page of a pull to this output that was interrupted; else None.

        If one to another file was interrupted, what was not recorded is cut off that file.

        Raises:
            InputError: a pull to a topic was interrupted, and this output is another one.
        """
        before = self._head.output
        mark = self._pages[-1].mark if self._pages else None
        if before in (None, output):
            return mark
        if before.startswith(TOPIC):
            raise InputError(f"{self._path}: a pull to {before} was interrupted; complete it there first")
        if before.startswith(FILE) and mark is not None:
            with suppress(FileNotFoundError):
                cut(Path(before.removeprefix(FILE)), mark)
        self._head = msgspec.structs.replace(self._head, taken=self._taken_up_to(mark), output=None)
        self._pages = []
        return None

    def begin(self, output: str, mark: int) -> None:
        """Begin a pull to an output, which completes one that was interrupted.

        Args:
            output: the name of the output.
            mark: its mark. Pages with a higher one are not in it, and are pulled again.
        """
        self._head = msgspec.structs.replace(self._head, taken=self._taken_up_to(mark), output=output)
        self._pages = []
        self._replace()
        self._append({}, mark)

    def _taken_up_to(self, mark: int | None) -> dict[str, int]:
        """Return the runs that were taken, also those of pages up to a mark."""
        pages = [page.taken for page in self._pages if mark is not None and page.mark <= mark]
        return {name: at for taken in (self._head.taken, *pages) for name, at in taken.items()}

    def take(self, listings: Sequence[RunListing], mark: int) -> None:
        """Record that the runs of a page were taken, and the mark of the output after it."""
        taken = {listing.id: listing.started_ms for listing in listings}
        self._head.taken.update(taken)
        self._append(taken, mark)

    def finish(self, since_ms: int | None) -> None:
        """End a pull; the next one reads from this start time on."""
        kept = {name: at for name, at in self.taken.items() if since_ms is None or at >= since_ms}
        self._head = msgspec.structs.replace(self._head, since_ms=since_ms, taken=kept, output=None)
        self._replace()

    def _append(self, taken: Mapping[str, int], mark: int) -> None:
        if self._path is not None:
            with file_errors(self._path, "written"):
                write(self._path, [msgspec.json.encode(_Page(dict(taken), mark)) + b"\n"], append=True)

    def _replace(self) -> None:
        if self._path is not None:
            part = self._path.with_name(f"{self._path.name}.part")
            with file_errors(self._path, "written"):
                write(part, [msgspec.json.encode(self._head) + b"\n"])  # ids may say what runs are about
                part.replace(self._path)
