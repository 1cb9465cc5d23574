"""The embedder interface."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.scoring import PART_SEPARATOR, TraceText

Precision = Literal["float32", "bfloat16", "int16"]
"""The number format of a model's products; its vectors are float32."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The vectors of a batch of texts.

    Attributes:
        vectors: shape (texts, dimensions), float32, rows of length 1.
        truncated: the number of texts longer than the model's window.
        repeated: the number of vectors reused from texts with the same window.
        buckets: the buckets of each text's words, two bytes each, as learned values read them; None if they
            read other words than the embedder.
    """

    vectors: NDArray[np.float32]
    truncated: int
    repeated: int = 0
    buckets: Sequence[bytes] | None = None


class Embedder(Protocol):
    """Turns texts into unit vectors; the same text gives the same vector up to rounding.

    Implementations are called from up to ``parallel`` threads at once, never from the event loop's.

    Attributes:
        dimensions: the length of the vectors.
        identity: a hash of everything that makes vectors comparable: weights, window, dimensions, input.
        precision: the number format of the arithmetic.
        device: ``cpu`` or ``cuda``.
        runtime: the name and version of the library that computes.
        parallel: the best number of threads that call concurrently.
        batch: the number of texts per call beyond which throughput no longer grows.
        description: the model's human-readable name.
    """

    dimensions: int
    identity: str
    precision: Precision
    device: str
    runtime: str
    parallel: int
    batch: int
    description: str

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


@dataclass(frozen=True)
class ModelInput:
    """What a model reads of a trace.

    Attributes:
        text: the text of the trace.
        prefix: what precedes each text, as the model expects it, such as ``query: ``.
    """

    text: TraceText = "sdk"
    prefix: str = ""

    def identity(self, model: str) -> str:
        """Return the identity of a model together with its input.

        For the text ``sdk`` without a prefix, it is the model's own identity, as in ledgers from before these
        could be chosen.
        """
        if self.prefix:
            parts = f"{model} {self.text} {json.dumps(self.prefix)}"
        elif self.text == "sdk":
            return model
        else:
            parts = f"{model} {self.text}"
        return hashlib.sha256(parts.encode()).hexdigest()

    def description(self, model: str) -> str:
        """Return the name of a model with its input, as metrics and logs show it."""
        named = model if self.text == "sdk" else f"{model}, text {self.text}"
        return f"{named}, prefix {json.dumps(self.prefix, ensure_ascii=False)}" if self.prefix else named

    def read(self, texts: Sequence[str]) -> list[str]:
        """Return texts with their prefix, and with spaces between their parts.

        A tokenizer would delete the separator, and so join the words on both sides.
        """
        return [
            self.prefix + (text.replace(PART_SEPARATOR, " ") if self.text == "parts" else text)
            for text in texts
        ]
