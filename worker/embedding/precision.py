"""Which precision to embed in: bfloat16 only where it is faster, and as good."""

from __future__ import annotations

import json
import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from worker.embedding.base import Embedder
from worker.embedding.measurements import measured_once
from worker.scoring import VectorCache

if TYPE_CHECKING:
    from worker.embedding.transformer import Precision

logger = logging.getLogger(__name__)

LEAST_SPEEDUP = 1.3
"""Below, it is not worth the rounding."""

MOST_CHANGE = 0.005
"""That novelty may differ by."""


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


def choose_precision(
    make: Callable[[Precision], Embedder], conditions: Mapping[str, str], folder: Path | None
) -> Embedder:
    """Return the embedder in the precision to embed in, measured on real texts.

    A CPU without matrix instructions for bfloat16 computes it more slowly than float32, and what it claims
    to have is no proof: so it is tried.

    Args:
        make: makes the embedder in a precision.
        conditions: what decides, besides this machine.
        folder: what was measured is kept there for the next start; None keeps nothing.
    """
    compared = measured_once(
        folder,
        Comparison,
        conditions,
        lambda: _compare(make("float32"), make("bfloat16"), sample_texts()),
    )
    logger.info(
        "bfloat16 is %.2f times as fast as float32 here (taken from %.1f on), and changes novelty by %.4f at "
        "most (up to %.3f)",
        compared.speedup,
        LEAST_SPEEDUP,
        compared.change,
        MOST_CHANGE,
    )
    return make("bfloat16" if compared.is_worth_it else "float32")


def sample_texts() -> list[str]:
    """Return what is embedded of some real traces."""
    texts: list[str] = json.loads(
        resources.files("worker.embedding").joinpath("sample_texts.json").read_text()
    )
    return texts


def _compare(reference: Embedder, other: Embedder, texts: Sequence[str]) -> Comparison:
    """Let both embed each text, in turns."""
    ours, theirs = _Tried(reference), _Tried(other)
    for text in (f"to warm up: {texts[0]}", *texts):
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
        self._cache = VectorCache(1000, embedder.dimensions)
        self.seconds: list[float] = []
        self.novelties: list[float] = []

    def embed(self, text: str) -> None:
        started = time.perf_counter()
        [vector] = self._embedder.embed([text]).vectors
        self.seconds.append(time.perf_counter() - started)
        self.novelties.append(1 - (self._cache.max_cosine_similarity(vector) or 0.0))
        self._cache.add(vector)
