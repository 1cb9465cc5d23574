"""Run a worker until it receives a stop signal or fails."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knowledgepulse_kafka.connection_diagnosis import explanation
from knowledgepulse_kafka.errors import DeliveryError, SecurityError, TopicError
from knowledgepulse_kafka.request_waits import Waits
from knowledgepulse_kafka.session import Rebalances, Session
from knowledgepulse_kafka.throttle import Throttle, Throttles
from knowledgepulse_kafka.topic_id import TopicIds
from knowledgepulse_kafka.topic_reader import TopicReader
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker import __version__
from knowledgepulse_worker.embedding import Batcher, Embedder, Speed
from knowledgepulse_worker.embedding.load import warm_embedder
from knowledgepulse_worker.errors import EmbeddingError, StartError, WorkerError
from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.kafka.policy_topic import keep_policy
from knowledgepulse_worker.kafka.replicas import ASK_INTERVAL
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.kafka.topic_settings import FOLLOW_INTERVAL, follow_topics
from knowledgepulse_worker.kafka.worker_rights import worker_id_prefix, worker_rights
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name, differences
from knowledgepulse_worker.lane.lane import Services
from knowledgepulse_worker.observe.history import KEEP_INTERVAL, HistoryFile
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import PolicyInForce
from knowledgepulse_worker.process.heartbeat import PipeWriter, beat
from knowledgepulse_worker.process.quarantine import Caution, Quarantine
from knowledgepulse_worker.process.signals import until_stopped
from knowledgepulse_worker.redaction.process import RedactionProcess
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.shutdown import close_within, run_in_time
from knowledgepulse_worker.stream.app import WorkerApp, services_of
from knowledgepulse_worker.stream.checks import CHECK_INTERVAL, check_topics, repeat
from knowledgepulse_worker.stream.faust import FaustApp
from knowledgepulse_worker.stream.registry_answers import watch_answers
from knowledgepulse_worker.stream.reload import PolicyReload

if TYPE_CHECKING:
    from knowledgepulse_worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)

STOP_LIMIT = 5.0
"""Seconds to leave the group, and to close a connection."""

END_LIMIT = 20.0
"""Seconds from a failure to the end of the process, which is more than an orderly end takes."""

MAX_BATCH_BYTES = 262_144
"""The size limit of a batch of outputs or ledger entries."""

TRACES_EXPORTER = "OTEL_TRACES_EXPORTER"
"""OpenTelemetry's variable that selects the span exporter: ``otlp`` or ``none`` (the default here)."""


def run_worker(
    settings: Settings,
    config: Path | None,
    pipe: PipeWriter,
    caution: Caution,
    history: int,
    instance: str,
    socket: int,
) -> None:
    """Work until SIGTERM, SIGHUP or SIGINT; then finish scored records, commit and leave the group.

    Args:
        settings: the effective settings.
        config: the settings file, whose policy is reloaded on change.
        pipe: the pipe to the supervisor.
        caution: what the supervisor knows from the deaths of earlier processes.
        history: the descriptor of the file of recent events.
        instance: what only the processes of this supervisor are called.
        socket: the descriptor of the socket on which the supervisor hands over connections to the pages.

    Raises:
        StartError: the configuration prevents the start.
        WorkerError: a fatal error; only finished records are committed.
    """
    try:
        topics, policy_since = asyncio.run(_require_topics(settings))
        # Before the event loop starts, so that a signal interrupts the seconds of loading a model.
        embedder, speed = warm_embedder(settings)
    except (TopicError, EmbeddingError) as error:
        raise StartError(str(error)) from error
    quarantine = Quarantine(caution, pipe.send, settings.limits.in_flight_records)
    with _tracing(settings) as tracing:
        process = _Process(
            *(settings, topics, policy_since, embedder, speed, tracing, config),
            *(pipe, quarantine, caution, HistoryFile(history), instance, socket),
        )
        run_in_time(until_stopped(process.work))


async def _require_topics(settings: Settings) -> tuple[dict[str, Topic], float]:
    """Return the topics, and since when the policy has been in force, in seconds since the epoch."""
    async with permitted_admin(settings, worker_rights(settings)) as admin:
        await admin.require_requests()
        topics = await admin.require()
        await admin.require_own_group(topics[settings.topics.raw])
    for difference in differences(topics, settings.topics):
        logger.warning("%s", difference)
    return topics, await keep_policy(settings, settings.policy)


def _tracing(settings: Settings) -> AbstractContextManager[Tracing | None]:
    """Return the span exporter that the standard variable selects; without one, import nothing."""
    exporter = os.environ.get(TRACES_EXPORTER, "none")
    if exporter == "none":
        return nullcontext()
    if exporter != "otlp":
        raise StartError(f"{TRACES_EXPORTER}: got {exporter!r}; expected otlp or none")
    with extra("otel"):
        from knowledgepulse_worker.observe.tracing import otlp_tracing  # noqa: PLC0415 - only where spans are exported
    return otlp_tracing(settings.kafka.group)


@dataclass(frozen=True)
class _Process:
    """A worker's process after the checks at the start; see :func:`run_worker`."""

    settings: Settings
    topics: dict[str, Topic]
    policy_since: float
    embedder: Embedder | None
    speed: Speed | None
    tracing: Tracing | None
    config: Path | None
    pipe: PipeWriter
    quarantine: Quarantine
    caution: Caution
    history: HistoryFile
    instance: str
    socket: int

    async def work(self, stop: asyncio.Event) -> None:
        """Work until the event is set, or until a fatal error."""
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(error: BaseException) -> None:
            if not failed.done():
                logger.error("the worker fails: %s", error)
                self.quarantine.close(blames_records=_blames_records(error))
                failed.set_exception(error)

        settings, metrics = self.settings, self._metrics()
        in_force = PolicyInForce(settings.policy, settings.shadow)
        in_force.since = self.policy_since
        async with AsyncExitStack() as stack:
            stack.callback(self.quarantine.close)
            stack.callback(self.history.write, metrics.recent)
            services = await self._services(stack, metrics, in_force)
            app = self._app(services, fail)
            program = FaustApp(app, self.socket)

            async def start() -> None:
                await stack.enter_async_context(app.source)
                web, raw = settings.web, settings.topics.raw
                logger.info("scoring %s; status page and metrics at http://%s:%d/", raw, web.host, web.port)
                await program.start()

            watching = [
                _start_background(work, fail)
                for work in (
                    beat(self.pipe, app.report),
                    repeat(app.diagnose, CHECK_INTERVAL),
                    repeat(partial(self.history.keep, metrics.recent), KEEP_INTERVAL),
                )
            ]
            background = [_start_background(work, fail) for work in self._background(app, metrics, in_force)]
            gc.collect()
            gc.freeze()  # full collections need not visit the objects of all imports
            await _serve(start, program, settings, stop, failed, watching, background)

    def _metrics(self) -> Metrics:
        """Return the metrics, with what is known of the processes before this one."""
        settings = self.settings
        metrics = Metrics(
            settings.policy, settings.limits.budget, fleet=settings.fleet, group=settings.kafka.group
        )
        metrics.policy.set_shadow(settings.shadow)
        metrics.stream.restarted(self.caution.restarts)
        metrics.recent.ends, metrics.recent.last_end = self.caution.ends, self.caution.last_end
        metrics.recent.former_findings = self.caution.findings
        if (history := self.history.read()) is not None:
            metrics.recent.continue_from(history)
        return metrics

    async def _services(self, stack: AsyncExitStack, metrics: Metrics, in_force: PolicyInForce) -> Services:
        batcher = _make_batcher(self.embedder, self.speed, metrics)
        if batcher is not None:
            stack.push_async_callback(close_within, STOP_LIMIT, batcher.close, "the embedder")
        redact = None
        redaction = self.settings.redaction
        if redaction.function is not None:
            process = RedactionProcess(redaction.function, redaction.timeout)
            redact = (await stack.enter_async_context(process)).redact
        return services_of(
            self.settings,
            self.topics,
            batcher=batcher,
            metrics=metrics,
            policy=in_force,
            tracing=self.tracing,
            quarantine=self.quarantine,
            redact=redact,
            throttles=Throttles(
                producer=Throttle(partial(metrics.stream.throttled, "producer")),
                consumer=Throttle(partial(metrics.stream.throttled, "consumer")),
            ),
        )

    def _session(self, throttles: Throttles, rebalances: Rebalances) -> Session:
        limits, prefix = self.settings.limits, worker_id_prefix(self.settings.kafka.group)
        return Session(
            self.settings.kafka.client_config(),
            [self.settings.topics.raw],
            # Unique to the supervisor, so that a restarted process ends its predecessor's transaction.
            f"{prefix}{self.instance}",
            decoded_bytes=limits.batch_bytes,
            batch_bytes=min(MAX_BATCH_BYTES, *(topic.max_message_bytes for topic in self.topics.values())),
            rebalance_timeout=limits.rebalance,
            rebalances=rebalances,
            throttles=throttles,
            granted=f"{prefix}*",
        )

    def _app(self, services: Services, fail: Callable[[BaseException], None]) -> WorkerApp:
        limits, raw = self.settings.limits, self.settings.topics.raw
        kafka, throttles = self.settings.kafka.client_config(), services.throttles
        waits = Waits(explain=partial(explanation, kafka))
        return WorkerApp(
            services,
            self.topics[raw],
            self.topics[changelog_topic_name(kafka.group)],
            join=partial(self._session, throttles),
            topic_ids=TopicIds(kafka, raw),
            reader=partial(TopicReader, kafka, limits.batch_bytes, throttles.consumer, waits),
            on_failure=fail,
            recovery_waits=waits,
        )

    def _background(
        self, app: WorkerApp, metrics: Metrics, in_force: PolicyInForce
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what runs beside the stream until it begins to end."""
        settings = self.settings
        yield repeat(app.checks.check, CHECK_INTERVAL)
        yield repeat(partial(check_topics, app.source.session.publisher.missing_topics), CHECK_INTERVAL)
        yield repeat(app.replicas.check, ASK_INTERVAL)
        yield repeat(partial(follow_topics, settings, self.topics), FOLLOW_INTERVAL)
        if self.config is not None:
            reload = PolicyReload(self.config, settings, in_force, metrics, partial(keep_policy, settings))
            yield reload.watch()
        if settings.registry.url is not None:
            yield watch_answers(settings, metrics.recent)


def _blames_records(error: BaseException) -> bool:
    """Return whether a record in progress may have caused an error; records do not cause outages."""
    return not isinstance(error, DeliveryError | SecurityError | TopicError)


def _start_background(
    work: Coroutine[Any, Any, None], fail: Callable[[BaseException], None]
) -> asyncio.Task[None]:
    """Start a background task; its error ends the process."""

    def check_result(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            fail(error)

    task = asyncio.create_task(work)
    task.add_done_callback(check_result)
    return task


def _make_batcher(embedder: Embedder | None, speed: Speed | None, metrics: Metrics) -> Batcher | None:
    if embedder is None or speed is None:
        metrics.stream.set_build_info(__version__, "none", "none", "none")
        return None
    metrics.stream.set_build_info(__version__, embedder.description, embedder.precision, embedder.device)
    logger.info(
        "embedding with %s in %s on %s in %d threads",
        embedder.description,
        embedder.precision,
        embedder.device,
        embedder.parallel,
    )
    metrics.embedding.set_pass(speed.seconds)
    metrics.recent.over_budget = str(speed) if speed.exceeds_budget else ""
    logger.info("%s", speed)
    return Batcher(embedder, metrics.embedding.embedded, metrics.embedding.failed)


async def _end(program: FaustApp, drain: float, *, is_orderly: bool) -> None:
    """End the program. An orderly end finishes scored records; after a failure, nothing is waited for."""
    if not is_orderly:
        # End the process even if a task cannot be cancelled; the traceback shows what hangs.
        faulthandler.dump_traceback_later(END_LIMIT, exit=True)
    await close_within(STOP_LIMIT + (drain if is_orderly else 0), program.stop, "the stream")


async def _until_first(starting: asyncio.Task[None], ends: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until one of the ends is there, or the start has failed."""
    await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


async def _serve(
    start: Callable[[], Coroutine[Any, Any, None]],
    program: FaustApp,
    settings: Settings,
    stop: asyncio.Event,
    failed: asyncio.Future[None],
    watching: list[asyncio.Task[None]],
    background: list[asyncio.Task[None]],
) -> None:
    """Run the program until it is to end, and end it.

    Args:
        start: starts it.
        program: the program.
        settings: the effective settings.
        stop: set when a stop is requested.
        failed: fails with a fatal error, also one of the end.
        watching: the tasks that run until the program has ended: heartbeat and verdict.
        background: the tasks that run until it begins to end.

    Raises:
        WorkerError: a fatal error, as the others that ``failed`` may hold.
    """
    starting = asyncio.create_task(start())
    stopping, stopped = (asyncio.create_task(end) for end in (stop.wait(), program.wait_until_stopped()))
    ends: list[asyncio.Future[Any]] = [stopping, stopped, failed]
    try:
        await _until_first(starting, ends)
        if failed.done():
            failed.result()
        if program.crashed:
            raise WorkerError(f"Faust gave up: {program.crash_reason!r}") from program.crash_reason
    finally:
        if not starting.done() or starting.exception() is None:  # otherwise the error says it all
            logger.info("stopping")
        for task in background:
            task.cancel()
        await _end(program, settings.limits.drain, is_orderly=stop.is_set())
        # With no more heartbeats, the supervisor kills the process if it hangs from here on.
        for end in (starting, *ends, *watching):
            end.cancel()
    if failed.done() and not failed.cancelled():
        failed.result()
