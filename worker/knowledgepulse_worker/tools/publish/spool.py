"""A folder of traces that wait for the brokers."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.terminal.lines import file_errors

_LEFT = ".jsonl"
_PART = ".part"
_REJECTED = ".rejected"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Spool:
    """Traces are first written to a file here, and deleted once the brokers have confirmed all of it.

    So nothing is lost if they are away or the process is killed; in between, a trace is published twice.
    """

    folder: Path  # created if it is missing; only its owner may write there, since all of it is published

    def add(self, lines: Iterable[bytes]) -> None:
        """Write lines to a new file: all of them, or no file and an InputError."""
        with file_errors(self.folder, "written"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(self._opened())
            self._write(lines)

    def _write(self, lines: Iterable[bytes]) -> None:
        part, file = self._new_part()
        try:
            with file:
                file.writelines(piece for line in lines for piece in (line.strip(), b"\n"))
                file.flush()
                os.fsync(file.fileno())
                if os.fstat(file.fileno()).st_size:
                    part.rename(part.with_suffix(_LEFT))
        finally:
            part.unlink(missing_ok=True)

    def _new_part(self) -> tuple[Path, BinaryIO]:
        """Create a file for lines, which is locked while its writer lives."""
        while True:
            part = self.folder / f"{time.time_ns():020}-{os.getpid()}{_PART}"
            file = open(part, "xb", opener=_private)  # noqa: SIM115 - the caller closes it
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                return part, file
            file.close()  # another process took it for one of a killed writer

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._files()

    @contextmanager
    def taken(self) -> Iterator[list[Path] | None]:
        """Yield the files, oldest first, that no other process sends meanwhile; None if one sends them.

        Raises:
            InputError: the folder cannot be read, or is not only its owner's.
        """
        with file_errors(self.folder, "read"):
            lock = self._opened()
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            for part in sorted(self.folder.glob(f"*{_PART}")):
                with suppress(OSError):  # what cannot be taken over waits for another try
                    _take_over(part)
            yield self._files()
        finally:
            os.close(lock)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{_LEFT}"))

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
    rejected = file.with_suffix(f".{number}{_REJECTED}")
    with open(rejected, "wb", opener=_private) as written:
        written.write(line)
        written.flush()
        os.fsync(written.fileno())
    return rejected


def _take_over(part: Path) -> None:
    """Let the whole lines wait that a writer has left which was killed; leave alone one that writes on."""
    if (file := opened(part)) is None:
        reject(part)
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        size = file.read().rfind(b"\n") + 1
        if size:
            os.truncate(part, size)
            part.rename(part.with_suffix(_LEFT))
        else:
            part.unlink()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)
