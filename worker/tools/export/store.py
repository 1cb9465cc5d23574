"""The dataset's folder, local or in an object store: files appear whole, and one export at a time writes.

Files are staged first, and published when all are whole. Locally, the kernel locks the folder, and unlocks it
when the process ends, however. An object store has no such lock, but lists what was written before: an export
writes a claim and lists all; if there is another one that is renewed, it withdraws its own. So of two at
once, at least one sees the other.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.extras import extra

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

RENEWAL = 5.0
"""Seconds between the renewals of a claim."""

DEAD = 3 * RENEWAL
"""Seconds after which a claim that was not renewed is one of an export that was killed."""

_LOCK = ".lock"
_STAGING = ".staging"
_CHUNK = 8_388_608


class Store:
    """A folder of files, by paths relative to it.

    Attributes:
        place: its path or URL, for people.
        staging: a local folder for files that are not published yet; a local store has it inside, so that a
            rename publishes them.
    """

    def __init__(self, place: str, files: FileSystem, folder: str, staging: Path) -> None:
        self.place = shown(place)
        self.staging = staging
        self._files = files
        self._folder = folder.rstrip("/")
        self._claim: str | None = None

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Claim a folder of an object store, and renew the claim."""
        self._claim, ended, number = f"{_LOCK}/{uuid.uuid4().hex}", Event(), count(1)

        def renew() -> None:
            text = f"{socket.gethostname()} process {os.getpid()}, {next(number)}"
            write(self, str(self._claim), text.encode())

        def keep_renewing() -> None:
            while not ended.wait(RENEWAL):
                with suppress(OSError):  # the export itself will tell what is wrong
                    self.require_claim()
                    renew()

        renew()
        renewing = Thread(target=keep_renewing, daemon=True)
        renewing.start()
        try:
            _require_sole(self, self._claim)
            yield
        finally:
            ended.set()
            renewing.join()
            with suppress(OSError):
                self.delete(self._claim)

    def require_claim(self) -> None:
        """Raise an OSError if another export took over, as after a pause of this process."""
        if self._claim is not None and self.read(self._claim) is None:
            raise OSError("another export took over, since this one did not renew its claim")

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if there is none."""
        try:
            with self._files.open_input_stream(f"{self._folder}/{path}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def publish(self, path: str) -> None:
        """Let a staged file, of which nothing remains, appear in place of any other."""
        staged, target = self.staging / path, f"{self._folder}/{path}"
        if self.staging.parent == Path(self._folder):
            _rename(staged, Path(target))
            return
        # Not by pyarrow's `copy_files`, which only prints that an upload has failed.
        with staged.open("rb") as file, self._files.open_output_stream(target) as stream:
            shutil.copyfileobj(file, stream, _CHUNK)
        if (size := self._files.get_file_info(target).size) != staged.stat().st_size:
            raise OSError(f"{path} has {size} bytes after it was uploaded, not {staged.stat().st_size}")
        staged.unlink()

    def delete(self, path: str) -> None:
        """Delete a file, if there is one."""
        with suppress(FileNotFoundError):
            self._files.delete_file(f"{self._folder}/{path}")

    def names(self, path: str = "") -> list[str]:
        """Return the names in the folder, or in one below it, but for the lock and what is staged."""
        from pyarrow import fs  # noqa: PLC0415

        folder = fs.FileSelector(f"{self._folder}/{path}".rstrip("/"), allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(folder)]
        return sorted({*names} - {_LOCK, _STAGING})


def _rename(staged: Path, target: Path) -> None:
    """Rename a file once its content is on the disk, and let that be there, too."""
    with staged.open("rb+") as file:
        os.fsync(file.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _local(folder: Path) -> Iterator[Store]:
    with extra("export"):
        from pyarrow import fs  # noqa: PLC0415 - slow to import
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another export is writing to it; wait for its end") from None
        store = Store(str(folder), fs.LocalFileSystem(), str(folder), folder / _STAGING)
        shutil.rmtree(store.staging, ignore_errors=True)  # of an export that was killed
        try:
            yield store
        finally:
            shutil.rmtree(store.staging, ignore_errors=True)


@contextmanager
def _remote(place: str) -> Iterator[Store]:
    with extra("export"):
        from pyarrow import fs  # noqa: PLC0415 - slow to import
    try:
        files, folder = fs.FileSystem.from_uri(place)
    except ValueError as error:  # of pyarrow: not a URL that it knows
        raise InputError(f"{shown(place)}: {error}") from error
    with tempfile.TemporaryDirectory(prefix="kp-export-") as staging:
        store = Store(place, files, folder, Path(staging))
        with store.claimed():
            yield store


def write(store: Store, path: str, content: bytes) -> None:
    """Let a file with this content appear, in place of any other."""
    staged = store.staging / path
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.write_bytes(content)
    store.publish(path)


@contextmanager
def open_store(place: str) -> Iterator[Store]:
    """Lock a folder, which is created if need be, for one export.

    Raises:
        InputError: another export writes there, or the folder cannot be used.
    """
    with errors_of(place), _remote(place) if "://" in place else _local(Path(place)) as store:
        yield store


@contextmanager
def errors_of(place: str) -> Iterator[None]:
    """Convert an OSError to an InputError that names the folder."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"{shown(place)}: cannot be written: {reason}; the same command continues where this one ended"
        ) from error


def shown(place: str) -> str:
    """Return a folder's URL without what may be secret in it."""
    return re.sub(r"(?<=://)[^/@]*@|\?.*", "", place) if "://" in place else place


def _claims(store: Store) -> dict[str, bytes | None]:
    return {name: store.read(name) for name in (f"{_LOCK}/{one}" for one in store.names(_LOCK))}


def _require_sole(store: Store, mine: str) -> None:
    """Delete the claims of others that are not renewed; refuse if one is."""
    others = _claims(store)
    others.pop(mine, None)
    if others:
        time.sleep(DEAD)
    for name, text in _claims(store).items():
        if name in others and text == others[name]:
            store.delete(name)
        elif name in others and text is not None:
            holder = text.decode().rpartition(",")[0]
            raise InputError(f"{store.place}: another export is writing to it: {holder}; wait for its end")
