"""How fast an embedder is on this processor, and whether the budget allows that."""

from __future__ import annotations

import time
from dataclasses import dataclass

from knowledgepulse_worker.embedding.base import Embedder

ROOM = 0.5
"""The part of the budget beyond which a text leaves little room for those that wait at the same time."""

_WORDS = 4096
"""Words of a text that fills the window of any embedder."""
_RUNS = 3


@dataclass(frozen=True)
class Speed:
    """How long an embedder takes for a text that fills its window, while nothing else computes.

    Attributes:
        seconds: the shortest time of a few texts.
        budget: the latency budget of a score in seconds.
    """

    seconds: float
    budget: float

    @property
    def exceeds_budget(self) -> bool:
        """Whether no text that fills the window can be scored within the budget."""
        return self.seconds > self.budget

    def __str__(self) -> str:
        time_of_text = f"a text that fills the window takes {_milliseconds(self.seconds)}"
        if self.seconds <= ROOM * self.budget:
            return f"{time_of_text}, {1 / self.seconds:,.0f} a second on a core"
        against = "exceeds the budget" if self.exceeds_budget else "leaves little room in the budget"
        return (
            f"{time_of_text}, which {against} of {_milliseconds(self.budget)}; a smaller "
            'embedding.max_tokens or embedding.backend = "lexical" takes less, or limits.budget allows more'
        )


def measure(embedder: Embedder, budget: float) -> Speed:
    """Time an embedder that is warm.

    Args:
        embedder: the embedder.
        budget: the latency budget of a score in seconds.

    Raises:
        EmbeddingError: the model failed.
    """
    # Texts that differ, since the vector of a text that was embedded before is reused.
    return Speed(min(_seconds(embedder, f"{run} " + "word " * _WORDS) for run in range(_RUNS)), budget)


def _seconds(embedder: Embedder, text: str) -> float:
    began = time.perf_counter()
    embedder.embed([text])
    return time.perf_counter() - began


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.3g} ms" if seconds < 1 else f"{seconds * 1000:,.0f} ms"
