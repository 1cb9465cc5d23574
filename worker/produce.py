"""Publish traces to the raw topic, from an agent's process or from files."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self

from schemas import ReasoningTrace
from worker.kafka.idempotent import IdempotentPublisher, delivery_error
from worker.kafka.rights import publishing_rights, require_rights
from worker.settings import Settings

logger = logging.getLogger(__name__)

KeyBy = Literal["id", "agent_id", "task_domain"]

SILENCE = 60.0
"""Seconds without a confirmation between two warnings."""
_UNCONFIRMED = 1000


@dataclass
class Published:
    """How far a publication has come.

    Attributes:
        records: how many were sent.
        confirmed: how many the brokers have confirmed, up to the first that they have not.
        without_key: how many of those that were sent have nothing to be keyed by.
    """

    records: int = 0
    confirmed: int = 0
    without_key: int = 0


class TracePublisher:
    """Publishes traces to the raw topic, each once, however long the brokers are away.

    ::

        async with TracePublisher(settings) as publisher:
            await publisher.publish(trace)

    The key decides the partition as it does for Kafka's own clients (murmur2), and the partition decides
    which traces are compared: keyed by ``id``, a random share of them; by ``agent_id`` or ``task_domain``,
    those of the same agent or domain.

    While the brokers are away it logs a warning a minute.

    Args:
        settings: the brokers and the raw topic.
        key_by: the trace's id, or the member of its metadata that becomes the record's key.

    Attributes:
        published: how far it has come; valid once the block has ended, too.
    """

    def __init__(self, settings: Settings, key_by: KeyBy = "id") -> None:
        self.published = Published()
        self._settings = settings
        self._topic = settings.topics.raw
        self._key_by = key_by
        self._publisher = IdempotentPublisher(settings.kafka)
        self._unconfirmed: deque[asyncio.Future[object]] = deque()

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            NoBrokerError: no broker can be reached.
            SecurityError: the brokers refuse the login, the certificate or a right.
        """
        await require_rights(self._settings.kafka, publishing_rights(self._settings))
        await self._publisher.__aenter__()
        self._warning = asyncio.create_task(self._warn_of_silence())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until the brokers have confirmed every trace; disconnect.

        Where an error ends the block, what is in flight gets a few seconds.

        Raises:
            DeliveryError: the brokers refused a trace.
        """
        try:
            if kind is None:
                await self.flush()
        finally:
            self._warning.cancel()
            await self._publisher.__aexit__()
            self._count_confirmed()

    async def publish(self, trace: ReasoningTrace | bytes) -> bytes | None:
        """Send a trace, or its JSON as it is, and return its key; None where it has none.

        Waits while too many traces are unconfirmed.

        Raises:
            DeliveryError: the brokers refused this trace or one before it.
        """
        value = trace if isinstance(trace, bytes) else trace.to_json()
        key = key_of(value, self._key_by)
        self._unconfirmed.append(await self._publisher.send(self._topic, value, key))
        self.published.records += 1
        self.published.without_key += key is None
        if len(self._unconfirmed) >= _UNCONFIRMED:
            await self.flush()
        return key

    async def flush(self) -> None:
        """Wait until the brokers have confirmed every trace.

        Raises:
            DeliveryError: they refused a trace.
        """
        if self._unconfirmed:
            await asyncio.wait(self._unconfirmed)
        refused = [error for delivery in self._unconfirmed if (error := delivery.exception())]
        self._count_confirmed()
        if refused:
            raise delivery_error(self._topic, refused[0]) from refused[0]

    async def _warn_of_silence(self) -> None:
        """Log a warning every minute without a confirmation."""
        while True:
            before = self._count_confirmed()
            await asyncio.sleep(SILENCE)
            if self._unconfirmed and self._count_confirmed() == before:
                logger.warning(
                    "no record was confirmed for %g s; %d are confirmed, %d wait; still retrying",
                    *(SILENCE, before, len(self._unconfirmed)),
                )

    def _count_confirmed(self) -> int:
        while self._unconfirmed and self._unconfirmed[0].done():
            if self._unconfirmed[0].cancelled() or self._unconfirmed[0].exception():
                break
            self._unconfirmed.popleft()
            self.published.confirmed += 1
        return self.published.confirmed


def publish_lines(lines: Iterable[bytes], publisher: TracePublisher) -> None:
    """Send each line as it is, and wait until the brokers have confirmed them all.

    Args:
        lines: one JSON document each; empty ones are passed over. They may block, as those of a pipe do.
        publisher: not entered yet; says afterwards how far it came, whatever ended this.

    Raises:
        NoBrokerError: no broker can be reached at the beginning.
        SecurityError: the brokers refuse the login, the certificate or a right.
        DeliveryError: the brokers refused a record.
    """
    with _event_loop() as run:
        run(publisher.__aenter__())
        try:
            for line in lines:
                if value := line.strip():
                    run(publisher.publish(value))
            run(publisher.flush())
        finally:
            run(publisher.__aexit__(*sys.exc_info()))


@contextmanager
def _event_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], None]]:
    """Run an event loop in another thread, so that this one may block; yield what runs a coroutine there."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def turn() -> None:
        end = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), end))
        await end.wait()

    def run(coroutine: Coroutine[Any, Any, Any]) -> None:
        running = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            running.result()
        except BaseException:  # Ctrl-C and SIGTERM too, which come to this thread
            running.cancel()
            raise

    thread = threading.Thread(target=asyncio.run, args=(turn(),), name="publisher")
    thread.start()
    loop, end = started.result()
    try:
        yield run
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


def key_of(value: bytes, key_by: KeyBy) -> bytes | None:
    """Return what a trace's JSON is keyed by; None where it has nothing of that name, or is no JSON."""
    try:
        trace = json.loads(value)
        key = trace["id"] if key_by == "id" else trace["metadata"][key_by]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return key.encode("utf-8", "replace") if isinstance(key, str) else None
