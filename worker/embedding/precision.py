"""Which precision to embed in: bfloat16 only where it is faster, and as good."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import islice

import numpy as np

from schemas import ReasoningTrace
from worker.embedding.base import Embedder
from worker.scoring import VectorCache, embedding_text

logger = logging.getLogger(__name__)

LEAST_SPEEDUP = 1.3
"""Below, it is not worth the rounding."""

MOST_CHANGE = 0.005
"""That novelty may differ by."""

_TEXTS = 12


@dataclass(frozen=True)
class Comparison:
    """What another precision gives, and takes.

    Attributes:
        speedup: float32's time for a text over the other's, the median of the texts.
        change: the largest difference between the novelties of the texts, each compared with those before.
    """

    speedup: float
    change: float

    @property
    def is_worth_it(self) -> bool:
        """Whether the other one is to be taken."""
        return self.speedup >= LEAST_SPEEDUP and self.change <= MOST_CHANGE


def choose_precision(float32: Embedder, bfloat16: Embedder) -> Embedder:
    """Measure both on real traces, and return the one to embed with.

    A CPU without matrix instructions for bfloat16 computes it more slowly than float32, and what it claims
    to have is no proof: so it is tried.
    """
    compared = _compare(float32, bfloat16, fixed_texts())
    logger.info(
        "bfloat16 is %.2f times as fast as float32 here (taken from %.1f on), and changes novelty by %.4f at "
        "most (up to %.3f)",
        compared.speedup,
        LEAST_SPEEDUP,
        compared.change,
        MOST_CHANGE,
    )
    return bfloat16 if compared.is_worth_it else float32


def fixed_texts() -> list[str]:
    """Return the texts of some of the demo's real traces."""
    with resources.files("worker.demo").joinpath("real_traces.jsonl").open() as lines:
        return [embedding_text(ReasoningTrace.model_validate_json(line)) for line in islice(lines, _TEXTS)]


def _compare(reference: Embedder, other: Embedder, texts: Sequence[str]) -> Comparison:
    """Let both embed each text, in turns."""
    ours, theirs = _Tried(reference), _Tried(other)
    for text in (texts[0], *texts):  # the first one twice, to warm up
        ours.embed(text)
        theirs.embed(text)
    return Comparison(
        statistics.median(np.divide(ours.seconds, theirs.seconds)[1:]),
        float(np.abs(np.subtract(ours.novelties, theirs.novelties)).max()),
    )


class _Tried:
    """An embedder, the seconds that each text took, and how novel each was."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._cache = VectorCache(_TEXTS + 1, embedder.dimensions)
        self.seconds: list[float] = []
        self.novelties: list[float] = []

    def embed(self, text: str) -> None:
        started = time.perf_counter()
        [vector] = self._embedder.embed([text]).vectors
        self.seconds.append(time.perf_counter() - started)
        self.novelties.append(1 - (self._cache.max_cosine_similarity(vector) or 0.0))
        self._cache.add(vector)
