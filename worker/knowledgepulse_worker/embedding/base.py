"""The embedder interface."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.scoring import PART_SEPARATOR, TraceText

Precision = Literal["float32", "bfloat16"]
"""The number format of a model's arithmetic; its vectors are float32."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The vectors of a batch of texts.

    Attributes:
        vectors: shape (texts, dimensions), float32, rows of length 1.
        truncated: the number of texts longer than the model's window.
        repeated: the number of vectors reused from texts with the same window.
    """

    vectors: NDArray[np.float32]
    truncated: int
    repeated: int = 0


class Embedder(Protocol):
    """Turns texts into unit vectors; the same text gives the same vector up to rounding.

    Implementations are called from up to ``parallel`` threads at once, never from the event loop's.
    """

    @property
    def dimensions(self) -> int:
        """The length of the vectors."""
        ...

    @property
    def identity(self) -> str:
        """A hash of everything that makes vectors comparable: weights, window, dimensions, text."""
        ...

    @property
    def precision(self) -> Precision:
        """The number format of the arithmetic."""
        ...

    @property
    def device(self) -> str:
        """The device: ``cpu`` or ``cuda``."""
        ...

    @property
    def runtime(self) -> str:
        """The name and version of the library that computes."""
        ...

    @property
    def parallel(self) -> int:
        """The best number of threads that call concurrently."""
        ...

    @property
    def batch(self) -> int:
        """The number of texts per call beyond which throughput no longer grows."""
        ...

    @property
    def description(self) -> str:
        """The model's human-readable name."""
        ...

    def warm(self) -> None:
        """Prepare at the start so that the first texts need not wait.

        Raises:
            EmbeddingError: the model failed.
        """
        ...

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed the texts.

        Raises:
            EmbeddingError: the model failed.
        """
        ...


def identity_of(model: str, text: TraceText) -> str:
    """Return the identity of a model together with the text of a trace that it embeds.

    For ``sdk`` it is the model's own identity, as in ledgers from before the text could be chosen.
    """
    return model if text == "sdk" else hashlib.sha256(f"{model} {text}".encode()).hexdigest()


def readable(texts: Sequence[str], text: TraceText) -> Sequence[str]:
    """Return texts with spaces between their parts, since a tokenizer would delete the separator."""
    return [one.replace(PART_SEPARATOR, " ") for one in texts] if text == "parts" else texts


def description_of(model: str, text: TraceText) -> str:
    """Return the name of a model, with the text of a trace that it embeds, as metrics and logs show it."""
    return model if text == "sdk" else f"{model}, text {text}"
