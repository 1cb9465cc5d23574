"""What a folder holds: its manifest, and the plan of an export that is under way.

The plan is in the folder before anything else of its export. What is selected may depend on the machine's
rounding, and on what the topics hold, so it is decided once: an export that was cut off is completed by its
plan, to the same bytes. The manifest, which makes the files the dataset's, is written last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.redaction.departure import Departure
from knowledgepulse_worker.tools.export.dataset_store import Store

FLOAT32 = 4
"""Bytes of a number of a vector."""

MANIFEST = "manifest.json"
PLAN = ".plan"
TABLE = "data"
"""The folder of the Parquet files; those of other formats have the format's name."""

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

Format = Literal["messages", "atif"]


_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The options that all exports to one folder share."""

    also: tuple[Format, ...]  # what is written besides Parquet
    domain: tuple[str, ...]  # the traces' domains or task domains; empty for all
    min_score: float
    policy: str | None  # digest of the policy that traces are rescored under; None keeps their own score
    visibilities: tuple[str, ...]  # those that may leave, as of the levels; `private` does not even so
    privacy_levels: tuple[str, ...]
    best: int | None  # the number of traces with the highest scores that each export keeps; None for all
    diverse: int | None  # the number of traces that cover most, likewise
    seed: int
    shares: tuple[float, float]  # of validation and test, in percent
    embedder: str  # what vectors are computed with
    redacted: bool  # whether the traces are redacted copies
    not_cleaned: bool
    scan_secrets: bool

    @property
    def departure(self) -> Departure:
        """The traces that may leave."""
        return Departure(self.visibilities, self.privacy_levels, require_clean=not self.not_cleaned)


class File(msgspec.Struct, frozen=True):
    """A file of the dataset."""

    sha256: str
    size: int

    @classmethod
    def of(cls, content: bytes) -> File:
        """Describe a file with this content."""
        return cls(hashlib.sha256(content).hexdigest(), len(content))


class Export(msgspec.Struct, frozen=True):
    """What one export read, and what came of it."""

    number: _Number  # from 1
    offsets: dict[
        str, tuple[_Number, _Number]
    ]  # of each part, the first that was read and the one behind the last
    deleted: _Number  # number of offsets that were deleted since the last export, and never read
    read: _Number  # number of records
    dropped: dict[str, _Number]  # number of records that are not in the dataset, by reason
    counts: dict[str, dict[str, _Number]]  # of its traces, by what is counted, such as `split`, and its value


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``manifest.json``."""

    version: int = 1
    source: dict[str, str]  # of each topic or file, what tells it from another of the same name
    choices: Choices
    exports: tuple[Export, ...] = ()  # in order
    files: dict[str, File] = {}  # by path

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
    """A record that an export writes."""

    part: str  # where it is, with the offset
    offset: _Number
    groups: list[str]  # what ties it to others
    split: Split
    vector: bytes  # little-endian float32; empty without an embedder


class Plan(msgspec.Struct, frozen=True):
    """The plan of an export; its rows are in the order of reading."""

    source: dict[str, str]
    choices: Choices
    export: Export
    rows: list[Planned]


T = TypeVar("T", Manifest, Plan)


def read_state(store: Store, path: str, model: type[T]) -> T | None:
    """Return the folder's manifest or plan, or None; raise an InputError if the file is something else."""
    content = store.read(path)
    if content is None:
        return None
    decode = msgspec.json.decode if model is Manifest else msgspec.msgpack.decode
    try:
        return decode(content, type=model)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        remedy = "; delete it to plan the export again" if model is Plan else ""
        raise InputError(f"{store.name}/{path}: not of an export: {error}{remedy}") from None


def require_same(folder: str, begun: Manifest | Plan, source: dict[str, str], choices: Choices) -> None:
    """Raise an InputError if a dataset would go on with other options, or from another source."""
    names = (begun.source.keys() & source.keys()) or {*begun.source, *source}
    before, now = (
        msgspec.to_builtins(options) | {f"{name} (id)": ids.get(name) for name in names}
        for options, ids in ((begun.choices, begun.source), (choices, source))
    )
    differing = [f"{name} was {before[name]}, is {now[name]}" for name in now if before[name] != now[name]]
    if differing:
        raise InputError(
            f"{folder} is another dataset: {'; '.join(differing)}; repeat them, or export to another folder"
        )


def require_sound(
    folder: str, plan: Plan, manifest: Manifest, ranges: Mapping[str, range], dimensions: int
) -> None:
    """Raise an InputError if a plan that was found in the folder cannot be one of ours.

    Args:
        folder: its path or URL.
        plan: the plan, with the options of this export.
        manifest: of the exports before it.
        ranges: the offsets that each part of the source holds now.
        dimensions: of the vectors.
    """
    offsets, size = plan.export.offsets, dimensions * FLOAT32
    if (
        plan.export.number != len(manifest.exports) + 1
        or not offsets.keys() <= ranges.keys()
        or any(start > stop or stop > ranges[part].stop for part, (start, stop) in offsets.items())
        or any(len(row.vector) != size for row in plan.rows)
    ):
        raise InputError(f"{folder}/{PLAN}: does not fit the source; delete it to plan the export again")
