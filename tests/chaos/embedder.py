"""A controllable embedder that adds fresh noise to every vector and crashes on deadly texts.

Because of the noise, a record that is embedded twice gets different scores. Any defect that makes a worker
rescore a record is therefore visible as a difference.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from knowledgepulse_worker.embedding.base import Embedder, Embeddings
from knowledgepulse_worker.errors import EmbeddingError

DEADLY = "kill -9"
"""The marker of texts that kill the process that embeds them."""
NOISE = 1e-3
"""Standard deviation of the noise in each component; novelty changes by about as much."""


class Order(msgspec.Struct, frozen=True):
    """The behaviour of the embedders from their next call on.

    Attributes:
        mode: `work`; `fail` raises in every call; `hang` never returns.
        seconds: duration per text.
        blocked_until: no call returns before this time of the machine's monotonic clock, in seconds.
        noise: the standard deviation of the noise in each component.
    """

    mode: Literal["work", "fail", "hang"] = "work"
    seconds: float = 0.0
    blocked_until: float = 0.0
    noise: float = NOISE


class Orders:
    """The current order, in a file that all workers' embedders read in every call."""

    def __init__(self, path: Path, usual: Order) -> None:
        self.path = path
        self._usual = usual
        self.give(usual)

    def give(self, order: Order) -> None:
        unfinished = self.path.with_suffix(".new")
        unfinished.write_bytes(msgspec.json.encode(order))
        unfinished.replace(self.path)

    def block(self, seconds: float) -> None:
        """Block all embedding for a while."""
        self.give(msgspec.structs.replace(self._usual, blocked_until=time.monotonic() + seconds))

    def as_usual(self) -> None:
        self.give(self._usual)


class NoisyEmbedder:
    """Wraps an embedder, adding fresh noise to its vectors and normalising them."""

    def __init__(self, embedder: Embedder, orders: Path) -> None:
        self._embedder = embedder
        self._orders = orders
        self._random = np.random.default_rng(os.getpid() + time.time_ns())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    def embed(self, texts: Sequence[str]) -> Embeddings:
        if any(DEADLY in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        order = self._obey(len(texts))
        embeddings = self._embedder.embed(texts)
        if not order.noise:
            return embeddings
        noise = self._random.normal(scale=order.noise, size=embeddings.vectors.shape)
        vectors = embeddings.vectors + noise.astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Embeddings(vectors, embeddings.truncated, embeddings.repeated)

    def _obey(self, texts: int) -> Order:
        while (order := self._order()).blocked_until > time.monotonic():
            time.sleep(0.005)
        if order.mode == "fail":
            raise EmbeddingError("ordered to fail")
        if order.mode == "hang":
            threading.Event().wait()
        time.sleep(order.seconds * texts)
        return order

    def _order(self) -> Order:
        return msgspec.json.decode(self._orders.read_bytes(), type=Order)
