"""`kp-worker` with an embedder that kills its process when it gets a deadly text.

python -m chaos.deadly run --config worker.toml
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import worker.stream.worker
from support.child import start_child_in
from worker.cli.entry import main
from worker.embedding import Embedder
from worker.embedding.base import Embeddings
from worker.settings import CacheSettings, EmbeddingSettings

DEADLY = "kill -9"
"""The marker of deadly texts."""


class DeadlyEmbedder:
    """Delegate to another embedder, unless a text is deadly."""

    def __init__(self, embedder: Embedder) -> None:
        self.dimensions = embedder.dimensions
        self.identity = embedder.identity
        self.precision = embedder.precision
        self.runtime = embedder.runtime
        self.device = embedder.device
        self.parallel = embedder.parallel
        self.batch = 64
        self.description = f"{embedder.description}, deadly"
        self._embedder = embedder

    def warm(self) -> None:
        """The first texts may take their time."""

    def embed(self, texts: Sequence[str]) -> Embeddings:
        if any(DEADLY in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        return self._embedder.embed(texts)


def _load_deadly(settings: EmbeddingSettings, cache: CacheSettings, parallel: int) -> Embedder | None:
    embedder = _load_embedder(settings, cache, parallel)
    return None if embedder is None else DeadlyEmbedder(embedder)


_load_embedder = worker.stream.worker.load_embedder

if __name__ == "__main__":
    start_child_in("chaos.deadly")
    worker.stream.worker.load_embedder = _load_deadly
    main()
