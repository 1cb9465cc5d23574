"""The worker as a Faust app, whose agent consumes what the source fetches.

Faust provides the agent, web pages and the life cycle. It leaves Kafka to the source, since its own consumer
commits offsets as records are acknowledged, not in the transaction of their outputs.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import cast

import faust
from aiohttp.web import BaseSite
from faust.app.base import BootStrategy
from faust.transport.consumer import ThreadDelegateConsumer
from faust.types import AppT, StreamT
from faust.web import Request, Response, View
from faust.web.base import BlueprintManager
from faust.web.drivers.aiohttp import Web
from mode import CrashingSupervisor

from knowledgepulse_worker.errors import EXPECTED
from knowledgepulse_worker.http.child_connections import HandedOverSite
from knowledgepulse_worker.stream.app import WorkerApp
from knowledgepulse_worker.stream.source import Batch
from knowledgepulse_worker.stream.worker_pages import Page, pages


class WithoutKafka(BootStrategy):
    """Starts Faust without its own consumer, producer and tables."""

    enable_kafka = False


class Pages(Web):
    """Faust's web server, which listens nowhere: it serves the connections that the parent hands over.

    Args:
        app: the Faust app.
        socket: the descriptor of the socket that hands them over.
    """

    logger = logging.getLogger("faust.web")  # as for the app

    def __init__(self, app: AppT, socket: int) -> None:
        super().__init__(app)
        self._socket = socket

    def _create_site(self) -> BaseSite:
        return HandedOverSite(self._runner, self._socket)


class FaustApp(faust.App):
    """A worker as a Faust app, which runs the source.

    Args:
        worker: the assembled worker.
        socket: the descriptor of the socket on which the parent hands over connections to the pages.

    Attributes:
        source: the worker's source.
    """

    BootStrategy = WithoutKafka
    # Otherwise mode logs its messages about the app under this module's name.
    logger = logging.getLogger("faust.app")

    def __init__(self, worker: WorkerApp, socket: int) -> None:
        super().__init__(
            worker.settings.kafka.group,
            store="memory://",
            autodiscover=False,
        )
        self.web = Pages(self, socket)
        self._worker = worker
        self.source = worker.source
        self.source.host = self
        self._batches = self.channel()

        # Faust's default would restart the agent, which would go on behind the batch that failed.
        @self.agent(self._batches, supervisor_strategy=CrashingSupervisor)
        async def score(batches: StreamT[Batch]) -> None:
            async for batch in batches:
                batch.task.feed(batch.records)

        self.task(self._fetch)
        self.task(partial(self.source.group_commit.run, lambda: not self.should_stop))
        self.web.blueprints = BlueprintManager()
        for page in pages(worker.settings, worker.metrics, worker.shadow, lambda: worker.diagnosis.verdict):
            self._add_page(page)

    # --- the life cycle

    def _create_directories(self) -> None:
        """Create no directories: they would stay empty, and the file system may be read-only."""

    async def on_start(self) -> None:
        """Let the agent consume."""
        await super().on_start()
        self.flow_control.resume()  # as Faust's own consumer would once it has partitions

    async def _fetch(self) -> None:
        """Fetch until the app stops."""
        try:
            await self.source.hand_over(lambda: not self.should_stop)
        except Exception as error:  # noqa: BLE001 - also one of a rebalance: lanes may be left that nothing commits
            await self.crash(error)

    async def on_stop(self) -> None:
        """Finish and commit."""
        await self.source.stop()
        await super().on_stop()
        # Faust has made a consumer that it does not start, and that has an event loop of its own.
        cast("ThreadDelegateConsumer", self.consumer)._thread.thread_loop.close()  # noqa: SLF001

    # --- the source's host

    async def take(self, batch: Batch) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Host`."""
        await self._batches.send(value=batch)

    async def crash(self, reason: BaseException) -> None:
        """End the app.

        A failed transaction or a refusal is no defect, so the error is logged once; Faust would add a
        traceback.
        """
        if isinstance(reason, EXPECTED):
            self._worker.failed(reason)
        else:
            await super().crash(reason)

    # --- pages

    def _add_page(self, page: Page) -> None:
        async def view(view: View, request: Request) -> Response:
            headers, body = page.respond(request.headers)
            return view.bytes(body, headers=dict(headers))

        self.page(page.path, name=f"kp{page.path}")(view)
