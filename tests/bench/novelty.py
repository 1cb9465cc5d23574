"""Section `novelty`: a look-up in the novelty cache compared with the bare matrix-vector product."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np

from bench.context import Context
from bench.measure import Budget, Figure, Section, alternate, ratio
from knowledgepulse_worker.scoring import VectorCache

DIMENSIONS = 384
ENTRIES = (1_000, 10_000, 100_000)
SECONDS = 0.3
"""Of each side of each round."""


async def run(context: Context, budget: Budget) -> Section:
    """Look up random vectors in full caches."""
    section = Section("novelty", "Novelty look-up, one at a time")
    source = np.random.default_rng(1)
    for entries in ENTRIES:
        matrix = source.normal(size=(entries, DIMENSIONS)).astype(np.float32)
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        cache = VectorCache(entries, DIMENSIONS)
        for row in matrix:
            cache.add(row, at=0.0)
        vectors = itertools.cycle(list(matrix[:: max(1, entries // 100)]))
        seconds = await alternate(
            {
                "look-up": _each(cache.max_cosine_similarity, vectors),
                "product": _each(matrix.__matmul__, vectors),
            },
            budget.rounds(context.rounds, share=1 / (len(ENTRIES) - ENTRIES.index(entries))),
        )
        size = matrix.nbytes / 1e9
        name = f"{entries:,} entries"
        section.figures += [
            Figure(f"{name}: look-up", "µs", [duration * 1e6 for duration in seconds["look-up"]]),
            Figure(f"{name}: look-up", "GB/s", [size / duration for duration in seconds["look-up"]]),
            Figure(
                f"{name}: matrix @ vector alone", "GB/s", [size / duration for duration in seconds["product"]]
            ),
            ratio(
                f"{name}: time of the product alone / of the look-up", seconds["product"], seconds["look-up"]
            ),
        ]
    return section


def _each(look_up: Callable[[np.ndarray], object], vectors: itertools.cycle):
    async def seconds() -> float:
        """Return the seconds per call."""
        count, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < SECONDS:
            look_up(next(vectors))
            count += 1
        return spent / count

    return seconds
