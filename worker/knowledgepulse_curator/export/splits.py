"""Splits for training, validation and test that leak nothing, also across exports.

Two traces are tied if they share a group (a task, a run, an objective) or are near-duplicates. Tied traces
get the same split: the one of the exported traces among them, or else one chosen by the hash of their groups.
A new trace that is tied to traces in two splits is dropped.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from knowledgepulse_curator.export.manifest import SPLITS, Split

Vectors = NDArray[np.float32]
Groups = Sequence[Sequence[str]]

NEAR_SIMILARITY = 0.95
"""The cosine similarity at which two traces count as near-duplicates."""

_ROWS = 1024
"""Rows of similarities that are computed at a time; with 100,000 traces, they take 400 MB."""

Rows = TypeVar("Rows", Vectors, Sequence[int])


def blocks(rows: Rows) -> Iterator[Rows]:
    """Yield rows whose similarities are computed at a time."""
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]


class ExportedTraces:
    """The exported traces; without an embedder, their vectors have shape (0, 0)."""

    def __init__(self, groups: Groups, vectors: Vectors, splits: Sequence[Split]) -> None:
        self.sides = {name: split for names, split in zip(groups, splits, strict=True) for name in names}
        self.vectors = vectors
        self._sides = np.asarray([SPLITS.index(split) for split in splits], np.int64)

    def similar(self, vectors: Vectors) -> Iterable[set[Split]]:
        """Yield the splits of the near-duplicates of each vector."""
        for block in blocks(vectors):
            for row in block @ self.vectors.T >= NEAR_SIMILARITY:
                yield {SPLITS[side] for side in np.unique(self._sides[row])}


def assign_splits(
    groups: Groups, vectors: Vectors, exported: ExportedTraces, *, shares: tuple[float, float], seed: int
) -> list[Split | None]:
    """Return each trace's split; None for a trace that is tied to two splits.

    Args:
        groups: the groups of each trace.
        vectors: the vector of each trace; without an embedder, it has no dimensions.
        exported: the traces that are already in the dataset.
        shares: the percentages of validation and test.
        seed: the seed of the choice.
    """
    known = [{exported.sides[name] for name in names if name in exported.sides} for names in groups]
    if vectors.shape[1]:
        first, which = _distinct(vectors)
        near = list(exported.similar(vectors[first]))
        known = [sides | near[index] for sides, index in zip(known, which.tolist(), strict=True)]
    splits: list[Split | None] = [None] * len(groups)
    for members in tied(groups, vectors):
        found = set[Split]().union(*(known[member] for member in members))
        side = min(found) if found else _drawn(min(min(groups[member]) for member in members), shares, seed)
        if len(found) < 2:
            for member in members:
                splits[member] = side
        else:
            _separate(members, groups, vectors, known, splits, side)
    return splits


def _separate(
    members: Sequence[int],
    groups: Groups,
    vectors: Vectors,
    known: Sequence[set[Split]],
    splits: list[Split | None],
    side: Split,
) -> None:
    """Assign splits to tied traces one by one, leaving out those that are tied to two splits.

    Args:
        members: the tied traces, in order.
        groups: the groups of all traces.
        vectors: the vectors of all traces.
        known: the splits to which exported traces tie each trace.
        splits: the splits of all traces, which are filled in.
        side: the split of the traces that are tied to none.
    """
    kept = _KeptTraces()
    for block in blocks(members):
        given = vectors[block]
        before, within = kept.near(given), given @ given.T >= NEAR_SIMILARITY
        placed = np.full(len(block), -1)  # the splits within the block, by number
        for index, member in enumerate(block):
            sides = known[member] | kept.of_groups(groups[member]) | before[index]
            sides |= {SPLITS[number] for number in np.unique(placed[within[index]]).tolist() if number >= 0}
            if len(sides) < 2:
                split = next(iter(sides), side)
                splits[member] = split
                placed[index] = SPLITS.index(split)
                kept.add_groups(groups[member], split)
        for number, split in enumerate(SPLITS):
            kept.add_vectors(given[placed == number], split)


class _KeptTraces:
    """The groups and the distinct vectors of the tied traces that are kept, with their splits."""

    def __init__(self) -> None:
        self._groups: defaultdict[str, set[Split]] = defaultdict(set)
        self._vectors: dict[Split, list[Vectors]] = {split: [] for split in SPLITS}
        self._seen: set[tuple[Split, bytes]] = set()

    def of_groups(self, names: Iterable[str]) -> set[Split]:
        return set[Split]().union(*(self._groups[name] for name in names))

    def near(self, vectors: Vectors) -> list[set[Split]]:
        """Return the splits of the near-duplicates of each vector."""
        found: list[set[Split]] = [set() for _ in vectors]
        for split, parts in self._vectors.items():
            for part in parts:
                for index in np.flatnonzero((vectors @ part.T >= NEAR_SIMILARITY).any(axis=1)).tolist():
                    found[index].add(split)
        return found

    def add_groups(self, names: Iterable[str], split: Split) -> None:
        for name in names:
            self._groups[name].add(split)

    def add_vectors(self, vectors: Vectors, split: Split) -> None:
        new = [vector for vector in vectors if (split, _hash(vector)) not in self._seen]
        if new:
            self._seen.update((split, _hash(vector)) for vector in new)
            self._vectors[split].append(np.stack(new))


def tied(groups: Groups, vectors: Vectors) -> Iterable[Sequence[int]]:
    """Return the groups of traces that are tied to each other, directly or through others, in order."""
    count, numbers = len(groups), dict[str | int, int]()
    pairs = [
        (row, count + numbers.setdefault(name, len(numbers)))
        for row, names in enumerate(groups)
        for name in names
    ]
    first, which = _distinct(vectors)
    distinct = vectors[first]
    is_near_itself = (
        np.einsum("ij,ij->i", distinct, distinct) >= NEAR_SIMILARITY
    )  # not true of an empty text's vector
    pairs += [
        (row, count + numbers.setdefault(index, len(numbers)))
        for row, index in enumerate(which.tolist())
        if is_near_itself[index]
    ]
    ties = np.array(pairs, np.int64).reshape(-1, 2)
    labels = _merged(ties[:, 0], ties[:, 1], count + len(numbers))[:count]
    for start in range(0, len(first), _ROWS):
        near = distinct[start : start + _ROWS] @ distinct[start:].T >= NEAR_SIMILARITY
        labels = _joined(near, labels, first[start : start + _ROWS], first[start:])
    members: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        members.setdefault(label, []).append(row)
    return members.values()


def _joined(
    near: NDArray[np.bool_], labels: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the labels of components after joining near traces.

    Each turn joins each trace to only one near trace with another label, so that repeats do not take memory
    for each pair. Each turn at least halves the number of labels that are left to join.

    Args:
        near: whether each row is near each column.
        labels: the labels of all traces.
        rows: the traces of the rows.
        columns: the traces of the columns.
    """
    while True:
        apart = near & (labels[rows][:, None] != labels[columns])
        some_rows, some_columns = np.flatnonzero(apart.any(axis=1)), np.flatnonzero(apart.any(axis=0))
        if not len(some_rows):
            return labels
        ones = np.concatenate([rows[some_rows], columns[some_columns]])
        others = np.concatenate(
            [columns[apart[some_rows].argmax(axis=1)], rows[apart[:, some_columns].argmax(axis=0)]]
        )
        labels = _merged(labels[ones], labels[others], len(labels))[labels]


def _merged(ones: NDArray[np.int64], others: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the components of nodes that are tied in pairs."""
    graph = coo_array((np.ones(len(ones), np.bool_), (ones, others)), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


def _distinct(vectors: Vectors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each distinct vector, and for each row the number of its vector."""
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(_hash(vector), len(numbers)) for vector in vectors], np.int64)
    return np.unique(which, return_index=True)[1], which


def _hash(vector: Vectors) -> bytes:
    return hashlib.blake2b(vector.tobytes(), digest_size=16).digest()


def _drawn(group: str, shares: tuple[float, float], seed: int) -> Split:
    hashed = hashlib.sha256(f"{seed} {group}".encode("utf-8", "replace")).digest()
    drawn = int.from_bytes(hashed[:8], "big") / 2**64 * 100
    validation, test = shares
    if drawn < test:
        return "test"
    return "validation" if drawn < test + validation else "train"
