"""Select the candidates with the highest scores, or the most diverse ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

REFERENCES = 4096
"""Largest number of candidates whose coverage is computed; of more, a sample of this size is used."""

_ROWS = 1024


def best(scores: Sequence[float], number: int) -> list[int]:
    """Return the indexes of the highest scores, in order; among equal scores, the first ones."""
    return sorted(np.argsort(-np.asarray(scores), kind="stable")[:number].tolist())


def diverse(vectors: Vectors, exported: Vectors, number: int, seed: int) -> list[int]:
    """Return the indexes of the candidates that together cover the most, in order.

    This is the facility location problem: the coverage of a candidate is its similarity to the most similar
    trace that was chosen or exported. The greedy algorithm always adds the candidate with the largest gain
    (Nemhauser 1978), which is found lazily (Minoux 1978).

    Args:
        vectors: the candidates' vectors, of length 1.
        exported: the vectors of the traces that are already in the dataset.
        number: the number of candidates to choose.
        seed: the seed of the sample whose coverage counts if there are more than :data:`REFERENCES`.
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
        if heap and gain > heap[0]:  # earlier choices may have reduced its gain
            heapq.heappush(heap, gain)
            continue
        chosen.append(index)
        covered = np.maximum(covered, similarities)
    return sorted(chosen)


def _blocks(vectors: Vectors) -> Iterator[Vectors]:
    for start in range(0, len(vectors), _ROWS):
        yield vectors[start : start + _ROWS]
