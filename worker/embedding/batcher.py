"""One embedder for all lanes: whatever waits goes into the next batch, off the event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.embedding.base import Embedder, Embeddings
from worker.errors import EmbeddingError

MAX_ADMITTED = 64
"""However fast the embedder: more than this in one batch gains nothing."""

_SAMPLE = "the agent calls a tool, reads what it says and decides what to do next " * 40


@dataclass(frozen=True, slots=True)
class Embedded:
    """A text's vector, and when what happened to it (``time.monotonic`` seconds).

    Attributes:
        vector: shape (dimensions,), float32, length 1.
        admitted: its turn in the bounded queue came; the budget counts from here.
        started: the embedder took it.
        finished: the embedder returned.
    """

    vector: NDArray[np.float32]
    admitted: float
    started: float
    finished: float


@dataclass(slots=True)
class _Waiting:
    text: str
    admitted: float
    result: asyncio.Future[Embedded]


class Batcher:
    """Embeds texts of many lanes in batches, first come first served.

    At most ``limit`` texts are admitted at a time; the rest waits in the lanes, and behind them in Kafka.
    A lone text is never held back to fill a batch. When the embedder fails, every text of that batch gets
    the error.

    Args:
        embedder: runs in a thread of its own.
        limit: how many texts may be admitted.
        on_batch: told of every batch: its size and how many texts were truncated.
        on_error: told of every batch that failed.
    """

    def __init__(
        self,
        embedder: Embedder,
        limit: int = MAX_ADMITTED,
        on_batch: Callable[[int, int], None] = lambda _size, _truncated: None,
        on_error: Callable[[], None] = lambda: None,
    ) -> None:
        self.embedder = embedder
        self.limit = limit
        self._on_batch = on_batch
        self._on_error = on_error
        self._admission = asyncio.Semaphore(limit)
        self._waiting: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def embed(self, text: str) -> Embedded:
        """Wait for admission, then for the text's batch.

        Raises:
            EmbeddingError: the embedder failed.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="batcher")
        async with self._admission:
            if self._closed:  # nobody would take it
                raise asyncio.CancelledError
            waiting = _Waiting(text, time.monotonic(), asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            self._wake.set()
            return await waiting.result

    async def close(self) -> None:
        """Stop; texts that still wait are cancelled. A batch that runs is not waited for."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for waiting in self._waiting:
            waiting.result.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._take():
                started = time.monotonic()
                try:
                    texts = [waiting.text for waiting in batch]
                    embeddings = await loop.run_in_executor(self._executor, self._embed, texts)
                    self._resolve(batch, embeddings, started)
                except asyncio.CancelledError:
                    for waiting in batch:
                        waiting.result.cancel()
                    raise
                except Exception as error:  # noqa: BLE001 - whatever it is, every waiter must hear of it
                    self._on_error()
                    for waiting in batch:
                        if not waiting.result.done():
                            waiting.result.set_exception(error)

    def _embed(self, texts: Sequence[str]) -> Embeddings:
        embeddings = self.embedder.embed(texts)
        expected = (len(texts), self.embedder.dimensions)
        if embeddings.vectors.shape != expected or not np.isfinite(embeddings.vectors).all():
            raise EmbeddingError(
                f"{self.embedder.description} returned no finite vectors of shape {expected}"
            )
        return embeddings

    def _take(self) -> list[_Waiting]:
        batch = [waiting for waiting in self._waiting if not waiting.result.done()]
        self._waiting.clear()
        return batch

    def _resolve(self, batch: Sequence[_Waiting], embeddings: Embeddings, started: float) -> None:
        finished = time.monotonic()
        for waiting, vector in zip(batch, embeddings.vectors, strict=True):
            if not waiting.result.done():
                waiting.result.set_result(Embedded(vector, waiting.admitted, started, finished))
        self._on_batch(len(batch), embeddings.truncated)


def admission_limit(embedder: Embedder, budget: float, repeats: int = 3) -> int:
    """Measure the embedder and say how many texts it can take so that the last stays within the budget.

    Half the budget times the rate: with more admitted, a text would use up its budget waiting.

    Args:
        embedder: is warmed up by it.
        budget: seconds.
        repeats: how often a long text is embedded; the fastest counts.
    """
    embedder.embed([_SAMPLE])
    fastest = min(_timed(embedder.embed, [_SAMPLE]) for _ in range(repeats))
    return max(1, min(MAX_ADMITTED, int(budget / 2 / fastest)))


def _timed(function: Callable[..., Any], *arguments: Any) -> float:
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started
