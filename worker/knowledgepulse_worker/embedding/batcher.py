"""Batch the texts of all lanes for one embedder, off the event loop."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.embedding.base import Embedder, Embeddings
from knowledgepulse_worker.embedding.letters import Letters, letters_of
from knowledgepulse_worker.errors import EmbeddingError


class EmbeddedText(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A text's vector and its timings (``time.monotonic`` seconds).

    Attributes:
        vector: shape (dimensions,), float32, length 1.
        admitted: when the text was admitted; the budget counts from here.
        started: when its batch started.
        finished: when its batch finished.
        letters: the numbers of its letters; None unless it is the first text of its batch.
        buckets: the buckets of its words; see :class:`Embeddings`.
    """

    vector: NDArray[np.float32]
    admitted: float
    started: float
    finished: float
    letters: Letters | None
    buckets: bytes | None = None


@dataclass(slots=True)
class _Waiting:
    text: str
    result: asyncio.Future[EmbeddedText]
    admitted: float = math.nan


class Batcher:
    """Embeds texts of many lanes in batches, first come, first served.

    The batcher admits as many texts as the embedder's threads embed at a time. It queues up to three times as
    many, so that the next batch is ready even after short texts. All other texts wait in the lanes or in
    Kafka.

    Texts that are submitted without a pause are handed over to the embedder's threads together. The threads
    admit texts and take equal shares of the queue themselves, so that no thread waits for the event loop. A
    lone text is never held back to fill a batch. If the embedder fails, every text of the batch gets the
    error.

    Args:
        embedder: called from ``embedder.parallel`` threads.
        on_batch: called with the size of every batch, and its numbers of truncated and repeated texts.
        on_error: called for every failed batch.
    """

    def __init__(
        self,
        embedder: Embedder,
        on_batch: Callable[[int, int, int], None] = lambda _size, _truncated, _repeated: None,
        on_error: Callable[[], None] = lambda: None,
    ) -> None:
        self.embedder = embedder
        self.limit = embedder.batch * embedder.parallel
        self._on_batch = on_batch
        self._on_error = on_error
        self._room = asyncio.Semaphore(4 * self.limit)
        self._submitted: list[_Waiting] = []
        self._queued: deque[_Waiting] = deque()
        self._admitted: deque[_Waiting] = deque()
        self._embedding = 0
        self._results: set[asyncio.Future[EmbeddedText]] = set()
        self._changed = threading.Condition()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    async def submit(self, text: str) -> asyncio.Future[EmbeddedText]:
        """Queue a text as soon as there is room; a future that is done or cancelled makes room.

        Returns:
            a future of the text's vector, which may raise :class:`EmbeddingError`.
        """
        loop = asyncio.get_running_loop()
        if not self._threads:
            self._start(loop)
        await self._room.acquire()
        result: asyncio.Future[EmbeddedText] = loop.create_future()
        self._results.add(result)
        result.add_done_callback(self._leave)
        if self._closed:  # no thread would take it
            result.cancel()
            return result
        if not self._submitted:
            loop.call_soon(self._hand_over)
        self._submitted.append(_Waiting(text, result))
        return result

    def _hand_over(self) -> None:
        """Queue the texts that were submitted since the last call."""
        with self._changed:
            self._queued += self._submitted
            self._admit()
            self._changed.notify(len(self._submitted))
        self._submitted.clear()

    def _leave(self, result: asyncio.Future[EmbeddedText]) -> None:
        self._results.discard(result)
        self._room.release()
        if result.cancelled():
            with self._changed:
                self._queued = _not_done(self._queued)
                self._admitted = _not_done(self._admitted)

    @property
    def is_backed_up(self) -> bool:
        """Whether texts wait for a thread."""
        return bool(self._submitted or self._queued or self._admitted)

    async def close(self) -> None:
        """Stop and cancel all pending texts, without waiting for running batches."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for result in list(self._results):
            result.cancel()

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        # Daemon threads, since a hung embedder must not keep the process alive.
        self._threads = [
            threading.Thread(target=self._work, args=(loop,), name=f"embedder {number}", daemon=True)
            for number in range(self.embedder.parallel)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while batch := self._take():
            started, texts = time.monotonic(), [waiting.text for waiting in batch]
            try:
                outcome: Embeddings | EmbeddingError = self._embed(texts)
            except EmbeddingError as error:
                outcome = error
            except BaseException as error:  # noqa: BLE001 - every waiter must get any error
                outcome = EmbeddingError(f"{self.embedder.description} failed: {error!r}")
            with suppress(RuntimeError):  # the event loop is closed, so nothing waits for the result
                finished, letters = time.monotonic(), letters_of(texts[0])
                loop.call_soon_threadsafe(self._resolve, batch, outcome, letters, started, finished)
            with self._changed:
                self._embedding -= len(batch)

    def _take(self) -> list[_Waiting]:
        """Wait for texts; return the calling thread's share of them, or an empty list after closing."""
        with self._changed:
            while not self._closed:
                self._admit()
                if self._admitted:
                    share = math.ceil(len(self._admitted) / (1 + self._idle))
                    batch = [self._admitted.popleft() for _ in range(min(share, self.embedder.batch))]
                    self._embedding += len(batch)
                    return batch
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return []

    def _admit(self) -> None:
        while self._queued and len(self._admitted) + self._embedding < self.limit:
            waiting = self._queued.popleft()
            waiting.admitted = time.monotonic()
            self._admitted.append(waiting)

    def _embed(self, texts: Sequence[str]) -> Embeddings:
        embeddings = self.embedder.embed(texts)
        expected = (len(texts), self.embedder.dimensions)
        if embeddings.vectors.shape != expected or not np.isfinite(embeddings.vectors).all():
            raise EmbeddingError(
                f"{self.embedder.description} did not return finite vectors of shape {expected}"
            )
        return embeddings

    def _resolve(
        self,
        batch: Sequence[_Waiting],
        outcome: Embeddings | EmbeddingError,
        letters: Letters,
        started: float,
        finished: float,
    ) -> None:
        # Set the results first, so that every waiter gets one even if a callback raises.
        if isinstance(outcome, EmbeddingError):
            for waiting in batch:
                if not waiting.result.done():
                    waiting.result.set_exception(outcome)
            self._on_error()
            return
        words: Sequence[bytes | None] = outcome.buckets or [None] * len(batch)
        first = batch[0]
        for waiting, vector, buckets in zip(batch, outcome.vectors, words, strict=True):
            if not waiting.result.done():
                counted = letters if waiting is first else None
                embedded = EmbeddedText(vector, waiting.admitted, started, finished, counted, buckets)
                waiting.result.set_result(embedded)
        self._on_batch(len(batch), outcome.truncated, outcome.repeated)


def _not_done(waiting: Iterable[_Waiting]) -> deque[_Waiting]:
    return deque(request for request in waiting if not request.result.done())
