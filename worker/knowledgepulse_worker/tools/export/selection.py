"""The best of the candidates, or those that cover most."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

REFERENCES = 4096
"""The most candidates whose coverage counts: a sample of as many, of more."""

_ROWS = 1024


def best(scores: Sequence[float], number: int) -> list[int]:
    """Return the indexes of the highest scores, in order; of equal ones, the first."""
    return sorted(np.argsort(-np.asarray(scores), kind="stable")[:number].tolist())


def diverse(vectors: Vectors, exported: Vectors, number: int, seed: int) -> list[int]:
    """Return the indexes of candidates that cover most, in order.

    Facility location: each candidate is covered as well as it resembles the most similar one of those chosen
    or exported before; greedily, the one is next that adds most (Nemhauser 1978), found lazily (Minoux 1978).

    Vectors have length 1; ``exported`` are those of the traces that the dataset has already. Of more than
    :data:`REFERENCES` candidates, the coverage of a sample counts.
    """
    references = vectors
    if len(vectors) > REFERENCES:
        references = vectors[np.random.default_rng(seed).choice(len(vectors), REFERENCES, replace=False)]
    covered = np.zeros(len(references), np.float32)
    for block in _blocks(exported):
        covered = np.maximum(covered, (references @ block.T).max(axis=1))
    gains = [np.maximum(block @ references.T - covered, 0).sum(axis=1) for block in _blocks(vectors)]
    heap = [(-gain, index) for index, gain in enumerate(np.concatenate(gains).tolist())] if gains else []
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < number:
        _, index = heapq.heappop(heap)
        similarities = references @ vectors[index]
        gain = (-float(np.maximum(similarities - covered, 0).sum()), index)
        if heap and gain > heap[0]:  # others may have taken what it adds
            heapq.heappush(heap, gain)
            continue
        chosen.append(index)
        covered = np.maximum(covered, similarities)
    return sorted(chosen)


def _blocks(vectors: Vectors) -> Iterator[Vectors]:
    for start in range(0, len(vectors), _ROWS):
        yield vectors[start : start + _ROWS]
