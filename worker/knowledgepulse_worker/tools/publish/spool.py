"""A folder of traces that wait for the brokers, and of sessions that wait to be converted."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.common.durable_files import private, try_lock, write, write_all
from knowledgepulse_worker.tools.terminal.lines import file_errors

_TRACES, _SESSION = ".jsonl", ".session"
_PARTS = {".part": _TRACES, ".session-part": _SESSION}
"""The endings of files that are still written, each with that of the whole file."""
_REJECTED = ".rejected"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_COPY = 67_108_864
"""Bytes of a session that is copied. A larger one gets a second name instead, since an agent waits."""


_PIECE = 1_048_576
"""Bytes that are copied at a time."""


class NotSpooledError(InputError):
    """A spool cannot be written.

    Attributes:
        lines: those that it was to hold, and does not.
    """

    def __init__(self, folder: Path, error: OSError, lines: Iterable[bytes] = ()) -> None:
        super().__init__(f"{folder}: cannot be written: {error.strerror}")
        self.lines = lines


@dataclass(frozen=True)
class Spool:
    """Traces are first written to a file here, and deleted once the brokers have confirmed all of it.

    So nothing is lost if they are away or the process is killed; in between, a trace is published twice. A
    session waits here as its agent wrote it, until its traces wait in its place.
    """

    folder: Path  # created if it is missing; only its owner may write there, since all of it is published

    def keep(self, session: Path) -> None:
        """Let a session wait as it is; it is on disk when this returns.

        Raises:
            NotSpooledError: the folder cannot be written.
            InputError: the session cannot be read, or the folder is not only its owner's.
        """
        with file_errors(session, "read"):
            source = session.open("rb")
        try:
            with source, self._part(_new_name(), ".session-part") as (part, file):
                status = os.fstat(source.fileno())
                if status.st_size <= _MAX_COPY or not _linked(session, source, _whole(part)):
                    write_all(file, iter(partial(source.read, _PIECE), b""))
                    # A run without times of its own has that of its file.
                    os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
                    os.fsync(file.fileno())
                    _end(part, status.st_size)
        except OSError as error:
            raise NotSpooledError(self.folder, error) from error

    def add(self, lines: Iterable[bytes], name: str = "") -> None:
        """Write lines to a new file, or raise a NotSpooledError with those that have no place there.

        ``name``: that of the session whose traces they are.
        """
        lines, line, end = iter(lines), b"", 0
        try:
            with self._part(name or _new_name(), ".part") as (part, file):
                try:
                    for line in lines:
                        write_all(file, (line.strip(), b"\n"))
                        end = file.tell()
                    line = b""
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)
                    _end(part, end)
                    raise
                _end(part, end)
        except OSError as error:
            raise NotSpooledError(self.folder, error, chain([line], lines)) from error

    @contextmanager
    def _part(self, name: str, ending: str) -> Iterator[tuple[Path, FileIO]]:
        """Create a file, which is locked while its writer lives, and deleted unless it gets another name."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._opened()
        try:
            part = self.folder / f"{name}{ending}"
            with _new_part(part) as file:
                try:
                    yield part, file
                    os.fsync(folder)
                finally:
                    part.unlink(missing_ok=True)
        finally:
            os.close(folder)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (self.sessions or self.traces)

    @property
    def sessions(self) -> list[Path]:
        """The sessions that wait to be converted, oldest first."""
        return sorted(self.folder.glob(f"*{_SESSION}"))

    @property
    def traces(self) -> list[Path]:
        """The files of traces that wait to be published, oldest first."""
        return sorted(self.folder.glob(f"*{_TRACES}"))

    @contextmanager
    def taken(self) -> Iterator[bool]:
        """Yield whether no other process publishes what waits meanwhile.

        Raises:
            InputError: the folder cannot be read, or is not only its owner's.
        """
        with file_errors(self.folder, "read"):
            lock = self._opened()
        try:
            if not try_lock(lock):
                yield False
                return
            for part in sorted(path for ending in _PARTS for path in self.folder.glob(f"*{ending}")):
                with suppress(OSError):  # what cannot be taken over waits for another try
                    _take_over(part)
            yield True
        finally:
            os.close(lock)

    def _opened(self) -> int:
        """Open the folder; raise an InputError if others may write there, or it is a link."""
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError:
            if self.folder.is_symlink():
                raise InputError(f"{self.folder}: is a link; give the spool's own path") from None
            raise
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
            os.close(folder)
            raise InputError(
                f"{self.folder}: others may write there, and all of a spool is published; "
                "give a folder of your own with mode 700"
            )
        return folder


def opened(file: Path) -> BinaryIO | None:
    """Open a file of the spool; return None if it is a link, a pipe or anything else than a file.

    Raises:
        InputError: it cannot be read.
    """
    with file_errors(file, "read"):
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
                return None
            raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def reject(file: Path) -> Path:
    """Set aside what cannot be published, so that it does not hold up what comes after it."""
    return file.rename(file.with_suffix(_REJECTED))


def reject_line(file: Path, number: int, line: bytes) -> Path:
    """Set aside a line of a file, given its number; return the line's own file."""
    return _part_of(file, number, [line], _REJECTED)


def replace(file: Path, *parts: Sequence[tuple[int, bytes]]) -> list[Path]:
    """Replace a file by one for each part of its lines, given with their numbers; return those, in order."""
    files = [_part_of(file, part[0][0], (line for _, line in part), _TRACES) for part in parts if part]
    file.unlink()
    return files


def _part_of(file: Path, number: int, lines: Iterable[bytes], ending: str) -> Path:
    """Write lines of a file, given the first one's number, to a file that waits at the same place."""
    part = file.with_suffix(f".{number:06}{ending}")
    write(part, lines)
    return part


def _take_over(part: Path) -> None:
    """Let what a killed writer has left wait, of traces the whole lines; leave alone one that writes on."""
    if (file := opened(part)) is None:
        reject(part)
        return
    with file:
        if not try_lock(file):
            return
        text = file.read()
        size = text.rfind(b"\n") + 1 if _whole(part).suffix == _TRACES else len(text)
        os.truncate(part, size)
        _end(part, size)


def _new_part(part: Path) -> FileIO:
    """Create a file that is still written, and lock it."""
    while True:
        file = FileIO(part, "xb", opener=private)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process took it for one of a killed writer


def _linked(session: Path, source: BinaryIO, name: Path) -> bool:
    """Give a session a second name, if it is on the same file system."""
    with suppress(OSError):
        os.fsync(source.fileno())
        os.link(session, name)
        return True
    return False


def _end(part: Path, size: int) -> None:
    """Let a file of a size wait, unless it is empty."""
    part.rename(_whole(part)) if size else part.unlink()


def _new_name() -> str:
    return f"{time.time_ns():020}-{os.getpid()}"


def _whole(part: Path) -> Path:
    return part.with_suffix(_PARTS[part.suffix])
