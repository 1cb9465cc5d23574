"""Run a worker until it is told to stop, or cannot go on."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from worker import __version__
from worker.embedding import Batcher, Embedder, load_embedder
from worker.embedding.batcher import admission_limit
from worker.errors import WorkerError
from worker.observe.metrics import Metrics
from worker.settings import Settings
from worker.stream.app import WorkerApp
from worker.stream.publisher import KafkaPublisher
from worker.stream.topics import Topic, TopicAdmin, differences

logger = logging.getLogger(__name__)


def run_worker(settings: Settings) -> None:
    """Work until SIGTERM or SIGINT; then finish what was sent, commit, and leave the group.

    Raises:
        WorkerError: it could not start, or could not go on; nothing is committed that was not finished.
    """
    topics = asyncio.run(_require_topics(settings))
    # Before there is an event loop, so that a signal ends the seconds that a model takes to load.
    embedder = load_embedder(settings.embedding, settings.cache)
    limit = 0 if embedder is None else admission_limit(embedder, settings.limits.budget)
    asyncio.run(_work(settings, topics, embedder, limit))


async def _require_topics(settings: Settings) -> dict[str, Topic]:
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topics = await admin.require()
    for difference in differences(topics, settings.topics):
        logger.warning("%s", difference)
    return topics


async def _work(settings: Settings, topics: dict[str, Topic], embedder: Embedder | None, limit: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    failed: asyncio.Future[None] = loop.create_future()

    def fail(error: BaseException) -> None:
        if not failed.done():
            failed.set_exception(error)

    metrics = Metrics(settings.policy, settings.limits.budget)
    async with AsyncExitStack() as stack:
        batcher = _make_batcher(embedder, limit, metrics)
        if batcher is not None:
            stack.push_async_callback(batcher.close)
        publisher = KafkaPublisher(settings.kafka, max(topic.max_message_bytes for topic in topics.values()))
        await publisher.start()
        stack.push_async_callback(publisher.stop)
        datadir = stack.enter_context(TemporaryDirectory(prefix="kp-worker-"))
        app = WorkerApp(settings, topics, batcher, publisher, metrics, Path(datadir), fail)
        await _serve(app, stop, failed)


def _make_batcher(embedder: Embedder | None, limit: int, metrics: Metrics) -> Batcher | None:
    if embedder is None:
        metrics.built(__version__, "none", "none", "none")
        return None
    metrics.built(__version__, embedder.description, embedder.precision, "cpu")
    logger.info("embedding with %s in %s, %d at a time", embedder.description, embedder.precision, limit)
    return Batcher(embedder, limit, metrics.embedded, metrics.embedding_failed)


async def _serve(app: WorkerApp, stop: asyncio.Event, failed: asyncio.Future[None]) -> None:
    web = app.settings.web
    logger.info("scoring %s; metrics at http://%s:%d/metrics", app.settings.topics.raw, web.host, web.port)
    starting = asyncio.create_task(app.faust.start())
    ends: list[asyncio.Future[Any]] = [
        asyncio.create_task(stop.wait()),
        asyncio.create_task(app.faust.wait_until_stopped()),
        failed,
    ]
    try:
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        if app.faust.crashed:
            raise WorkerError(f"Faust gave up: {app.faust.crash_reason!r}") from app.faust.crash_reason
    except OSError as error:
        raise WorkerError(f"web.host, web.port: {web.host}:{web.port}: {error.strerror}") from error
    finally:
        logger.info("stopping")
        await app.faust.stop()
        for end in (starting, *ends):
            end.cancel()
