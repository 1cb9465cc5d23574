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
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from knowledgepulse_worker.tools.export.manifest import SPLITS, Split

Vectors = NDArray[np.float32]
Groups = Sequence[Sequence[str]]

NEAR = 0.95
"""The cosine from which on two traces are near-duplicates."""

_ROWS = 1024
"""Rows of similarities at a time: with 100 000 traces, 400 MB."""


class Placed:
    """The exported traces; without an embedder, their vectors have shape (0, 0)."""

    def __init__(self, groups: Groups, vectors: Vectors, splits: Sequence[Split]) -> None:
        self.sides = {name: split for names, split in zip(groups, splits, strict=True) for name in names}
        self.vectors = vectors
        self._sides = np.asarray([SPLITS.index(split) for split in splits], np.int64)

    def similar(self, vectors: Vectors) -> Iterable[set[Split]]:
        """Yield the sides of the near-duplicates of each vector."""
        for start in range(0, len(vectors), _ROWS):
            near = vectors[start : start + _ROWS] @ self.vectors.T >= NEAR
            for row in near:
                yield {SPLITS[side] for side in np.unique(self._sides[row])}


def place(
    groups: Groups, vectors: Vectors, placed: Placed, *, shares: tuple[float, float], seed: int
) -> list[Split | None]:
    """Return each trace's split; None for one that is tied to both sides.

    ``vectors``: of each trace; without an embedder, no dimensions. ``shares``: of validation and test, in
    percent.
    """
    known = [{placed.sides[name] for name in names if name in placed.sides} for names in groups]
    if vectors.shape[1]:
        known = [a | b for a, b in zip(known, placed.similar(vectors), strict=True)]
    splits: list[Split | None] = [None] * len(groups)
    for members in _components(groups, vectors):
        found = set[Split]().union(*(known[member] for member in members))
        side = min(found) if found else _drawn(min(min(groups[member]) for member in members), shares, seed)
        kept: list[int] = []
        for member in members:
            sides = set[Split | None](known[member])
            if len(found) > 1:  # then one by one, and what is tied to both sides is left out
                near = vectors[kept] @ vectors[member] >= NEAR if vectors.shape[1] else [False] * len(kept)
                ties = zip(kept, near, strict=True)
                sides |= {splits[one] for one, alike in ties if alike or {*groups[one]} & {*groups[member]}}
            if len(sides) < 2:
                splits[member] = next(iter(sides), side)
                kept.append(member)
    return splits


def _components(groups: Groups, vectors: Vectors) -> Iterable[Sequence[int]]:
    """Return the traces that are tied to each other, directly or by others, in order."""

    def merged(rows: NDArray[np.int64], columns: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        graph = coo_array((np.ones(len(rows), np.bool_), (rows, columns)), shape=(count, count))
        return np.asarray(connected_components(graph, directed=False)[1], np.int64)

    count, numbers = len(groups), dict[str, int]()
    pairs = [
        (row, count + numbers.setdefault(name, len(numbers)))
        for row, names in enumerate(groups)
        for name in names
    ]
    ties = np.array(pairs, np.int64).reshape(-1, 2)
    labels = merged(ties[:, 0], ties[:, 1], count + len(numbers))[:count]
    if vectors.shape[1]:
        for start in range(0, count, _ROWS):
            rows, columns = np.nonzero(vectors[start : start + _ROWS] @ vectors[start:].T >= NEAR)
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
