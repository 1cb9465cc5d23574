"""Make the embedder that the settings ask for."""

from __future__ import annotations

from functools import partial

from worker.embedding.base import Embedder
from worker.embedding.hashing import HashingEmbedder
from worker.embedding.precision import choose_precision
from worker.errors import EmbeddingError
from worker.settings import CacheSettings, EmbeddingSettings


def load_embedder(settings: EmbeddingSettings, cache: CacheSettings, parallel: int = 1) -> Embedder | None:
    """Return the embedder; None where the backend is ``none``.

    Args:
        settings: which one.
        cache: its dimensions must be the embedder's.
        parallel: threads that will call it at once.

    Raises:
        EmbeddingError: the model cannot be loaded, or its dimensions are not the cache's; names the setting.
    """
    embedder = _make(settings, cache, parallel)
    return None if embedder is None else _fitting(embedder, cache)


def _fitting(embedder: Embedder, cache: CacheSettings) -> Embedder:
    if embedder.dimensions != cache.dimensions:
        raise EmbeddingError(
            f"cache.dimensions: got {cache.dimensions}; {embedder.description} (embedding.model) "
            f"makes vectors of {embedder.dimensions}"
        )
    return embedder


def _make(settings: EmbeddingSettings, cache: CacheSettings, parallel: int) -> Embedder | None:
    match settings.backend:
        case "none":
            return None
        case "hashing":
            return HashingEmbedder(cache.dimensions, settings.max_tokens)
        case "sentence-transformers":
            # Importing torch takes seconds, which `none` and `hashing` need not wait for.
            from worker.embedding.sentence_transformers import SentenceTransformersEmbedder  # noqa: PLC0415

            make = partial(
                SentenceTransformersEmbedder,
                settings.model,
                settings.revision,
                settings.max_tokens,
                settings.truncation,
                device=settings.device,
                parallel=parallel,
            )
            if settings.precision != "auto":
                return make(precision=settings.precision)
            float32 = _fitting(make(precision="float32"), cache)  # before seconds of measuring
            return choose_precision(float32, make(precision="bfloat16"))
