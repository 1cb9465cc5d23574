"""The dataset's folder, local or in an object store. Files appear whole, and one export writes at a time.

Files are staged first, and published once all are complete. The kernel locks a local folder, and unlocks it
when the process ends for any reason. An object store has no such lock, but its listings are consistent: an
export writes a claim and lists all claims. If another claim is being renewed, the export withdraws its own.
Therefore, at least one of two concurrent exports sees the other.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path, PurePosixPath
from threading import Event, Thread

from pyarrow import fs

from knowledgepulse_kafka.safe_text import without_secrets
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.tools.common.durable_files import try_lock

RENEWAL_INTERVAL = 5.0
"""Seconds between the renewals of a claim."""

RENEWAL_LIMIT = 3 * RENEWAL_INTERVAL
"""Seconds without a renewal after which a claim's export counts as killed."""

_LOCK = ".lock"
_STAGING = ".staging"
_CHUNK = 8_388_608

_FILE_MODE, _FOLDER_MODE = 0o600, 0o700
"""The modes of new files and folders, which may hold traces that are private; a changed mode is kept."""


class Store:
    """A folder of files, by paths relative to it.

    Args:
        name: its path or URL.
        files: the file system.
        folder: the folder's path in the file system.
        staging: a local folder for files that are not published yet. A local store contains it, so that a
            rename publishes a file.
    """

    def __init__(self, name: str, files: fs.FileSystem, folder: str, staging: Path) -> None:
        self.name = name
        self.staging = staging
        self._files = files
        self._folder = folder.rstrip("/")
        self._claim: str | None = None

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if there is none.

        Raises:
            InputError: the path leads out of the folder, or does not lead to a file.
        """
        target = self._path(path)
        if self._is_local and Path(target).exists() and not Path(target).is_file():
            raise InputError(f"{self.name}/{path}: is not a file")
        try:
            with self._files.open_input_stream(target) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file."""
        staged = self.staging / path
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(content)
        self.publish(path)

    def publish(self, path: str) -> None:
        """Move a staged file to its place, where it replaces any other file."""
        staged, target = self.staging / path, self._path(path)
        if self._is_local:
            folder = Path(self._folder)
            if not Path(target).parent.resolve().is_relative_to(folder.resolve()):
                raise InputError(f"{self.name}/{path}: leads out of the dataset through a link")
            _rename(staged, Path(target))
            return
        # pyarrow's `copy_files` only prints that an upload has failed.
        with staged.open("rb") as file, self._files.open_output_stream(target) as stream:
            shutil.copyfileobj(file, stream, _CHUNK)
        if (size := self._files.get_file_info(target).size) != staged.stat().st_size:
            raise OSError(f"{path}: has {size} bytes after the upload instead of {staged.stat().st_size}")
        staged.unlink()

    def delete(self, path: str) -> None:
        """Delete a file, if there is one."""
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(path))

    @property
    def _is_local(self) -> bool:
        return self.staging.parent == Path(self._folder)

    def _path(self, path: str) -> str:
        """Return a file's path in the file system.

        Raises:
            InputError: it leads out of the folder; the manifest may name any path.
        """
        relative = PurePosixPath(path)
        if relative.is_absolute() or ".." in relative.parts or "\0" in path:
            raise InputError(
                f"{self.name}: its manifest names a file outside of the dataset: {printable(path[:200])}"
            )
        return f"{self._folder}/{path}"

    def names(self, path: str = "") -> list[str]:
        """Return the names in the folder or a subfolder, except those of the lock and the staging folder."""
        folder = fs.FileSelector(f"{self._folder}/{path}".rstrip("/"), allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(folder)]
        return sorted({*names} - {_LOCK, _STAGING})

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Claim a folder of an object store, and renew the claim."""
        self._claim, ended, number = f"{_LOCK}/{uuid.uuid4().hex}", Event(), count(1)

        def renew() -> None:
            text = f"{socket.gethostname()} process {os.getpid()}, {next(number)}"
            self.write(str(self._claim), text.encode())

        def keep_renewing() -> None:
            while not ended.wait(RENEWAL_INTERVAL):
                with suppress(OSError):  # the export itself will raise it
                    self.require_claim()
                    renew()

        renew()
        renewing = Thread(target=keep_renewing, daemon=True)
        renewing.start()
        try:
            self._require_sole()
            yield
        finally:
            ended.set()
            renewing.join()
            with suppress(OSError):
                self.delete(self._claim)

    def require_claim(self) -> None:
        """Raise an OSError if another export took over, for example after a pause of this process."""
        if self._claim is not None and self.read(self._claim) is None:
            raise OSError("another export took over, because this one did not renew its claim in time")

    def _require_sole(self) -> None:
        """Delete the claims of killed exports; raise an InputError if another export is running."""
        paths = [path for name in self.names(_LOCK) if (path := f"{_LOCK}/{name}") != self._claim]
        before = {path: self.read(path) for path in paths}
        if before:
            time.sleep(RENEWAL_LIMIT)
        for path, text in before.items():
            now = self.read(path)
            if now == text:
                self.delete(path)
            elif now is not None:
                holder = printable(now.decode(errors="replace").rpartition(",")[0][:200])
                raise InputError(
                    f"{self.name}: another export is writing to it: {holder}; wait until it has ended"
                )


def _rename(staged: Path, target: Path) -> None:
    """Rename a file once its content is on the disk, and wait until the new name is on the disk, too."""
    with staged.open("rb+") as file:
        os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode) if target.exists() else _FILE_MODE)
        os.fsync(file.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def open_store(name: str, *, writes: bool = True) -> Iterator[Store]:
    """Open a dataset's folder; for writing, create it if it does not exist, and lock it.

    Raises:
        InputError: another export writes to the folder, or it cannot be used.
    """
    shown = without_secrets(name) if "://" in name else name
    try:
        if "://" in name:
            try:
                files, folder = fs.FileSystem.from_uri(name)
            except ValueError as error:  # an unknown kind of URL
                raise InputError(f"{shown}: {str(error).replace(name, shown)}") from error
            with tempfile.TemporaryDirectory(prefix="kp-export-") as staging:
                store = Store(shown, files, folder, Path(staging))
                with store.claimed() if writes else nullcontext():
                    yield store
        else:
            path = Path(name).absolute()
            store = Store(str(path), fs.LocalFileSystem(), str(path), path / _STAGING)
            with _locked(path, store.staging) if writes else nullcontext():
                yield store
    except OSError as error:
        used, more = ("written", "; run the same command again to continue") if writes else ("read", "")
        raise InputError(f"{shown}: cannot be {used}: {error.strerror or error}{more}") from error


@contextmanager
def _locked(folder: Path, staging: Path) -> Iterator[None]:
    """Lock a local folder, and delete the staged files of killed exports."""
    folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
    try:
        if not try_lock(lock):
            raise InputError(f"{folder}: another export is writing to it; wait until it has ended")
        shutil.rmtree(staging, ignore_errors=True)
        if os.path.lexists(staging):
            raise InputError(f"{staging}: cannot be deleted; delete it yourself and export again")
        staging.mkdir(_FOLDER_MODE)
        try:
            yield
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    finally:
        os.close(lock)
