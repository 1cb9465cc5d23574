"""The vectors that are compared: embedders of the worker, and variants that were not chosen."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.embedding.lexical import LexicalEmbedder
from knowledgepulse_worker.scoring import PART, TraceText, embedding_text


class Pairs(LexicalEmbedder):
    """Words, and pairs of words that follow each other."""

    def _sums(self, parts: Sequence[Sequence[bytes]]) -> NDArray[np.float64]:
        return super()._sums([[*words, *map(b" ".join, pairwise(words))] for words in parts])


def _model(text: TraceText) -> Embedder:
    from knowledgepulse_worker.embedding import load_embedder
    from knowledgepulse_worker.settings import CacheSettings, EmbeddingSettings

    # The text is ours to choose, also one that the settings do not offer with a model.
    return load_embedder(EmbeddingSettings(), CacheSettings())


MAKERS: dict[str, Callable[[TraceText], Embedder]] = {
    "model": _model,
    "lexical": lambda text: LexicalEmbedder(text=text),
    "lexical-768": lambda text: LexicalEmbedder(768, text),
    "lexical-2048": lambda text: LexicalEmbedder(2048, text),
    "pairs": lambda text: Pairs(text=text),
}
"""Embedders by name; names joined by ``+`` are their vectors side by side, at equal weight."""


@dataclass(frozen=True)
class Embedded:
    """Vectors of shape (texts, dimensions), and how many were made per second, one after the other."""

    vectors: NDArray[np.float32]
    rate: float


def embed(backend: str, text: TraceText, traces: Sequence[ReasoningTrace], cache: Path | None) -> Embedded:
    """Embed a text of each trace; a model's vectors are kept in ``cache``, if given."""
    if "+" in backend:
        each = [embed(name, _text_of(name, text), traces, cache) for name in backend.split("+")]
        side_by_side = np.hstack([one.vectors for one in each]) / len(each) ** 0.5
        return Embedded(side_by_side, 1 / sum(1 / one.rate for one in each))
    texts = [embedding_text(trace, text) for trace in traces]
    if backend == "model":
        texts = [one.replace(PART, " ") for one in texts]
    key = hashlib.sha256(repr((backend, texts)).encode("utf-8", "surrogatepass")).hexdigest()
    kept = cache / f"{key[:32]}.npz" if cache and backend == "model" else None
    if kept and kept.exists():
        found = np.load(kept)
        return Embedded(found["vectors"], float(found["rate"]))
    embedder = MAKERS[backend](text)
    embedder.embed(texts[:1])
    started = time.perf_counter()
    vectors = np.concatenate([embedder.embed(texts[at : at + 16]).vectors for at in range(0, len(texts), 16)])
    embedded = Embedded(vectors, len(texts) / (time.perf_counter() - started))
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, vectors=vectors, rate=embedded.rate)
    return embedded


def _text_of(backend: str, text: TraceText) -> TraceText:
    """Return the text of one of several: a model reads ``agent``, which fits its window, for ``parts``."""
    return "agent" if backend == "model" and text == "parts" else text
