"""The worker as a Faust app, which hands the source's batches to an isolated actor for each partition.

Faust provides agents, web pages and the life cycle. The source is plugged in as ``app.transport``, because
Faust's own consumer is shared with its tables, and commits offsets as records are acknowledged, not in the
transaction of their outputs. A Faust event carries a
:class:`~knowledgepulse_worker.stream.partition.Batch`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, ClassVar, NoReturn, cast

import faust
from aiokafka.errors import ConsumerStoppedError, KafkaError
from faust.transport import base
from faust.transport.consumer import Consumer
from faust.types import TP, AppT, ConsumerMessage, Message, StreamT
from faust.types.transports import ConsumerCallback, ConsumerT, TPorTopicSet
from faust.web import Request, Response, View
from faust.web.base import BlueprintManager
from mode import Service
from mode.types import ServiceT
from yarl import URL

from knowledgepulse_worker.errors import WorkerError
from knowledgepulse_worker.http.server import socket_address
from knowledgepulse_worker.stream.app import WorkerApp
from knowledgepulse_worker.stream.pages import Page, pages
from knowledgepulse_worker.stream.partition import Batch
from knowledgepulse_worker.stream.refusal import explained
from knowledgepulse_worker.stream.source import Source


class BatchSchema(faust.Schema[Any, Any]):
    """Passes a batch through Faust unchanged."""

    def compile(self, app: AppT, **_: Any) -> Callable[..., Awaitable[Any]]:
        """Return the function that turns messages into events."""

        async def decode(message: Message, *, propagate: bool = False) -> Any:
            return app.create_event(None, cast("Any", message.value), {}, message)

        return decode


class FaustApp(faust.App):
    """A worker as a Faust app.

    Args:
        worker: the assembled worker.
        socket: the name of the Unix socket to serve the pages on.
    """

    # Otherwise mode logs its messages about the app under this module's name.
    logger = logging.getLogger("faust.app")

    def __init__(self, worker: WorkerApp, socket: str) -> None:
        super().__init__(worker.settings.kafka.group, **_faust_settings(worker, socket))
        self.transport = self.producer_transport = SourceTransport(self.conf.broker_consumer, self, worker)
        self._add_agent(worker)
        self.web.blueprints = BlueprintManager()
        for page in pages(worker.settings, worker.metrics, worker.diagnosis):
            self._add_page(page)

    @property
    def source(self) -> Source:
        """The record source; requires a running event loop."""
        return cast("SourceConsumer", self.consumer).source

    def _create_directories(self) -> None:
        """Create no directories: they would stay empty, and the file system may be read-only."""

    def _add_agent(self, worker: WorkerApp) -> None:
        topic = self.topic(
            worker.raw.name,
            schema=BatchSchema(),
            partitions=worker.raw.partitions,
            acks=False,  # with acks, Faust would retain every acknowledged offset forever
        )

        async def hand_over(stream: StreamT[Any]) -> None:
            try:
                async for event in stream.events():
                    await cast("Batch", event.value).give(worker.lanes.take)
            except asyncio.CancelledError:
                # Faust restarts a cancelled actor, even for a revoked partition.
                return

        self.agent(topic, name="hand-over", isolated_partitions=True)(hand_over)

    def _add_page(self, page: Page) -> None:
        async def view(view: View, request: Request) -> Response:
            headers, body = page.respond(request.headers)
            return view.bytes(body, headers=dict(headers))

        self.page(page.path, name=f"kp{page.path}")(view)


def _faust_settings(worker: WorkerApp, socket: str) -> dict[str, Any]:
    servers = worker.settings.kafka.bootstrap_servers.split(",")
    return {
        "broker": [
            URL(f"kafka://{server.strip()}") for server in servers
        ],  # for Faust's display only: the source connects
        "stream_wait_empty": False,
        "store": "memory://",
        "topic_disable_leader": True,
        "topic_allow_declare": False,
        "topic_partitions": worker.raw.partitions,
        "autodiscover": False,
        "web_transport": URL.build(scheme="unix", path=socket_address(socket)),
    }


def _never_called(*_: Any, **__: Any) -> NoReturn:
    """Implement a method that Faust's abstract consumer requires but that is never called."""
    raise NotImplementedError


class SourceConsumer(Consumer):
    """Faust's consumer, which only serves as the source's host.

    Args:
        transport: Faust's transport.
        worker: provides the source.
        kwargs: Faust's consumer arguments.
    """

    # Otherwise mode logs its messages about the service under this module's name.
    logger = logging.getLogger("faust.source")
    consumer_stopped_errors: ClassVar[tuple[type[BaseException], ...]] = (ConsumerStoppedError,)

    def __init__(self, transport: base.Transport, worker: WorkerApp, **kwargs: Any) -> None:
        super().__init__(transport, **kwargs)
        self._topic = worker.raw.name
        self._commit_requested = worker.lanes.commit_requested
        self._group = worker.settings.kafka.group
        self._commit_interval = worker.settings.kafka.commit_interval
        self._on_failure = worker.on_failure
        self.source = worker.connect(self)

    # --- called by Faust

    async def on_start(self) -> None:
        """Connect."""
        await self.source.start()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group."""
        self.source.subscribe()

    async def on_stop(self) -> None:
        """Finish and commit, then leave the group."""
        await self.source.stop()

    async def force_commit(
        self, topics: TPorTopicSet | None = None, start_new_transaction: bool = True
    ) -> bool:
        """Do nothing: :meth:`_commit_outcomes` replaces Faust's timer, which warns of long commits."""
        return False

    @Service.task
    async def _commit_outcomes(self) -> None:
        """Commit at every interval, or sooner if a lane waits for it."""
        while not self.should_stop:
            await self.wait_first(self._commit_requested.wait(), timeout=self._commit_interval)
            self._commit_requested.clear()
            await self.source.commit()

    def assignment(self) -> set[TP]:
        """Return the owned partitions."""
        return {TP(*one) for one in self.source.assignment()}

    async def perform_seek(self) -> None:
        """Do nothing: the client starts at the group's position, and recovery seeks where necessary."""

    def close(self) -> None:
        """Do nothing: :meth:`on_stop` closes the client."""

    # --- the source's host

    async def rebalance_started(self) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Host`."""
        self.app.on_rebalance_start()
        self.stop_flow()

    async def partitions_revoked(self, partitions: Collection[int]) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Host`."""
        await self.on_partitions_revoked(self._places(partitions))

    async def partitions_assigned(self, partitions: Collection[int]) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Host`."""
        self.app.consumer_generation_id += 1
        await self.on_partitions_assigned(self._places(partitions), self.app.consumer_generation_id)

    async def resumed(self) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Host`."""
        await self.can_resume_flow.wait()

    async def take(self, batch: Batch) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Host`."""
        await self.unless_suspended(self.callback(self._message(batch)))

    async def unless_suspended(self, work: Awaitable[object]) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Host`."""
        await self.wait_first(work, self.suspend_flow.wait())

    async def crash(self, reason: BaseException) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Host`.

        A failed transaction or a refusal is no defect, so the error is logged once; Faust would add a
        traceback.
        """
        if isinstance(reason, KafkaError):
            reason = explained(reason, self._group)
        if isinstance(reason, WorkerError):
            self._on_failure(reason)
        else:
            await super().crash(reason)

    def _places(self, partitions: Iterable[int]) -> set[TP]:
        return {TP(self._topic, number) for number in partitions}

    def _message(self, batch: Batch) -> Message:
        first = batch.records[0]
        return ConsumerMessage(
            first.topic,
            first.partition,
            first.offset,
            timestamp=0.0,
            timestamp_type=0,
            headers=None,
            key=None,
            value=cast("Any", batch),
            checksum=None,
            tp=TP(first.topic, first.partition),
            generation_id=self.app.consumer_generation_id,
        )

    # Faust calls these only from methods that this class overrides.
    _to_message = _getmany = _commit = _seek = _never_called
    seek_to_committed = seek_wait = position = earliest_offsets = highwaters = highwater = _never_called
    topic_partitions = key_partition = create_topic = _new_topicpartition = _never_called


class SourceFetcher(Service):
    """Runs the source's fetch loop after a rebalance, like Faust's own fetcher."""

    logger = logging.getLogger("faust.source")

    def __init__(self, app: AppT, **kwargs: Any) -> None:
        self.app = app
        super().__init__(**kwargs)

    @Service.task
    async def _fetch(self) -> None:
        consumer = cast("SourceConsumer", self.app.consumer)
        try:
            await consumer.source.hand_over(lambda: not (self.should_stop or consumer.should_stop))
        except KafkaError as error:
            await consumer.crash(error)


class SourceTransport(base.Transport):
    """The transport that creates the source's host.

    Faust sends nothing, so its producer never connects.

    Args:
        url: the broker URLs, for Faust.
        app: the Faust app.
        worker: provides the source.
    """

    Consumer: ClassVar[type[ConsumerT]] = SourceConsumer
    Fetcher: ClassVar[type[ServiceT]] = SourceFetcher
    driver_version = "source"

    def __init__(self, url: list[URL], app: AppT, worker: WorkerApp) -> None:
        super().__init__(url, app)
        self._worker = worker

    def create_consumer(self, callback: ConsumerCallback, **kwargs: Any) -> ConsumerT:
        """Return the source's host."""
        return SourceConsumer(self, self._worker, callback=callback, loop=self.loop, **kwargs)
