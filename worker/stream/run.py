"""Run a worker until it is told to stop, or cannot go on."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib

from worker import __version__
from worker.embedding import Batcher, Embedder, load_embedder
from worker.embedding.batcher import admission_limit
from worker.embedding.load import cache_folder
from worker.errors import (
    DeliveryError,
    EmbeddingError,
    StalledError,
    StartError,
    TopicError,
    WorkerError,
)
from worker.extras import extra
from worker.heartbeat import beat
from worker.journal import Journal, Phase
from worker.kafka.group import GroupConsumer
from worker.kafka.lease import Lease, heartbeat_interval
from worker.kafka.publisher import KafkaPublisher
from worker.kafka.reader import TopicReader
from worker.kafka.rights import require_rights, worker_rights
from worker.kafka.topic_id import TopicIds
from worker.kafka.topics import Topic, TopicAdmin, differences
from worker.observe.metrics import Metrics
from worker.policy import PolicyInForce
from worker.reload import PolicyReload
from worker.settings import Settings
from worker.signals import stop_signals
from worker.stream.app import Clients, WorkerApp

if TYPE_CHECKING:
    from worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)

STOP_LIMIT = 5.0
"""Seconds to leave the group, and to close each connection."""

REBALANCE_MARGIN = 40.0
"""Seconds that a rebalance gives its members beyond ``limits.drain``."""

CLEANUP_LIMIT = 1.0
"""Seconds for the tasks that are left at the end."""

END_LIMIT = 20.0
"""Seconds from a failure to the end of the process: more than the steps of an orderly end take together."""

_SAMPLE = "any text"

TRACES_EXPORTER = "OTEL_TRACES_EXPORTER"
"""The variable of OpenTelemetry's that asks for spans: ``otlp`` or ``none``, here the default."""


@dataclass(frozen=True)
class _Setup:
    """What a worker is made of, once nothing can keep it from starting."""

    settings: Settings
    config: Path | None
    heartbeat: int
    journal: Journal
    socket: str
    topics: dict[str, Topic]
    embedder: Embedder | None
    admission_limit: int
    tracing: Tracing | None


def run_worker(
    settings: Settings, config: Path | None, heartbeat: int, journal: Journal, socket: str
) -> None:
    """Work until SIGTERM, SIGHUP or SIGINT; then finish what was sent, commit, and leave the group.

    Args:
        settings: the effective settings.
        config: the file that they come from; its policy is followed.
        heartbeat: a pipe to the process that watches this one.
        journal: notes for that process what is being worked on.
        socket: the name of the Unix socket on which that process asks for the pages.

    Raises:
        StartError: it cannot start as it is configured.
        WorkerError: it could not go on; nothing is committed that was not finished.
    """
    try:
        topics = asyncio.run(_require_topics(settings))
        # Before there is an event loop, so that a signal ends the seconds that a model takes to load.
        embedder = load_embedder(settings.embedding, settings.cache, joblib.cpu_count())
        limit = (
            0
            if embedder is None
            else admission_limit(embedder, settings.limits.budget, cache_folder(settings.embedding))
        )
        if embedder is not None:
            embedder.embed([_SAMPLE])  # what fails at every text fails here, where no record is blamed for it
    except (TopicError, EmbeddingError) as error:
        raise StartError(str(error)) from error
    with _tracing(settings) as tracing:
        _run(_work(_Setup(settings, config, heartbeat, journal, socket, topics, embedder, limit, tracing)))


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, as ``asyncio.run`` does, but leave tasks behind that do not end when cancelled.

    With a broker away some of the client's do not, and the process must end in time all the same.
    """
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=CLEANUP_LIMIT))


async def _require_topics(settings: Settings) -> dict[str, Topic]:
    await require_rights(settings.kafka, worker_rights(settings))
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topics = await admin.require()
    for difference in differences(topics, settings.topics):
        logger.warning("%s", difference)
    return topics


def _tracing(settings: Settings) -> AbstractContextManager[Tracing | None]:
    """Return what exports spans, if the standard variable asks for it; nothing is imported otherwise."""
    exporter = os.environ.get(TRACES_EXPORTER, "none")
    if exporter == "none":
        return nullcontext()
    if exporter != "otlp":
        raise StartError(f"{TRACES_EXPORTER}: got {exporter!r}; takes otlp or none")
    with extra("otel"):
        from worker.observe.tracing import otlp_tracing  # noqa: PLC0415 - only where spans are exported
    return otlp_tracing(settings.kafka.group)


async def _work(setup: _Setup) -> None:
    settings, topics = setup.settings, setup.topics
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (*stop_signals(), signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    failed: asyncio.Future[None] = loop.create_future()

    def fail(error: BaseException) -> None:
        if not failed.done():
            setup.journal.close(_blamed(error))
            failed.set_exception(error)

    metrics = Metrics(settings.policy, settings.limits.budget)
    async with AsyncExitStack() as stack:
        stack.callback(setup.journal.close)
        batcher = _make_batcher(setup.embedder, setup.admission_limit, metrics)
        if batcher is not None:
            stack.push_async_callback(_within, STOP_LIMIT, batcher.close)
        lease = Lease(settings.kafka.session_timeout - heartbeat_interval(settings.kafka.session_timeout))
        largest = max(topic.max_message_bytes for topic in topics.values())
        publisher = KafkaPublisher(settings.kafka, largest, lease)
        await publisher.start()
        stack.push_async_callback(_within, STOP_LIMIT, publisher.stop)
        in_force = PolicyInForce(settings.policy)
        kafka, limits = settings.kafka, settings.limits
        clients = Clients(
            group=partial(GroupConsumer, kafka, limits.batch_bytes, lease, limits.drain + REBALANCE_MARGIN),
            topic_ids=TopicIds(kafka, settings.topics.raw),
            reader=partial(TopicReader, kafka, limits.batch_bytes),
            publisher=publisher,
        )
        app = WorkerApp(
            settings,
            setup.socket,
            topics,
            batcher,
            clients,
            metrics,
            in_force,
            fail,
            setup.tracing,
            setup.journal,
        )
        heart = _guard(beat(setup.heartbeat, lambda: app.readiness.reasons), fail)
        guards = [_guard(app.guard.watch(lambda: app.source), fail)]
        if setup.config is not None:
            reload = PolicyReload(setup.config, settings, in_force, metrics)
            guards.append(_guard(reload.watch(), fail))
        gc.collect()
        gc.freeze()  # a full collection would look at all that PyTorch and the rest have imported, each time
        await _serve(app, stop, failed, heart, guards)


def _blamed(error: BaseException) -> frozenset[Phase]:
    """Return the phases in which a record may be why the process ends; no record causes an outage."""
    if isinstance(error, DeliveryError | TopicError):
        return frozenset()
    if isinstance(error, StalledError):
        return frozenset({Phase.COMPUTING})  # an embedder that hangs; what is being sent waits for the broker
    return frozenset(Phase)


def _guard(watching: Coroutine[Any, Any, None], fail: Callable[[BaseException], None]) -> asyncio.Task[None]:
    """Run what watches over the worker; its error ends the process."""

    def look(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            fail(error)

    task = asyncio.create_task(watching)
    task.add_done_callback(look)
    return task


def _make_batcher(embedder: Embedder | None, limit: int, metrics: Metrics) -> Batcher | None:
    if embedder is None:
        metrics.built(__version__, "none", "none", "none")
        return None
    metrics.built(__version__, embedder.description, embedder.precision, embedder.device)
    logger.info(
        "embedding with %s in %s on %s, %d at a time in %d threads",
        embedder.description,
        embedder.precision,
        embedder.device,
        limit,
        embedder.parallel,
    )
    return Batcher(embedder, limit, metrics.embedded, metrics.embedding_failed)


async def _within(limit: float, close: Callable[[], Awaitable[None]]) -> None:
    """Close something, if it can be closed in time; with a broker away it may wait for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await close()


async def _serve(
    app: WorkerApp,
    stop: asyncio.Event,
    failed: asyncio.Future[None],
    heart: asyncio.Task[None],
    guards: list[asyncio.Task[None]],
) -> None:
    web = app.settings.web
    logger.info(
        "scoring %s; status page and metrics at http://%s:%d/", app.settings.topics.raw, web.host, web.port
    )
    starting = asyncio.create_task(app.faust.start())
    ends: list[asyncio.Future[Any]] = [
        asyncio.create_task(stop.wait()),
        asyncio.create_task(app.faust.wait_until_stopped()),
        failed,
    ]
    try:
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        if app.faust.crashed:
            raise WorkerError(f"Faust gave up: {app.faust.crash_reason!r}") from app.faust.crash_reason
    finally:
        logger.info("stopping")
        if not stop.is_set():
            # Whatever hangs, even a task that cannot be cancelled: the traceback tells what it was.
            faulthandler.dump_traceback_later(END_LIMIT, exit=True)
        for guard in guards:
            guard.cancel()
        # What was scored is finished before an orderly end; after a failure nothing is worth a wait.
        await _within(STOP_LIMIT + (app.settings.limits.drain if stop.is_set() else 0), app.faust.stop)
        heart.cancel()  # without a sign of life from here on, what still hangs is ended from outside
        for end in (starting, *ends):
            end.cancel()
