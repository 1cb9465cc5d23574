"""Choose the embedding precision: bfloat16 only if it is faster, and accurate enough."""

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

MIN_SPEEDUP = 1.3
"""Speedup below which bfloat16 is not worth its rounding errors."""

MAX_CHANGE = 0.005
"""Largest accepted change of a novelty."""


@dataclass(frozen=True)
class Comparison:
    """The speed and accuracy of another precision than float32.

    Attributes:
        speedup: the median over the texts of float32's time divided by the other's.
        change: the largest difference in novelty, with each text compared to the earlier ones.
    """

    speedup: float
    change: float

    @property
    def is_worth_it(self) -> bool:
        """Whether to use the other precision."""
        return self.speedup >= MIN_SPEEDUP and self.change <= MAX_CHANGE


def choose_precision(
    make: Callable[[Precision], Embedder], conditions: Mapping[str, str], folder: Path | None
) -> Embedder:
    """Return the embedder in the better precision, measured on real texts.

    A CPU without matrix instructions for bfloat16 computes it more slowly than float32. The instruction sets
    that a CPU reports are no proof, so measure.

    Args:
        make: creates the embedder in a precision.
        conditions: what the choice depends on, besides this machine.
        folder: stores the measurement for the next start; None stores nothing.
    """
    compared = measured_once(
        folder,
        Comparison,
        conditions,
        lambda: _compare(make("float32"), make("bfloat16"), sample_texts()),
    )
    logger.info(
        "bfloat16 is %.2f times as fast as float32 here (required: %.1f) and changes novelty by at most %.4f "
        "(allowed: %.3f)",
        compared.speedup,
        MIN_SPEEDUP,
        compared.change,
        MAX_CHANGE,
    )
    return make("bfloat16" if compared.is_worth_it else "float32")


def sample_texts() -> list[str]:
    """Return the embedding texts of some real traces."""
    texts: list[str] = json.loads(
        resources.files("worker.embedding").joinpath("sample_texts.json").read_text()
    )
    return texts


def _compare(reference: Embedder, other: Embedder, texts: Sequence[str]) -> Comparison:
    """Compare two embedders, which take turns at each text."""
    ours, theirs = _Trial(reference), _Trial(other)
    for text in (f"to warm up: {texts[0]}", *texts):
        ours.embed(text)
        theirs.embed(text)
    return Comparison(
        statistics.median(np.divide(ours.seconds, theirs.seconds)[1:]),
        float(np.abs(np.subtract(ours.novelties, theirs.novelties)).max()),
    )


class _Trial:
    """An embedder, with the seconds and the novelty of each text."""

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
