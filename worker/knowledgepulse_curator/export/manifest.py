"""The manifest of a dataset, and the plan of an unfinished export.

The plan is written before any other file of its export. The selection may depend on the machine's rounding
and on the current content of the topics, so it is made once: an interrupted export is completed from its plan
and gives the same bytes. The manifest is written last, because files belong to the dataset only if it lists
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from knowledgepulse_curator.export.dataset_store import Store
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.tools.common.egress_rule import EgressRule

FLOAT32 = 4
"""Size of one number of a vector in bytes."""

MANIFEST = "manifest.json"
PLAN = ".plan"
TABLE = "data"
"""The folder of the Parquet files. The folders of other formats have the names of the formats."""

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

Format = Literal["messages", "atif"]
Arguments = Literal["text", "object"]
"""The form of a call's arguments in chat messages."""

Audience = Literal["inside", "network"]
"""Who may read a dataset: the organization, or everyone."""


CLEANER, CLEAN, NOT_CLEAN = "cleaner", "finds nothing", "finds something"
"""The name and the values of the fact that tells whether the SDK's cleaner finds something in a trace."""

MESSAGES, CUT, NOTHING_SAID = "messages", "cut", "none"
"""The name and the values of the fact that a trace's chat messages are cut off, or that there are none."""

_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The options that all exports to one folder share.

    Attributes:
        also: the formats that are written in addition to Parquet.
        domain: the traces' domains or task domains; empty for all.
        min_score: the lowest score.
        policy: the digest of the policy under which traces are rescored; None keeps their own scores.
        weights: whether the chat messages of the assistant have weights.
        arguments: the form of the arguments of calls in chat messages.
        without_tail: whether chat messages end with the assistant's last one.
        audience: who may read the dataset.
        visibilities: the visibilities of its traces; for everyone, without `private`.
        privacy_levels: the privacy levels of its traces; for everyone, without `private`.
        best: the number of traces that each export keeps, the best of each group first; None for all.
        seed: the seed of the splits and of the selection.
        shares: the percentages of validation and test.
        embedder: the embedder of the vectors.
        redacted: whether the traces are redacted copies from a topic.
        redact: the function that redacts each trace as it is exported; None redacts none.
        not_cleaned: whether the SDK's cleaner was not run.
        scan_secrets: whether detect-secrets was run.
    """

    also: tuple[Format, ...]
    domain: tuple[str, ...]
    min_score: float
    policy: str | None
    visibilities: tuple[str, ...]
    privacy_levels: tuple[str, ...]
    best: int | None
    seed: int
    shares: tuple[float, float]
    embedder: str
    redacted: bool
    not_cleaned: bool
    scan_secrets: bool
    audience: Audience = "network"  # that of the datasets of release 0.3, which did not say it
    redact: str | None = None
    weights: bool = False
    arguments: Arguments = "text"
    without_tail: bool = False

    @property
    def egress_rule(self) -> EgressRule | None:
        """The traces that may leave; None if the dataset does not."""
        if self.audience == "inside":
            return None
        return EgressRule(self.visibilities, self.privacy_levels, require_clean=not self.not_cleaned)


class File(msgspec.Struct, frozen=True):
    """A file of the dataset."""

    sha256: str
    size: int

    @classmethod
    def of(cls, content: bytes) -> File:
        """Return the description of a file with this content."""
        return cls(hashlib.sha256(content).hexdigest(), len(content))


class Export(msgspec.Struct, frozen=True):
    """The result of one export.

    Attributes:
        number: counts the exports to the folder from 1.
        offsets: the offsets that were read of each part: the first one, and the one after the last.
        deleted: the number of offsets that were deleted since the last export and never read.
        read: the number of records.
        dropped: the number of records that were left out, by reason.
        counts: the number of exported traces by the value of each fact, such as `split`.
    """

    number: _Number
    offsets: dict[str, tuple[_Number, _Number]]
    deleted: _Number
    read: _Number
    dropped: dict[str, _Number]
    counts: dict[str, dict[str, _Number]]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``manifest.json``.

    Attributes:
        version: the version of this format.
        source: the topics or files, each with an id that distinguishes it from another one of the same name.
        choices: the options of all exports.
        exports: the exports in order.
        files: the files by path.
    """

    version: int = 1
    source: dict[str, str]
    choices: Choices
    exports: tuple[Export, ...] = ()
    files: dict[str, File] = {}

    def end(self, part: str) -> int | None:
        """Return the offset after the last one that was read of a part; None if the part was never read."""
        return next(
            (export.offsets[part][1] for export in reversed(self.exports) if part in export.offsets), None
        )

    def total(self, name: str) -> dict[str, int]:
        """Return a fact's counts over all exports, by value."""
        sums: dict[str, int] = {}
        for export in self.exports:
            for value, count in export.counts.get(name, {}).items():
                sums[value] = sums.get(value, 0) + count
        return dict(sorted(sums.items()))

    def to_json(self) -> bytes:
        """Return the file's content."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1) + b"\n"


class PlannedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record that an export writes.

    Attributes:
        part: the part that holds the record.
        offset: the record's offset in the part.
        groups: the groups that tie the trace to others.
        split: the trace's split.
        vector: little-endian float32; empty without an embedder.
    """

    part: str
    offset: _Number
    groups: list[str]
    split: Split
    vector: bytes


class Plan(msgspec.Struct, frozen=True):
    """The plan of an export.

    Attributes:
        source: the topics or files; see :class:`Manifest`.
        choices: the options.
        export: the result.
        rows: the records to write, in the order of reading.
        changed_ms: the last change of each file when the export was planned.
    """

    source: dict[str, str]
    choices: Choices
    export: Export
    rows: list[PlannedRecord]
    changed_ms: dict[str, int] = {}


T = TypeVar("T", Manifest, Plan)


def read_state(store: Store, path: str, model: type[T]) -> T | None:
    """Return the folder's manifest or plan; None if there is none. Raise an InputError if it is invalid."""
    content = store.read(path)
    if content is None:
        return None
    decode = msgspec.json.decode if model is Manifest else msgspec.msgpack.decode
    try:
        return decode(content, type=model)
    except DECODE_ERRORS as error:
        remedy = "; delete it to plan the export again" if model is Plan else ""
        raise InputError(
            f"{store.name}/{path}: was not written by `kp-worker export`: {error}{remedy}"
        ) from None


def require_same(folder: str, begun: Manifest | Plan, source: dict[str, str], choices: Choices) -> None:
    """Raise an InputError if an export would continue a dataset with other options or inputs."""
    names = (begun.source.keys() & source.keys()) or {*begun.source, *source}
    before, now = (
        msgspec.to_builtins(options) | {f"{name} (id)": ids.get(name) for name in names}
        for options, ids in ((begun.choices, begun.source), (choices, source))
    )
    differing = [f"{name} was {before[name]}, is {now[name]}" for name in now if before[name] != now[name]]
    if differing:
        raise InputError(
            f"{folder}: contains a different dataset: {'; '.join(differing)}; use the same options and "
            "inputs, or export to another folder"
        )


def require_sound(
    folder: str, plan: Plan, manifest: Manifest, ranges: Mapping[str, range], dimensions: int
) -> None:
    """Raise an InputError if the plan in the folder is not valid for these inputs.

    Args:
        folder: its path or URL.
        plan: the plan, with the options of this export.
        manifest: the manifest of the exports before it.
        ranges: the offsets that each part of the inputs holds now.
        dimensions: the number of dimensions of the vectors.
    """
    offsets, size = plan.export.offsets, dimensions * FLOAT32
    if (
        plan.export.number != len(manifest.exports) + 1
        or not offsets.keys() <= ranges.keys()
        or any(start > stop or stop > ranges[part].stop for part, (start, stop) in offsets.items())
        or any(len(row.vector) != size for row in plan.rows)
    ):
        raise InputError(
            f"{folder}/{PLAN}: does not fit the topics or files; delete it to plan the export again"
        )
