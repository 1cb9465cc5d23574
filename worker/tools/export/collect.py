"""Read a source to its end, and plan what of it the export writes."""

from __future__ import annotations

import asyncio
import io
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.errors import InputError, RejectedRecord
from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.decode import decode_inputs, decode_members, decode_trace
from knowledgepulse_worker.records.entry import encode_vector
from knowledgepulse_worker.records.record import RawRecord
from knowledgepulse_worker.records.summary import TraceSummary
from knowledgepulse_worker.redaction.departure import is_clean_json
from knowledgepulse_worker.scoring import TraceText, bounded_id, embedding_text
from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.export.candidates import (
    HELD,
    Candidate,
    Dropped,
    groups_of,
    read_candidate,
)
from knowledgepulse_worker.tools.export.manifest import Export, Manifest, Plan, Planned
from knowledgepulse_worker.tools.export.options import SPLITS, TABLE, Choices, Split
from knowledgepulse_worker.tools.export.selection import best, diverse
from knowledgepulse_worker.tools.export.sources import Source
from knowledgepulse_worker.tools.export.splits import Placed, place
from knowledgepulse_worker.tools.export.store import Store

logger = logging.getLogger(__name__)

_BATCH = 64


@dataclass(frozen=True, slots=True)
class Rules:
    """How records become rows.

    Attributes:
        choices: of the dataset.
        policy: to rescore under, if the choices have one; else the settings'.
        tasks: group of a label, by trace id or native id.
        since_ms: the time of the first record of a first export.
        embedder: makes the vectors; None makes none.
        text: which text of a trace it embeds.
        has_score: whether the source's records have ``kp-score``.
    """

    choices: Choices
    policy: Policy
    tasks: Mapping[str, str]
    since_ms: int | None
    embedder: Embedder | None
    text: TraceText
    has_score: bool

    @property
    def dimensions(self) -> int:
        """Of the vectors; 0 without an embedder."""
        return 0 if self.embedder is None else self.embedder.dimensions

    def candidate(self, record: RawRecord, since_ms: int | None) -> Candidate | Dropped:
        """Return a record's candidate, or why there is none."""
        return read_candidate(record, self.choices, self.policy, since_ms, has_score=self.has_score)


async def collect(source: Source, manifest: Manifest, store: Store, rules: Rules) -> Plan | None:
    """Return the plan of the next export; None if there are no new records.

    Raises:
        InputError: a part of the source ends before the last export did.
    """
    offsets, deleted = await _offsets(source, manifest, rules)
    if not any(map(len, offsets.values())):
        return None
    placed, seen = exported(store, manifest, rules.dimensions)
    reading = _Reading(rules, seen)
    for part, held in offsets.items():
        async for record in source.read(part, held):
            await reading.add(record, part)
    await reading.embed()
    if not reading.read:
        return None
    rows = reading.rows(placed)
    export = Export(
        number=len(manifest.exports) + 1,
        offsets={part: (held.start, held.stop) for part, held in offsets.items()},
        deleted=deleted,
        read=reading.read,
        dropped={str(name): count for name, count in sorted(reading.dropped.items()) if count},
        counts={name: dict(sorted(one.items())) for name, one in sorted(reading.counts.items())},
    )
    return Plan(source.identity, rules.choices.as_dict(), rules.since_ms, export, rows)


async def _offsets(source: Source, manifest: Manifest, rules: Rules) -> tuple[dict[str, range], int]:
    """Return the offsets of each part to read, and how many of them were deleted since the last export."""
    offsets, deleted = dict[str, range](), 0
    for part, held in source.ranges.items():
        end = manifest.end(part)
        if end is None:
            since = rules.since_ms
            start = held.start if since is None else max(held.start, await source.start(part, since))
            offsets[part] = range(start, held.stop)
            continue
        if held.stop < end:
            raise InputError(
                f"{part} ends at offset {held.stop}, but the dataset has read up to {end}: it lost records, "
                "or is another one; export to another folder"
            )
        if held.start > end:
            deleted += held.start - end
            logger.warning("%s: %d offsets were deleted since the last export", part, held.start - end)
        offsets[part] = range(max(held.start, end), held.stop)
    return offsets, deleted


class _Found(NamedTuple):
    """What is remembered of a candidate until all are read."""

    part: str
    offset: int
    score: float
    groups: list[str]
    target: str
    facts: list[tuple[str, str]]


class _Reading:
    def __init__(self, rules: Rules, seen: set[tuple[str, str]]) -> None:
        self.read = 0
        self.dropped: Counter[Dropped] = Counter()
        self.counts: dict[str, Counter[str]] = {}
        self._rules = rules
        self._seen = seen
        self._found: list[_Found] = []
        self._texts: list[str] = []
        self._vectors: list[NDArray[np.float32]] = []

    async def add(self, record: RawRecord, part: str) -> None:
        self.read += 1
        found = self._rules.candidate(record, self._rules.since_ms)
        if isinstance(found, Candidate):
            found = self._checked(found, record)
        if not isinstance(found, Candidate):
            self.dropped[found] += 1
            if found in HELD:
                logger.warning("%s: %s: not exported", _name(record), HELD[found])
            return
        target = f"{_folder(found.profile)}/{found.day}"
        groups = groups_of(found, self._rules.tasks)
        self._found.append(_Found(part, record.offset, found.score, groups, target, [*found.facts()]))
        if len(self._texts) == _BATCH:
            await self.embed()

    def _checked(self, candidate: Candidate, record: RawRecord) -> Candidate | Dropped:
        identity = candidate.source, candidate.members.id
        if identity in self._seen:
            return "repeat"
        value = record.value or b""
        try:
            trace = decode_trace(value, len(value))
        except RejectedRecord:
            return "foreign"
        if self._rules.choices.require_clean and not is_clean_json(value):
            return "not_clean"
        self._seen.add(identity)
        if self._rules.embedder is not None:
            self._texts.append(embedding_text(trace, self._rules.text, decode_inputs(value)))
        return candidate

    async def embed(self) -> None:
        if self._rules.embedder is not None and self._texts:
            done = await asyncio.to_thread(self._rules.embedder.embed, self._texts)
            self._vectors.append(done.vectors)
            self._texts = []

    def rows(self, placed: Placed) -> list[Planned]:
        """Select and place the candidates, and return what remains."""
        choices, count = self._rules.choices, len(self._found)
        vectors = np.concatenate([np.empty((0, self._rules.dimensions), np.float32), *self._vectors])
        vectors = vectors if self._rules.dimensions else np.empty((count, 0), np.float32)
        chosen = list(range(count))
        if choices.best is not None:
            chosen = best([one.score for one in self._found], choices.best)
        elif choices.diverse is not None:
            chosen = diverse(vectors, placed.vectors, choices.diverse, choices.seed)
        splits = place(
            [self._found[index].groups for index in chosen], vectors[chosen], placed,
            similarity=choices.similarity, shares=choices.shares, seed=choices.seed,
        )  # fmt: skip
        self.dropped["not_selected"] += count - len(chosen)
        self.dropped["both_sides"] += splits.count(None)
        rows = []
        for index, split in zip(chosen, splits, strict=True):
            if split is not None:
                one, vector = self._found[index], encode_vector(vectors[index])
                for name, value in (("split", split), *one.facts):
                    self.counts.setdefault(name, Counter())[value] += 1
                rows.append(Planned(one.part, one.offset, one.groups, f"{split}/{one.target}", vector))
        return rows


def _name(record: RawRecord) -> str:
    """Return the id of a record's trace, for the log."""
    return printable(bounded_id(decode_members(record.value or b"", TraceSummary).id))


def _folder(name: str) -> str:
    """Return a domain as the name of a folder, whatever it is."""
    quoted = quote(name, safe=" ")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def exported(store: Store, manifest: Manifest, dimensions: int) -> tuple[Placed, set[tuple[str, str]]]:
    """Return where the exported traces lie, and their sources and ids.

    Raises:
        InputError: a file is missing.
    """
    with extra("export"):
        from pyarrow import parquet  # noqa: PLC0415 - slow to import
    seen, groups, vectors, splits = set[tuple[str, str]](), list[list[str]](), [], list[Split]()
    for path in manifest.files:
        if not path.startswith(f"{TABLE}/"):
            continue
        content = store.read(path)
        if content is None:
            raise InputError(f"{store.place}/{path} is missing; `--check` tells what else is")
        table = parquet.read_table(io.BytesIO(content), columns=["source", "id", "groups", "vector"])
        seen.update(zip(table["source"].to_pylist(), table["id"].to_pylist(), strict=True))
        groups += table["groups"].to_pylist()
        splits += [next(one for one in SPLITS if path.startswith(f"{TABLE}/{one}/"))] * len(table)
        if dimensions:  # a row at a time would take ten times the memory
            vectors.append(table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, dimensions))
    placed = Placed(dimensions)
    placed.add(groups, np.concatenate([placed.vectors, *vectors]), splits)
    return placed, seen
