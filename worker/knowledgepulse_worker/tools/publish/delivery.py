"""Publish traces from a thread of its own, so that whoever has them never waits.

Many traces are published as the process ends, since an agent's run and its process often end together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

from knowledgepulse_kafka.errors import TooLargeError
from knowledgepulse_worker.errors import InputError, WorkerError
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.durable_files import write
from knowledgepulse_worker.tools.common.record_key import KeyBy
from knowledgepulse_worker.tools.publish.spool import NotSpooledError, Spool
from knowledgepulse_worker.tools.publish.trace_publisher import TracePublisher

logger = logging.getLogger(__name__)

CLOSE_LIMIT = 5.0
"""Seconds that a process waits at its end for what is not confirmed yet."""

RETRY_PAUSE = 30.0
"""Seconds until the next attempt after the brokers refused a login, a topic or a trace."""

MAX_BYTES = 67_108_864
"""The most bytes that may wait for the brokers; beyond, the oldest are dropped."""

_MAX_REASONS = 20
"""The number of different reasons for losses that are logged."""


class _Item:
    """What waits: a function that makes traces, once, and its size in bytes."""

    def __init__(self, make: Callable[[], list[bytes]], size: int) -> None:
        self.traces, self.size = cache(make), size


class Delivery:
    """Publishes what is put into it, in order, across outages of any length.

    Args:
        to: the settings of the brokers, or a file to append to.
        key_by: the record key.
        spool: a folder for what is not confirmed when the process ends.
    """

    def __init__(self, to: Settings | Path | str, key_by: KeyBy, spool: Path | None) -> None:
        self._to, self._key_by = to, key_by
        self._spool = None if spool is None else Spool(spool)
        self._reasons: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """Begin with nothing, and no thread yet, as a process does that was forked."""
        self.lost = 0
        self._changed = threading.Condition()
        self._waiting: deque[_Item] = deque()
        self._size = 0
        self._is_closed = False
        self._more = asyncio.Event()
        self._thread: threading.Thread | None = None

    def put(self, make: Callable[[], list[bytes]], size: int) -> None:
        """Let traces wait, which are made when it is their turn; after the end, spool or lose them.

        Args:
            make: returns them as JSON, in the thread of the delivery.
            size: the bytes of memory that they take while they wait.
        """
        item, dropped = _Item(make, size), 0
        with self._changed:
            is_late = self._is_closed
            if not is_late:
                self._waiting.append(item)
                self._size += size
            while self._size > MAX_BYTES and len(self._waiting) > 1:
                self._size -= self._waiting.popleft().size
                dropped += 1
        if dropped:
            self.lose(dropped, "too many traces wait for the brokers")
        if is_late:
            self._keep_or_lose([item], "put after the end of the delivery")
        self._call(self._more.set)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function in the thread of the delivery, unless it is closed before."""
        self._call(lambda: self._loop.call_later(seconds, function))

    def lose(self, number: int, reason: str) -> None:
        """Count traces or runs that are not published, and log each reason once."""
        self.lost += number
        if reason not in self._reasons and len(self._reasons) < _MAX_REASONS:
            self._reasons.add(reason)
            logger.warning("not published: %s", reason)

    def flush(self, limit: float) -> bool:
        """Wait until all that was put is confirmed, for a number of seconds at most; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, limit)

    def close(self) -> None:
        """Wait for :data:`CLOSE_LIMIT` at most until all is confirmed; spool or lose the rest."""
        self.flush(CLOSE_LIMIT)
        with self._changed:
            self._is_closed = True
            rest, self._waiting = self._waiting, deque()
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._delivering.cancel)
        self._keep_or_lose(rest, "the brokers had not confirmed them at the end")

    def _keep_or_lose(self, items: Iterable[_Item], reason: str) -> None:
        """Spool traces that no thread will publish, or else count them as lost."""
        lines = [line for item in items for line in item.traces()]
        if not lines:
            return
        if self._spool is not None:
            try:
                self._spool.add(lines)
            except NotSpooledError as error:
                logger.warning("%s", error)
            else:
                logger.warning("%s waiting in %s", counted(len(lines), "trace"), self._spool.folder)
                return
        self.lose(len(lines), f"{counted(len(lines), 'trace')}: {reason}")

    # --- the thread

    def _call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread, which begins with the first call."""
        with self._changed:
            if self._is_closed:
                return
            if self._thread is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(_LateExecutor())
                self._delivering = self._loop.create_task(self._deliver())
                self._thread = threading.Thread(target=self._run, name="trace-delivery", daemon=True)
                self._thread.start()
            self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._delivering)

    async def _deliver(self) -> None:
        while True:
            try:
                if isinstance(self._to, Settings):
                    sink: TracePublisher | _File = TracePublisher(self._to, self._key_by)
                else:
                    sink = _File(Path(self._to))
                async with sink:
                    await self._publish(sink)
            except WorkerError as error:
                logger.warning("%s; trying again in %g s", error, RETRY_PAUSE)
                await asyncio.sleep(RETRY_PAUSE)

    async def _publish(self, sink: TracePublisher | _File) -> None:
        while True:
            if not self._waiting:
                self._more.clear()
                await self._more.wait()
                continue
            item = self._waiting[0]
            try:
                for trace in item.traces():
                    await sink.publish(trace)
                await sink.flush()
            except TooLargeError as error:
                self.lose(1, str(error))
            with self._changed:
                if self._waiting and self._waiting[0] is item:  # not dropped meanwhile
                    self._size -= self._waiting.popleft().size
                self._changed.notify_all()


class _File:
    """A file to which traces are appended, in the place of a publisher."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def publish(self, trace: bytes) -> None:
        try:
            write(self._path, (trace, b"\n"), append=True)
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}") from error

    async def flush(self) -> None:
        pass


class _LateExecutor(ThreadPoolExecutor):
    """Looks up hosts; those of ``concurrent.futures`` take no work once the main thread has ended."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the caller's
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future
