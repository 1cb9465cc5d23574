"""A file of labels that grows by one line at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import msgspec

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.policies.labels import Label, read_label


@contextmanager
def open_labels(path: Path) -> Iterator[LabelFile]:
    """Open a file of labels, or create it.

    Raises:
        InputError: it cannot be opened, is open in another process, or has a line that is not a label.
    """
    try:
        opened = path.open("a+b", buffering=0)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{path}: is being written by another `kp-worker policy label`") from None
        yield LabelFile(path, opened)


class LabelFile:
    """The labels of a file, and its only writer.

    What a writer that was killed left half written is removed: that label was never confirmed.

    Args:
        file: the file, open for appending, without a buffer.

    Attributes:
        labels: the labels that the file had when it was opened, in its order.
        removed: the text of a last line that was half written, safe to print; empty if there was none.

    Raises:
        InputError: a line is not a label.
    """

    def __init__(self, path: Path, file: FileIO) -> None:
        self.path = path
        self.removed = ""
        self._file = file
        self.labels = self._read()
        self._sizes = [self._file.seek(0, os.SEEK_END)]

    def _read(self) -> list[Label]:
        self._file.seek(0)
        text = self._file.read()
        *lines, last = text.split(b"\n")
        if last and _is_label(last):  # somebody's editor ended the file without a line feed
            self._write(b"\n")
            lines.append(last)
        elif last:
            self.removed = printable(last.decode(errors="replace"))
            self._file.truncate(len(text) - len(last))
        numbered = enumerate((line.strip() for line in lines), start=1)
        return [read_label(f"{self.path}:{number}", line) for number, line in numbered if line]

    def append(self, label: Label) -> None:
        """Write a label to the disk.

        Raises:
            InputError: it cannot be written; the file is as before.
        """
        members = {name: value for name, value in msgspec.structs.asdict(label).items() if value is not None}
        try:
            self._write(msgspec.json.encode(members) + b"\n")
        except OSError as error:
            self._file.truncate(self._sizes[-1])
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from error
        self._sizes.append(self._file.seek(0, os.SEEK_END))

    def remove_last(self) -> None:
        """Remove the last label that this object wrote."""
        self._sizes.pop()
        self._file.truncate(self._sizes[-1])
        os.fsync(self._file.fileno())

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]
        os.fsync(self._file.fileno())


def _is_label(line: bytes) -> bool:
    try:
        read_label("", line)
    except InputError:
        return False
    return True
