"""The embedder of a worker, as it is when the worker starts."""

from __future__ import annotations

from knowledgepulse_worker.embedding import Embedder, Speed, load_embedder, measure
from knowledgepulse_worker.embedding.cores import usable_cores
from knowledgepulse_worker.settings import Settings


def warm_embedder(settings: Settings) -> tuple[Embedder | None, Speed | None]:
    """Load the embedder, use it once, and time it; return None for both without one.

    An embedder that always fails does so here, where no record is blamed.

    Raises:
        EmbeddingError: the model cannot be loaded, or fails.
        MissingExtraError: the packages that run it are not installed.
    """
    embedder = load_embedder(settings.embedding, settings.cache, usable_cores())
    if embedder is None:
        return None, None
    embedder.warm()
    return embedder, measure(embedder, settings.limits.budget)
