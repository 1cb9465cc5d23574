"""One embedder for all lanes: what waits goes into the next batches, off the event loop."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from worker.embedding.base import Embedder, Embeddings
from worker.embedding.measurements import measured_once
from worker.errors import EmbeddingError

MAX_ADMITTED = 64
"""However fast the embedder: more than this at a time gains nothing."""

_SAMPLE = "the agent calls a tool, reads what it says and decides what to do next " * 40
_REPEATS = 10
"""Of which the fastest counts: on a busy machine three could all be slow, and batches be of one for good."""


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
    result: asyncio.Future[Embedded]
    admitted: float = math.nan


class Batcher:
    """Embeds texts of many lanes in batches, first come first served.

    At most ``limit`` texts are admitted at a time, and as many again may be asked for, so that the next batch
    is at hand; the rest waits in the lanes, and behind them in Kafka. The embedder's threads admit and take
    by themselves, each its share of what waits, so that none of them waits for the event loop, and a lone
    text is never held back to fill a batch. When the embedder fails, every text of that batch gets the error.

    Args:
        embedder: is called from as many threads as it says.
        limit: how many texts may be admitted.
        on_batch: called with every batch's size, and how many of its texts were truncated and repeated.
        on_error: told of every batch that failed.
    """

    def __init__(
        self,
        embedder: Embedder,
        limit: int = MAX_ADMITTED,
        on_batch: Callable[[int, int, int], None] = lambda _size, _truncated, _repeated: None,
        on_error: Callable[[], None] = lambda: None,
    ) -> None:
        self.embedder = embedder
        self.limit = limit
        self._on_batch = on_batch
        self._on_error = on_error
        self._room = asyncio.Semaphore(2 * limit)
        self._largest_batch = math.ceil(limit / embedder.parallel)
        self._asked: deque[_Waiting] = deque()
        self._admitted: deque[_Waiting] = deque()
        self._embedding = 0
        self._results: set[asyncio.Future[Embedded]] = set()
        self._changed = threading.Condition()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    async def submit(self, text: str) -> asyncio.Future[Embedded]:
        """Ask for a text, when there is room for it; a future that is done, or cancelled, makes room.

        Returns:
            what will be its vector, or raise :class:`EmbeddingError`.
        """
        loop = asyncio.get_running_loop()
        if not self._threads:
            self._start(loop)
        await self._room.acquire()
        result: asyncio.Future[Embedded] = loop.create_future()
        self._results.add(result)
        result.add_done_callback(self._leave)
        if self._closed:  # nobody would take it
            result.cancel()
            return result
        with self._changed:
            self._asked.append(_Waiting(text, result))
            self._admit()
            self._changed.notify()
        return result

    def _leave(self, result: asyncio.Future[Embedded]) -> None:
        self._results.discard(result)
        self._room.release()

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
            with self._changed:
                self._embedding -= len(batch)

    def _take(self) -> list[_Waiting]:
        """Wait for texts; returns the calling thread's share of them, and nothing at the end."""
        with self._changed:
            while not self._closed:
                self._admit()
                if self._admitted:
                    share = math.ceil(len(self._admitted) / (1 + self._idle))
                    batch = [self._admitted.popleft() for _ in range(min(share, self._largest_batch))]
                    self._embedding += len(batch)
                    return batch
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return []

    def _admit(self) -> None:
        self._admitted = deque(one for one in self._admitted if not one.result.done())
        while self._asked and len(self._admitted) + self._embedding < self.limit:
            waiting = self._asked.popleft()
            if not waiting.result.done():
                waiting.admitted = time.monotonic()
                self._admitted.append(waiting)

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
        self._on_batch(len(batch), outcome.truncated, outcome.repeated)
        for waiting, vector in zip(batch, outcome.vectors, strict=True):
            if not waiting.result.done():
                waiting.result.set_result(Embedded(vector, waiting.admitted, started, finished))


@dataclass(frozen=True)
class Admission:
    """How fast an embedder is.

    Attributes:
        rate: texts a second, all threads together.
    """

    rate: float


def admission_limit(embedder: Embedder, budget: float, folder: Path | None = None) -> int:
    """Return how many texts the embedder can take so that the last stays within the budget.

    A quarter of the budget times the rate, rounded up, the same for each thread: the rest is for a batch that
    is under way, and for all else that happens on the same cores.

    Args:
        embedder: its rate is measured, once a machine.
        budget: seconds.
        folder: what was measured is kept there for the next start; None keeps nothing.
    """
    conditions = {
        "identity": embedder.identity,
        "runtime": embedder.runtime,
        "precision": embedder.precision,
        "device": embedder.device,
        "parallel": embedder.parallel,
        "budget": budget,
    }
    admission = measured_once(folder, Admission, conditions, lambda: _measure(embedder, budget))
    of_each = math.ceil(budget / 4 * admission.rate / embedder.parallel)
    return max(1, min(MAX_ADMITTED, of_each * embedder.parallel))


def _measure(embedder: Embedder, budget: float) -> Admission:
    """Measure an embedder's rate, in batches that take about a quarter of the budget.

    A machine that was busy meanwhile gives no less, unless it was very busy.
    """
    rate, size = 0.0, 1
    texts = (f"{number} {_SAMPLE}" for number in itertools.count())  # the same again would not be embedded
    with ThreadPoolExecutor(embedder.parallel) as threads:

        def seconds(size: int) -> float:
            batches = [[next(texts) for _ in range(size)] for _ in range(embedder.parallel)]
            started = time.perf_counter()
            list(threads.map(embedder.embed, batches))
            return time.perf_counter() - started

        seconds(1)
        while size <= MAX_ADMITTED:
            fastest = min(seconds(size) for _ in range(_REPEATS))
            rate = max(rate, embedder.parallel * size / fastest)
            if fastest > budget / 4:
                break
            size *= 2
    return Admission(rate)
