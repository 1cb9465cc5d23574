"""What a folder holds: its manifest, and the plan of an export that is under way.

The plan is in the folder before anything else of its export. What is selected may depend on the machine's
rounding, and on what the topics hold, so it is decided once: an export that was cut off is completed by its
plan, to the same bytes. The manifest, which makes the files the dataset's, is written last.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import msgspec

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.export.store import Store

MANIFEST = "manifest.json"
PLAN = ".plan"

Counts = dict[str, dict[str, int]]
"""Numbers of traces by what the name says, such as ``split``, and its value."""


class File(msgspec.Struct, frozen=True):
    """A file of the dataset."""

    sha256: str
    size: int

    @classmethod
    def of(cls, content: bytes) -> File:
        """Describe a file with this content."""
        return cls(hashlib.sha256(content).hexdigest(), len(content))


class Export(msgspec.Struct, frozen=True):
    """What one export read, and what came of it.

    Attributes:
        number: from 1.
        offsets: of each part, the first that was read and the one behind the last.
        deleted: number of offsets that were deleted since the last export, and never read.
        read: number of records.
        dropped: number of records that are not in the dataset, by reason.
        counts: of its traces.
    """

    number: int
    offsets: dict[str, tuple[int, int]]
    deleted: int
    read: int
    dropped: dict[str, int]
    counts: Counts


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``manifest.json``.

    Attributes:
        source: of each topic or file, what tells it from another of the same name.
        choices: of the dataset.
        exports: in order.
        files: by path.
    """

    version: int = 1
    source: dict[str, str]
    choices: dict[str, Any]
    exports: tuple[Export, ...] = ()
    files: dict[str, File] = {}

    def end(self, part: str) -> int | None:
        """Return the offset behind the last one that was read of a part; None if none was."""
        return next((one.offsets[part][1] for one in reversed(self.exports) if part in one.offsets), None)

    def total(self, name: str) -> dict[str, int]:
        """Return a count over all exports, by value."""
        sums: dict[str, int] = {}
        for export in self.exports:
            for value, count in export.counts.get(name, {}).items():
                sums[value] = sums.get(value, 0) + count
        return dict(sorted(sums.items()))

    def to_json(self) -> bytes:
        """Return the file's content."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1) + b"\n"


class Planned(msgspec.Struct, frozen=True, array_like=True):
    """A record that an export writes.

    Attributes:
        part, offset: where it is.
        groups: what ties it to others.
        target: its split, domain and day, the folder of its files.
        vector: little-endian float32; empty without an embedder.
    """

    part: str
    offset: int
    groups: list[str]
    target: str
    vector: bytes


class Plan(msgspec.Struct, frozen=True):
    """The plan of an export; its rows are in the order of reading."""

    source: dict[str, str]
    choices: dict[str, Any]
    since_ms: int | None
    export: Export
    rows: list[Planned]


T = TypeVar("T", Manifest, Plan)


def read_state(store: Store, path: str, model: type[T]) -> T | None:
    """Return the folder's manifest or plan; None if there is none.

    Raises:
        InputError: the file is something else.
    """
    content = store.read(path)
    if content is None:
        return None
    decode = msgspec.json.decode if model is Manifest else msgspec.msgpack.decode
    try:
        return decode(content, type=model)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{store.place}/{path}: not of an export: {error}") from None
