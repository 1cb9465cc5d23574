"""Compressed files: their lines, as they are unpacked, and a bound on what is in memory at once.

A few bytes may unpack to gigabytes. So nothing is unpacked ahead, nor to the disk, and a document that is
longer than :data:`MAX_DOCUMENT` is refused. Whoever has such a file unpacks it and converts the result.
"""

from __future__ import annotations

import os
import struct
import zlib
from bz2 import BZ2File
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from gzip import GzipFile
from itertools import chain
from lzma import LZMAError, LZMAFile
from tempfile import TemporaryFile
from threading import Thread
from typing import IO, Any, TypeVar
from zipfile import BadZipFile, ZipFile, ZipInfo

import cramjam

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.terminal.lines import MAX_LINE, too_long

MAX_DOCUMENT = 64 * 2**20
"""Bytes that a document of a compressed file, or a member of an archive, may unpack to."""

UNPACKING_ERRORS = (
    *(BadZipFile, EOFError, NotImplementedError, OSError, OverflowError, RuntimeError, ValueError),
    *(LZMAError, struct.error, zlib.error, cramjam.DecompressionError),
)
"""What the libraries raise for files that are damaged, encrypted or packed by other methods."""


Part = TypeVar("Part")


class Lines:
    """The lines of a file, unpacked if it is compressed. An iterator.

    Attributes:
        is_packed: whether it is compressed.
    """

    def __init__(self, name: str, lines: Iterable[bytes]) -> None:
        lines = iter(lines)
        start = next(lines, b"")
        unpack = next((unpack for mark, unpack in _COMPRESSED.items() if start.startswith(mark)), None)
        self.is_packed = unpack is not None
        self._name = name
        self._lines: Iterator[bytes] = chain([start], lines)
        if unpack is not None:
            self._lines = _unpacked(name, self._lines, unpack)

    def __iter__(self) -> Iterator[bytes]:
        return self._lines

    def bounded(self, parts: Iterable[Part], size: Callable[[Part], int]) -> Iterator[Part]:
        """Yield parts of the file that will be in memory together; any number if it is not compressed.

        Raises:
            InputError: together they are larger than :data:`MAX_DOCUMENT`.
        """
        total = 0
        for part in parts:
            total += size(part)
            if self.is_packed and total > MAX_DOCUMENT:
                raise _too_large(self._name)
            yield part

    def joined(self, parts: Iterable[bytes]) -> bytes:
        """Return parts of the file joined; a list of them may take a hundred times as much memory.

        Raises:
            InputError: they are larger than :data:`MAX_DOCUMENT`, or than :data:`MAX_LINE` if the file is not
                compressed.
        """
        text = bytearray()
        for part in self.bounded(parts, len):
            text += part
            if len(text) > MAX_LINE:
                raise too_long(self._name, MAX_LINE)
        return bytes(text)


def _too_large(name: str) -> InputError:
    return InputError(
        f"{name}: unpacks to a document of more than {MAX_DOCUMENT / 2**20:g} MiB; if that is meant, unpack "
        "it and convert the result"
    )


def _unpacked(
    name: str, lines: Iterable[bytes], unpack: Callable[[IO[bytes]], AbstractContextManager[Any]]
) -> Iterator[bytes]:
    """Yield the lines of a compressed file.

    Raises:
        InputError: the file is damaged, or a line unpacks to more than :data:`MAX_DOCUMENT`.
    """
    with TemporaryFile() as packed:
        packed.writelines(lines)
        packed.seek(0)
        try:
            with unpack(packed) as file:
                while line := file.readline(MAX_DOCUMENT + 1):
                    if len(line) > MAX_DOCUMENT:
                        raise _too_large(name)
                    yield line
        except UNPACKING_ERRORS as error:
            raise InputError(f"{name}: not a whole compressed file: {error}") from error


@contextmanager
def _zstandard(packed: IO[bytes]) -> Iterator[IO[bytes]]:
    """Unpack in another thread, through a pipe: cramjam unpacks at once, and a pipe makes it wait."""
    reading, writing = os.pipe()
    failures = list[Exception]()

    def unpack() -> None:
        try:
            source, target = cramjam.File(f"/dev/fd/{packed.fileno()}"), f"/dev/fd/{writing}"
            cramjam.zstd.decompress_into(source, cramjam.File(target, read=False, write=True))
        except Exception as error:  # noqa: BLE001 - raised again where the file is read
            failures.append(error)
        finally:
            os.close(writing)

    thread = Thread(target=unpack, name="zstd", daemon=True)
    try:
        with open(reading, "rb") as unpacked:  # noqa: PTH123 - a descriptor
            thread.start()
            yield unpacked
    finally:
        thread.join()  # the pipe is closed, so it ends at its next write
    if failures:
        raise failures[0]


_ZSTANDARD = 93
"""The method of a zip archive's members that Inspect writes; Python's zipfile reads it from 3.14 on."""
_LOCAL_HEADER = struct.Struct("<26x2H")
"""What stands before a member: at its end, the lengths of its name and of its extra field."""


def read_member(archive: ZipFile, member: ZipInfo) -> bytes:
    """Return the first :data:`MAX_DOCUMENT` bytes, and one more, of an archive's member.

    Raises one of :data:`UNPACKING_ERRORS` if it cannot be unpacked, or is damaged.
    """
    if member.compress_type != _ZSTANDARD:
        with archive.open(member) as file:
            return file.read(MAX_DOCUMENT + 1)
    if member.flag_bits & 1:
        raise BadZipFile("it is encrypted")
    source = archive.fp
    if source is None:
        raise BadZipFile("it is closed")
    source.seek(member.header_offset)
    lengths = _LOCAL_HEADER.unpack(source.read(_LOCAL_HEADER.size))
    source.seek(sum(lengths), os.SEEK_CUR)
    content = b""
    with TemporaryFile() as packed:
        packed.write(source.read(member.compress_size))
        packed.seek(0)
        try:
            with _zstandard(packed) as file:
                content = file.read(MAX_DOCUMENT + 1)
        except UNPACKING_ERRORS:
            if len(content) <= MAX_DOCUMENT:  # else, it is that nobody reads the rest
                raise
    if len(content) <= MAX_DOCUMENT and zlib.crc32(content) != member.CRC:
        raise BadZipFile("its checksum is wrong")
    return content


_COMPRESSED: dict[bytes, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {
    b"\x1f\x8b": lambda packed: GzipFile(fileobj=packed),
    b"\x28\xb5\x2f\xfd": _zstandard,  # Codex' older rollouts
    b"BZh": BZ2File,
    b"\xfd7zXZ\x00": LZMAFile,
}
"""What unpacks a file, by how it begins."""

PACKED = (*_COMPRESSED, b"PK\x03\x04")
"""How a file begins that is unpacked; the last is an archive of Inspect."""
