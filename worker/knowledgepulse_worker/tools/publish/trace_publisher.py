"""Publish traces to the raw topic from an agent's process or from files."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Self

from knowledgepulse_kafka import CLIENT
from knowledgepulse_kafka.errors import NoBrokerError, TooLargeError
from knowledgepulse_kafka.idempotent_publisher import IdempotentPublisher, delivery_error
from knowledgepulse_kafka.rights import Right, topic_rights
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.record_key import KeyBy, key_of

logger = logging.getLogger(__name__)

WARNING_INTERVAL = 60.0
"""Seconds without a confirmation between two warnings."""
_UNCONFIRMED = 1000
_OVERHEAD = 1000
"""More bytes than a record takes beside its key and value."""
_LARGE_BYTES = 1_000_000
"""The size above which a topic with the default ``max.message.bytes``, 1,048,588, may refuse a record."""

_PAUSES = (1.0, 2.0, 5.0, 10.0)
"""Seconds between two attempts to reach a broker; the last one repeats."""

_CLOSE_LIMIT, _END_LIMIT = 5.0, 1.0
"""Seconds for the client to close, and for its thread to end, in a publication with a limit."""


def _silence_client() -> None:
    """Log nothing of the client, unless the program has set its level.

    It logs each attempt, thousands in a minute of an outage, of which the publisher itself warns. An agent
    whose standard error nobody reads would wait for its reader.
    """
    client = logging.getLogger(CLIENT)
    if client.level == logging.NOTSET:
        client.setLevel(logging.CRITICAL)


@dataclass
class PublishProgress:
    """Progress of a publication, in records, which are numbered from 0.

    Attributes:
        records: the number of those that were sent.
        confirmed: the number before the first unconfirmed one.
        left: the numbers of those that were sent and not confirmed, once the publication has ended.
        without_key: the number of those that were sent without a key.
    """

    records: int = 0
    confirmed: int = 0
    left: frozenset[int] = frozenset()
    without_key: int = 0


class TracePublisher:
    """Publish traces to the raw topic, each exactly once, across broker outages of any length.

    ::

        async with TracePublisher(settings) as publisher:
            await publisher.publish(trace)

    The key determines the partition as in Kafka's Java client (murmur2), and only traces of the same
    partition are compared: keyed by ``id``, a random share of all traces; by ``agent_id`` or ``task_domain``,
    including all traces of the same agent or domain.

    It waits for the first broker, and logs that once. In an outage, it logs a warning every minute.

    Args:
        settings: the brokers, the raw topic and the largest trace.
        key_by: the record key: the trace's id, or a field of its metadata.

    Attributes:
        topic: the raw topic.
        key_by: the record key.
        published: the progress, also after the block has ended.
    """

    def __init__(self, settings: Settings, key_by: KeyBy = "id") -> None:
        self.published = PublishProgress()
        self._settings = settings
        self.topic = settings.topics.raw
        self.key_by = key_by
        self._trace_bytes = settings.limits.trace_bytes
        # The key is a part of the trace, so no record is too large for the client alone.
        self._publisher = IdempotentPublisher(
            settings.kafka.client_config(), 2 * self._trace_bytes + _OVERHEAD
        )
        self._unconfirmed: deque[asyncio.Future[object]] = deque()

    async def __aenter__(self) -> Self:
        """Connect as soon as a broker can be reached, which may be long after an agent has started.

        Raises:
            SecurityError: the brokers reject the login, the certificate or an operation.
            TopicError: the raw topic does not exist.
        """
        _silence_client()
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            try:
                await self.connect()
            except NoBrokerError as error:
                if pause == _PAUSES[0]:
                    logger.warning("%s; waiting for a broker", error)
                await asyncio.sleep(pause)
            else:
                break
        return self

    async def connect(self) -> None:
        """Connect now.

        Raises:
            NoBrokerError: no broker can be reached.
            SecurityError: the brokers reject the login, the certificate or an operation.
            TopicError: the raw topic does not exist.
        """
        async with permitted_admin(self._settings, publishing_rights(self._settings)) as admin:
            await admin.require_existing(self.topic)  # producing to it may create it, with one partition
        await self._publisher.__aenter__()
        self._warning = asyncio.create_task(self._warn_of_silence())

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until the brokers have confirmed all traces; disconnect.

        If an error ended the block, records in flight have a few seconds to be confirmed.

        Raises:
            DeliveryError: the brokers rejected a trace.
        """
        try:
            if kind is None:
                await self.flush()
        finally:
            self._warning.cancel()
            await self._publisher.__aexit__()
            first = self._count_confirmed()
            left = (n for n, delivery in enumerate(self._unconfirmed, first) if not _is_confirmed(delivery))
            self.published.left = frozenset(left)

    async def publish(self, trace: ReasoningTrace | bytes) -> bytes | None:
        """Publish a trace or its unchanged JSON; return its key, or None if it has none.

        Waits while too many traces are unconfirmed. A large trace waits for all, since after one that they
        refuse, brokers take no later one.

        Raises:
            TooLargeError: this trace exceeds ``limits.trace_bytes``, or the raw topic refused a trace.
            DeliveryError: the brokers rejected this trace or an earlier one.
        """
        value = trace if isinstance(trace, bytes) else trace.to_json()
        key = key_of(value, self.key_by)
        is_large = len(value) > min(_LARGE_BYTES, self._trace_bytes)
        if is_large:
            await self.flush()
            self.require_size(value)
        self._unconfirmed.append(await self._publisher.send(self.topic, value, key))
        self.published.records += 1
        self.published.without_key += key is None
        if is_large or len(self._unconfirmed) >= _UNCONFIRMED:
            await self.flush()
        return key

    def require_size(self, value: bytes) -> None:
        """Raise a TooLargeError if a trace exceeds ``limits.trace_bytes``."""
        if len(value) > self._trace_bytes:
            limit = f"limits.trace_bytes={self._trace_bytes}"
            raise TooLargeError(f"{self.topic}: {len(value)} bytes exceed {limit}")

    async def flush(self) -> None:
        """Wait until the brokers have confirmed all traces; raise a DeliveryError if they rejected one."""
        if self._unconfirmed:
            await asyncio.wait(self._unconfirmed)
        failures = [error for delivery in self._unconfirmed if (error := delivery.exception())]
        self._count_confirmed()
        if failures:
            raise delivery_error(self.topic, failures[0]) from failures[0]

    async def _warn_of_silence(self) -> None:
        """Log a warning every minute without a confirmation."""
        while True:
            before = self._count_confirmed()
            await asyncio.sleep(WARNING_INTERVAL)
            if self._unconfirmed and self._count_confirmed() == before:
                logger.warning(
                    "no record confirmed for %g s; %d confirmed, %d waiting; still retrying",
                    *(WARNING_INTERVAL, before, len(self._unconfirmed)),
                )

    def _count_confirmed(self) -> int:
        while self._unconfirmed and _is_confirmed(self._unconfirmed[0]):
            self._unconfirmed.popleft()
            self.published.confirmed += 1
        return self.published.confirmed


def _is_confirmed(delivery: asyncio.Future[object]) -> bool:
    return delivery.done() and not delivery.cancelled() and delivery.exception() is None


def publishing_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that publishing needs."""
    yield from topic_rights(["Write"], settings.topics.raw)


def publish_lines(lines: Iterable[bytes], publisher: TracePublisher, limit: float | None = None) -> None:
    """Publish lines unchanged, and wait until the brokers have confirmed all of them.

    Args:
        lines: one JSON document each; empty lines are skipped. Iteration may block, as on a pipe.
        publisher: a publisher that is not entered yet; it has the progress, even after an error.
        limit: seconds to wait for the brokers; None for as long as they are away.

    Raises:
        NoBrokerError: there is a limit, and no broker can be reached at the start or within it.
        SecurityError: the brokers reject the login, the certificate or an operation.
        TopicError: the raw topic does not exist.
        DeliveryError: the brokers rejected a record.
    """
    deadline = None if limit is None else time.monotonic() + limit
    with _event_loop(None if limit is None else _END_LIMIT) as run:
        run(publisher.__aenter__() if limit is None else publisher.connect(), deadline)
        try:
            for line in lines:
                if value := line.strip():
                    run(publisher.publish(value), deadline)
            run(publisher.flush(), deadline)
        finally:
            closing = None if limit is None else time.monotonic() + _CLOSE_LIMIT
            run(publisher.__aexit__(*sys.exc_info()), closing)


@contextmanager
def _event_loop(end_limit: float | None) -> Iterator[Callable[..., None]]:
    """Run an event loop in another thread, so that this one may block; yield a function to run coroutines.

    ``end_limit``: seconds for the thread to end; then it is left behind, as Kafka's client may wait for
    requests to brokers that do not answer. None waits.
    """
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def turn() -> None:
        end = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), end))
        await end.wait()

    def run(coroutine: Coroutine[Any, Any, Any], deadline: float | None = None) -> None:
        running = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            running.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            running.cancel()
            raise NoBrokerError("kafka.bootstrap_servers: no confirmation in time") from None
        except BaseException:  # including Ctrl-C and SIGTERM, which this thread receives
            running.cancel()
            raise

    thread = threading.Thread(target=asyncio.run, args=(turn(),), name="publisher", daemon=True)
    thread.start()
    loop, end = started.result()
    try:
        yield run
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(end_limit)
