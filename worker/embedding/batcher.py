"""One embedder for all lanes: what waits goes into the next batches, off the event loop."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.embedding.base import Embedder, Embeddings
from worker.errors import EmbeddingError

MAX_ADMITTED = 64
"""However fast the embedder: more than this at a time gains nothing."""

_SAMPLE = "the agent calls a tool, reads what it says and decides what to do next " * 40
_REPEATS = 3


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
    The embedder's threads take from one queue, each its share of what waits, so that none of them waits for
    the event loop, and a lone text is never held back to fill a batch. When the embedder fails, every text of
    that batch gets the error.

    Args:
        embedder: is called from as many threads as it says.
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
        # While one half is embedded, the other one is at hand.
        self._largest_batch = math.ceil(limit / embedder.parallel / 2)
        self._waiting: deque[_Waiting] = deque()
        self._results: set[asyncio.Future[Embedded]] = set()
        self._changed = threading.Condition()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    async def embed(self, text: str) -> Embedded:
        """Wait for admission, then for the text's batch.

        Raises:
            EmbeddingError: the embedder failed.
        """
        loop = asyncio.get_running_loop()
        if not self._threads:
            self._start(loop)
        async with self._admission:
            if self._closed:  # nobody would take it
                raise asyncio.CancelledError
            waiting = _Waiting(text, time.monotonic(), loop.create_future())
            self._results.add(waiting.result)
            waiting.result.add_done_callback(self._results.discard)
            with self._changed:
                self._waiting.append(waiting)
                self._changed.notify()
            return await waiting.result

    async def close(self) -> None:
        """Stop; whoever still waits is cancelled. Batches that run are not waited for."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for result in list(self._results):
            result.cancel()

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        # Daemons: an embedder that hangs must not keep the process.
        self._threads = [
            threading.Thread(target=self._work, args=(loop,), name=f"embedder {number}", daemon=True)
            for number in range(self.embedder.parallel)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while batch := self._take():
            started = time.monotonic()
            try:
                outcome: Embeddings | EmbeddingError = self._embed([waiting.text for waiting in batch])
            except EmbeddingError as error:
                outcome = error
            except BaseException as error:  # noqa: BLE001 - whatever it is, every waiter must hear of it
                outcome = EmbeddingError(f"{self.embedder.description} failed: {error!r}")
            with suppress(RuntimeError):  # the event loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(self._resolve, batch, outcome, started, time.monotonic())

    def _take(self) -> list[_Waiting]:
        """Wait for texts; returns the calling thread's share of them, and nothing at the end."""
        with self._changed:
            while not self._closed:
                self._waiting = deque(one for one in self._waiting if not one.result.done())
                if self._waiting:
                    share = math.ceil(len(self._waiting) / (1 + self._idle))
                    return [self._waiting.popleft() for _ in range(min(share, self._largest_batch))]
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return []

    def _embed(self, texts: Sequence[str]) -> Embeddings:
        embeddings = self.embedder.embed(texts)
        expected = (len(texts), self.embedder.dimensions)
        if embeddings.vectors.shape != expected or not np.isfinite(embeddings.vectors).all():
            raise EmbeddingError(
                f"{self.embedder.description} returned no finite vectors of shape {expected}"
            )
        return embeddings

    def _resolve(
        self,
        batch: Sequence[_Waiting],
        outcome: Embeddings | EmbeddingError,
        started: float,
        finished: float,
    ) -> None:
        if isinstance(outcome, EmbeddingError):
            self._on_error()
            for waiting in batch:
                if not waiting.result.done():
                    waiting.result.set_exception(outcome)
            return
        self._on_batch(len(batch), outcome.truncated)
        for waiting, vector in zip(batch, outcome.vectors, strict=True):
            if not waiting.result.done():
                waiting.result.set_result(Embedded(vector, waiting.admitted, started, finished))


def admission_limit(embedder: Embedder, budget: float) -> int:
    """Measure the embedder and say how many texts it can take so that the last stays within the budget.

    Half the budget times the rate, the same for each thread: with more admitted, a text would use up its
    budget waiting. It is measured as the batcher calls it, in batches as large as a quarter of the budget
    allows.

    Args:
        embedder: is warmed up by it.
        budget: seconds.
    """
    rate, size = 0.0, 1
    with ThreadPoolExecutor(embedder.parallel) as threads:

        def seconds(texts: list[str]) -> float:
            started = time.perf_counter()
            list(threads.map(embedder.embed, [texts] * embedder.parallel))
            return time.perf_counter() - started

        seconds([_SAMPLE])
        while size <= MAX_ADMITTED:
            fastest = min(seconds([_SAMPLE] * size) for _ in range(_REPEATS))
            rate = max(rate, embedder.parallel * size / fastest)
            if fastest > budget / 4:
                break
            size *= 2
    of_each = max(1, round(budget / 2 * rate / embedder.parallel))
    return min(MAX_ADMITTED, of_each * embedder.parallel)
