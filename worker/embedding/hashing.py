"""An embedder without a model: deterministic and fast, but blind to meaning."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from worker.embedding.base import Embeddings, Precision, description_of, identity_of
from worker.scoring import TraceText


class HashingEmbedder:
    """Feature hashing of a text's words (Weinberger et al. 2009, arXiv:0902.2206).

    Texts that share words are similar; a text has the same vector on every machine. For tests, and for trying
    the worker without torch.

    Args:
        dimensions: the length of the vectors.
        max_tokens: the number of words of a text that count.
        text: which text of a trace is embedded.
    """

    precision: Precision = "float32"
    device = "cpu"
    runtime = "Python"
    parallel = 1
    batch = 64

    def __init__(self, dimensions: int = 384, max_tokens: int = 256, text: TraceText = "sdk") -> None:
        self.dimensions = dimensions
        self.max_tokens = max_tokens
        model = hashlib.sha256(f"hashing {dimensions} {max_tokens}".encode()).hexdigest()
        self.identity = identity_of(model, text)
        self.description = description_of("hashing", text)

    def warm(self) -> None:
        """Nothing is to be prepared."""

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed the texts; all texts without words have the same vector."""
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        truncated = 0
        for row, text in zip(vectors, texts, strict=True):
            words = text.split(maxsplit=self.max_tokens)  # does not split the rest, which may be a megabyte
            truncated += len(words) > self.max_tokens
            for word, count in Counter(map(str.lower, words[: self.max_tokens] or [""])).items():
                digest = int.from_bytes(
                    hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
                )
                row[(digest >> 1) % self.dimensions] += count if digest & 1 else -count
            norm = float(np.linalg.norm(row))
            if norm == 0:  # words that cancel each other out
                row[0] = norm = 1.0
            row[:] = row / norm
        return Embeddings(vectors, truncated)
