"""Training, validation and test without leaks: what belongs together lies on one side, also in later exports.

Two traces are tied if they share a group (a task, a run, an objective) or are near-duplicates. Tied traces
take the side that those of them have which are exported; if none is yet, the hash of their groups chooses. A
trace that is tied to both sides is dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.tools.export.options import SPLITS, Split

Vectors = NDArray[np.float32]

_ROWS = 1024
"""Rows of similarities at a time: with 100 000 traces, 400 MB."""


class Placed:
    """The exported traces' groups, vectors and sides.

    Attributes:
        sides: of each group.
        vectors: shape (traces, dimensions); without an embedder, no dimensions.
        splits: of each vector, as its index in :data:`SPLITS`.
    """

    def __init__(self, dimensions: int) -> None:
        self.sides: dict[str, Split] = {}
        self.vectors: Vectors = np.empty((0, dimensions), np.float32)
        self.splits: NDArray[np.int64] = np.empty(0, np.int64)

    def add(self, groups: Iterable[Sequence[str]], vectors: Vectors, splits: Sequence[Split]) -> None:
        """Add traces; without an embedder, ``vectors`` has no rows."""
        for names, split in zip(groups, splits, strict=True):
            self.sides.update(dict.fromkeys(names, split))
        if len(vectors):
            self.vectors = np.concatenate([self.vectors, vectors])
            self.splits = np.append(self.splits, [SPLITS.index(split) for split in splits])


def place(
    groups: Sequence[Sequence[str]],
    vectors: Vectors,
    placed: Placed,
    *,
    similarity: float,
    shares: tuple[float, float],
    seed: int,
) -> list[Split | None]:
    """Return each trace's split; None for one that is tied to both sides.

    Args:
        groups: of each trace.
        vectors: of each trace; without an embedder, no dimensions.
        placed: the exported traces.
        similarity: the cosine from which on two traces are near-duplicates.
        shares: of validation and test, in percent.
        seed: of the hash.
    """
    known = [_known_sides(names, placed) for names in groups]
    if vectors.shape[1]:
        for number, sides in enumerate(_sides_of_similar(vectors, placed, similarity)):
            known[number] |= sides
    splits: list[Split | None] = [None] * len(groups)
    for members in _components(groups, vectors, similarity):
        found = set[Split]().union(*(known[member] for member in members))
        side = min(found) if found else _drawn(min(min(groups[member]) for member in members), shares, seed)
        if len(found) < 2:
            for member in members:
                splits[member] = side
        else:
            _part(members, known, groups, vectors, similarity, splits, side)
    return splits


def _part(
    members: Sequence[int],
    known: Sequence[set[Split]],
    groups: Sequence[Sequence[str]],
    vectors: Vectors,
    similarity: float,
    splits: list[Split | None],
    side: Split,
) -> None:
    """Place the members of a component that touches several sides one by one; drop those between them."""
    kept: list[int] = []
    for member in members:
        ties = {splits[other] for other in kept if {*groups[other]} & {*groups[member]}}
        if kept and vectors.shape[1]:
            near = vectors[kept] @ vectors[member] >= similarity
            ties |= {splits[kept[index]] for index in np.flatnonzero(near)}
        sides = known[member] | ties
        if len(sides) < 2:
            splits[member] = next(iter(sides), side)
            kept.append(member)


def _known_sides(names: Iterable[str], placed: Placed) -> set[Split]:
    return {placed.sides[name] for name in names if name in placed.sides}


def _sides_of_similar(vectors: Vectors, placed: Placed, similarity: float) -> Iterable[set[Split]]:
    """Yield the sides of the exported near-duplicates of each trace."""
    masks = [placed.splits == number for number in range(len(SPLITS))]
    for start in range(0, len(vectors), _ROWS):
        near = vectors[start : start + _ROWS] @ placed.vectors.T >= similarity
        touched = np.stack([near[:, mask].any(axis=1) for mask in masks], axis=1)
        for row in touched:
            yield {SPLITS[number] for number in np.flatnonzero(row)}


def _components(
    groups: Sequence[Sequence[str]], vectors: Vectors, similarity: float
) -> Iterable[Sequence[int]]:
    """Return the traces that are tied to each other, directly or by others, in order."""
    with extra("export"):
        from scipy.sparse import coo_array  # noqa: PLC0415 - slow to import
        from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    def merged(rows: NDArray[np.int64], columns: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        graph = coo_array((np.ones(len(rows), np.bool_), (rows, columns)), shape=(count, count))
        return np.asarray(connected_components(graph, directed=False)[1], np.int64)

    numbers: dict[str, int] = {}
    count = len(groups)
    pairs = [
        (row, count + numbers.setdefault(name, len(numbers)))
        for row, names in enumerate(groups)
        for name in names
    ]
    ties = np.array(pairs, np.int64).reshape(-1, 2)
    labels = merged(ties[:, 0], ties[:, 1], count + len(numbers))[:count]
    if vectors.shape[1]:
        for start in range(0, count, _ROWS):
            rows, columns = np.nonzero(vectors[start : start + _ROWS] @ vectors[start:].T >= similarity)
            labels = merged(labels[rows + start], labels[columns + start], count)[labels]
    members: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        members.setdefault(label, []).append(row)
    return members.values()


def _drawn(group: str, shares: tuple[float, float], seed: int) -> Split:
    digest = hashlib.sha256(f"{seed} {group}".encode("utf-8", "replace")).digest()
    drawn = int.from_bytes(digest[:8], "big") / 2**64 * 100
    validation, test = shares
    if drawn < test:
        return "test"
    return "validation" if drawn < test + validation else "train"
