"""Read the inputs to their ends, and plan the rows of the export."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_curator.export.candidates import Candidate, LeftOutRecord, Rules
from knowledgepulse_curator.export.dataset_rows import read_rows
from knowledgepulse_curator.export.dataset_store import Store
from knowledgepulse_curator.export.examine import ExaminedTrace, examined
from knowledgepulse_curator.export.export_inputs import ExportInputs
from knowledgepulse_curator.export.manifest import (
    CLEAN,
    CLEANER,
    MESSAGES,
    NOT_CLEAN,
    SPLITS,
    TABLE,
    Export,
    File,
    Manifest,
    Plan,
    PlannedRecord,
    Split,
)
from knowledgepulse_curator.export.selection import best
from knowledgepulse_curator.export.splits import ExportedTraces, assign_splits
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.records.ledger_records import encode_vector
from knowledgepulse_worker.scoring import embedding_text

logger = logging.getLogger(__name__)

_BATCH_TRACES = 64


async def collect(inputs: ExportInputs, manifest: Manifest, store: Store, rules: Rules) -> Plan | None:
    """Return the plan of the next export; None if there are no new records.

    Raises:
        InputError: a part of the inputs ends before the last export did.
    """
    offsets, deleted = await _offsets(inputs, manifest, rules)
    if not any(map(len, offsets.values())):
        return None
    exported, seen = read_exported(store, manifest, rules.dimensions)
    reading = _Reading(rules, seen)
    for part, held in offsets.items():
        async for record in inputs.read(part, held):
            await reading.add(record, part, inputs.changed_ms.get(part))
    await reading.embed()
    if not reading.read:
        return None
    rows = reading.rows(exported)
    export = Export(
        number=len(manifest.exports) + 1,
        offsets={part: (held.start, held.stop) for part, held in offsets.items()},
        deleted=deleted,
        read=reading.read,
        dropped={name: count for name, count in sorted(reading.dropped.items()) if count},
        counts={name: dict(sorted(counter.items())) for name, counter in sorted(reading.counts.items())},
    )
    return Plan(inputs.identity, rules.choices, export, rows, inputs.changed_ms)


async def _offsets(inputs: ExportInputs, manifest: Manifest, rules: Rules) -> tuple[dict[str, range], int]:
    """Return each part's offsets to read, and the number of offsets deleted since the last export."""
    offsets, deleted = dict[str, range](), 0
    for part, held in inputs.ranges.items():
        end = manifest.end(part)
        if end is None:
            since = rules.since_ms
            end = held.start if since is None else await inputs.start(part, since)
        elif held.stop < end:
            raise InputError(
                f"{part} ends at offset {held.stop}, but the last export read up to offset {end}: it has "
                "lost records or was recreated; export to another folder"
            )
        elif held.start > end:
            deleted += held.start - end
            logger.warning("%s: %s deleted since the last export", part, counted(held.start - end, "offset"))
        offsets[part] = range(max(held.start, end), held.stop)
    return offsets, deleted


class _FoundCandidate(NamedTuple):
    """The data of a candidate that is kept until all records are read."""

    part: str
    offset: int
    groups: list[str]
    score: float
    facts: list[tuple[str, str]]


class _Reading:
    def __init__(self, rules: Rules, seen: set[tuple[str, str]]) -> None:
        self.read = 0
        self.dropped: Counter[str] = Counter()
        self.counts: dict[str, Counter[str]] = {}
        self._rules = rules
        self._seen = seen
        self._found: list[_FoundCandidate] = []
        self._texts: list[str] = []
        self._vectors: list[NDArray[np.float32]] = []

    async def add(self, record: RawRecord, part: str, changed_ms: int | None) -> None:
        self.read += 1
        checked = await self._checked(record, changed_ms)
        if isinstance(checked, LeftOutRecord):
            self.dropped[checked.key] += 1
            return
        candidate, trace = checked
        facts = [*candidate.facts()]
        if trace.is_clean is not None:
            facts.append((CLEANER, CLEAN if trace.is_clean else NOT_CLEAN))
        if trace.cut:
            facts.append((MESSAGES, trace.cut))
        groups = candidate.groups(self._rules.tasks)
        self._found.append(_FoundCandidate(part, record.offset, groups, candidate.score, facts))
        if len(self._texts) == _BATCH_TRACES:
            await self.embed()

    async def _checked(
        self, record: RawRecord, changed_ms: int | None
    ) -> tuple[Candidate, ExaminedTrace] | LeftOutRecord:
        """Return a record's candidate, whose text waits to be embedded, or the reason for leaving it out."""
        rules = self._rules
        candidate = rules.candidate(record, changed_ms)
        if isinstance(candidate, LeftOutRecord):
            return candidate
        identity = candidate.source, candidate.members.id
        if rules.since_ms is not None and (candidate.timestamp_ms or 0) < rules.since_ms:
            return LeftOutRecord("before_since")
        if identity in self._seen:
            return LeftOutRecord("repeat")
        trace = await examined(rules, candidate, record)
        if isinstance(trace, LeftOutRecord):
            return trace
        self._seen.add(identity)
        if rules.embedder is not None:
            self._texts.append(embedding_text(trace.trace, rules.text))
        return candidate, trace

    async def embed(self) -> None:
        if self._rules.embedder is not None and self._texts:
            done = await asyncio.to_thread(self._rules.embedder.embed, self._texts)
            self._vectors.append(done.vectors)
            self._texts = []

    def rows(self, exported: ExportedTraces) -> list[PlannedRecord]:
        """Select the candidates and assign their splits, and return what remains."""
        choices, count = self._rules.choices, len(self._found)
        vectors = np.concatenate([np.empty((0, self._rules.dimensions), np.float32), *self._vectors])
        vectors = vectors if self._rules.dimensions else np.empty((count, 0), np.float32)
        chosen = list(range(count))
        if choices.best is not None and count:
            scores, groups = [found.score for found in self._found], [found.groups for found in self._found]
            chosen = best(scores, groups, vectors, exported, number=choices.best, seed=choices.seed)
        groups = [self._found[index].groups for index in chosen]
        splits = assign_splits(
            groups, vectors[chosen], exported,
            shares=choices.shares, seed=choices.seed,
        )  # fmt: skip
        self.dropped["not_selected"] += count - len(chosen)
        self.dropped["both_sides"] += splits.count(None)
        rows = []
        for index, split in zip(chosen, splits, strict=True):
            if split is not None:
                found = self._found[index]
                for name, value in (("split", split), *found.facts):
                    self.counts.setdefault(name, Counter())[value] += 1
                vector = encode_vector(vectors[index])
                rows.append(PlannedRecord(found.part, found.offset, found.groups, split, vector))
        return rows


def read_exported(
    store: Store, manifest: Manifest, dimensions: int
) -> tuple[ExportedTraces, set[tuple[str, str]]]:
    """Return the exported traces and their ids; raise an InputError if a file has changed."""
    seen, groups, vectors, splits = set[tuple[str, str]](), list[list[str]](), [], list[Split]()
    for path, file in manifest.files.items():
        if not path.startswith(f"{TABLE}/"):
            continue
        content, name = store.read(path), f"{store.name}/{path}"
        split = next((known for known in SPLITS if path.startswith(f"{TABLE}/{known}/")), None)
        if content is None or split is None or File.of(content) != file:
            raise InputError(f"{name}: is missing or damaged; `--check` lists all such files")
        table = read_rows(name, content, ("source", "id", "groups", "vector"), dimensions)
        seen.update(zip(table["source"].to_pylist(), table["id"].to_pylist(), strict=True))
        groups += (names or [] for names in table["groups"].to_pylist())
        splits += [split] * len(table)
        if dimensions:  # a row at a time would take ten times the memory
            flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            if len(flat) != len(table) * dimensions:
                raise InputError(f"{name}: was not written by `kp-worker export`: a vector is missing")
            vectors.append(flat.reshape(-1, dimensions))
    return ExportedTraces(
        groups, np.concatenate([np.empty((0, dimensions), np.float32), *vectors]), splits
    ), seen
