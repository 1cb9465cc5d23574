"""Select the best candidates of many groups, instead of many runs of a few tasks."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_curator.export.splits import ExportedTraces, Groups, Vectors, blocks, tied

MAX_REFERENCES = 4096
"""Largest number of candidates whose coverage is computed; of more, a sample of this size is used."""


def best(
    scores: Sequence[float],
    groups: Groups,
    vectors: Vectors,
    exported: ExportedTraces,
    *,
    number: int,
    seed: int,
) -> list[int]:
    """Return the indexes of the best candidate of each group, then of the second best ones, and so on.

    Candidates that are tied, as in splits, belong to one group. With vectors, ties are merged into as many
    groups as candidates are wanted: :func:`spread` chooses so many ties, and each of the others joins the
    most similar one. A tie to which the dataset has the most similar trace stays a group of its own, whose
    best candidate counts as chosen.

    Args:
        scores: the candidates' scores; of equal ones, the first comes first.
        groups: the names that tie candidates, such as those of their tasks.
        vectors: the candidates' vectors, of length 1; without an embedder, they have no dimensions.
        exported: the traces that are already in the dataset.
        number: the number of candidates to choose.
        seed: see :func:`spread`.

    Returns:
        The indexes, in order.
    """
    ties = list(tied(groups, vectors))
    group = np.arange(len(ties))
    is_there = np.array([any(name in exported.sides for at in tie for name in groups[at]) for tie in ties])
    if vectors.shape[1]:
        leaders = vectors[[max(tie, key=scores.__getitem__) for tie in ties]]
        group, similarity = _nearest(leaders, leaders[spread(leaders, exported.vectors, number, seed)])
        if len(exported.vectors):
            is_there |= _nearest(leaders, exported.vectors)[1] > similarity
    group = np.where(is_there, len(ties) + np.arange(len(ties)), group)
    taken = Counter(group[is_there].tolist())
    of_candidate = {at: name for tie, name in zip(ties, group.tolist(), strict=True) for at in tie}
    ranks = np.zeros(len(scores), np.int64)
    for index in np.argsort(-np.asarray(scores), kind="stable").tolist():
        ranks[index] = taken[of_candidate[index]]
        taken[of_candidate[index]] += 1
    return sorted(np.lexsort((-np.asarray(scores), ranks))[:number].tolist())


def _nearest(vectors: Vectors, others: Vectors) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the most similar one of others for each vector, and its similarity."""
    similarities = (block @ others.T for block in blocks(vectors))
    found = [(part.argmax(axis=1), part.max(axis=1)) for part in similarities]
    nearest, similarity = zip(*found, strict=True)
    return np.concatenate(nearest), np.concatenate(similarity)


def spread(vectors: Vectors, exported: Vectors, number: int, seed: int) -> list[int]:
    """Return the indexes of the candidates that together cover the most, in order.

    This is the facility location problem: the coverage of a candidate is its similarity to the most similar
    trace that was chosen or exported. The greedy algorithm always adds the candidate with the largest gain
    (Nemhauser 1978), which is found lazily (Minoux 1978).

    Args:
        vectors: the candidates' vectors, of length 1.
        exported: the vectors of the traces that are already in the dataset.
        number: the number of candidates to choose.
        seed: the seed of the sample whose coverage counts if there are more than :data:`MAX_REFERENCES`.
    """
    references = vectors
    if len(vectors) > MAX_REFERENCES:
        references = vectors[np.random.default_rng(seed).choice(len(vectors), MAX_REFERENCES, replace=False)]
    covered = np.zeros(len(references), np.float32)
    for block in blocks(exported):
        covered = np.maximum(covered, (references @ block.T).max(axis=1))
    gains = [np.maximum(block @ references.T - covered, 0).sum(axis=1) for block in blocks(vectors)]
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
