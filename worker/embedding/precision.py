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
_BATCH = 2
_ROUNDS = 3


@dataclass(frozen=True)
class Comparison:
    """What another precision gives, and takes.

    Attributes:
        speedup: float32's time for the same batch over the other's, the median of some rounds.
        change: the largest difference between the novelties of fixed texts.
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
    texts = fixed_texts()
    compared = Comparison(
        speedup(float32, bfloat16, texts[:_BATCH]), novelty_change(float32, bfloat16, texts)
    )
    logger.info(
        "bfloat16 is %.2f times as fast as float32 here (taken from %.1f on), and changes novelty by %.4f at "
        "most (up to %.3f)",
        compared.speedup,
        LEAST_SPEEDUP,
        compared.change,
        MOST_CHANGE,
    )
    return bfloat16 if compared.is_worth_it else float32


def speedup(reference: Embedder, other: Embedder, texts: Sequence[str]) -> float:
    """Return how many times as fast as the reference the other one embeds a batch; they take turns."""
    for embedder in (reference, other):
        embedder.embed(texts)
    return statistics.median(_seconds(reference, texts) / _seconds(other, texts) for _ in range(_ROUNDS))


def novelty_change(reference: Embedder, other: Embedder, texts: Sequence[str]) -> float:
    """Return the largest difference between the novelties of the texts, each compared with those before."""
    return float(np.abs(np.subtract(_novelties(reference, texts), _novelties(other, texts))).max())


def fixed_texts() -> list[str]:
    """Return the texts of some of the demo's real traces."""
    with resources.files("worker.demo").joinpath("real_traces.jsonl").open() as lines:
        return [embedding_text(ReasoningTrace.model_validate_json(line)) for line in islice(lines, _TEXTS)]


def _novelties(embedder: Embedder, texts: Sequence[str]) -> list[float]:
    cache = VectorCache(len(texts), embedder.dimensions)
    novelties = []
    for text in texts:
        [vector] = embedder.embed([text]).vectors
        novelties.append(1 - (cache.max_cosine_similarity(vector) or 0.0))
        cache.add(vector)
    return novelties


def _seconds(embedder: Embedder, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    embedder.embed(texts)
    return time.perf_counter() - started
