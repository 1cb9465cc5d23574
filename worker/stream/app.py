"""The Faust app: an isolated actor for each partition hands records to the partition's lane."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import faust
from faust.types import TP, StreamT
from yarl import URL

from worker.embedding.batcher import Batcher
from worker.http.probes import Readiness
from worker.http.server import socket_address
from worker.kafka.topics import LOG_APPEND_TIME, Topic, changelog_topic_name
from worker.lane.lane import LaneServices
from worker.lane.lanes import Lanes
from worker.lane.retention import RetentionCheck
from worker.observe.metrics import Metrics
from worker.policy import PolicyInForce
from worker.records.journal import Journal
from worker.records.outputs import Outputs
from worker.records.publisher import Publisher
from worker.redaction.copies import Redact, Redaction
from worker.settings import Settings
from worker.stream.guard import Guard
from worker.stream.ledgers import Ledgers, Reader
from worker.stream.pages import add_pages
from worker.stream.source import (
    Batch,
    BatchSchema,
    Client,
    Source,
    SourceServices,
    SourceTransport,
    TopicIdentity,
)

if TYPE_CHECKING:
    from worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)

COMMIT_INTERVAL = 1.0
"""Seconds between two commits."""


@dataclass(frozen=True)
class Clients:
    """The worker's Kafka clients.

    Attributes:
        group: creates the consumer group member; called once there is an event loop.
        topic_ids: identifies the raw topic.
        reader: returns a changelog reader, which connects on entry.
        publisher: sends entries and outputs; already started.
    """

    group: Callable[[], Client]
    topic_ids: TopicIdentity
    reader: Callable[[], AbstractAsyncContextManager[Reader]]
    publisher: Publisher


class WorkerApp:
    """The assembled worker.

    Args:
        settings: the effective settings.
        socket: the name of the Unix socket to serve the pages on.
        topics: the existing topics, by name.
        batcher: None without an embedder.
        clients: the Kafka clients.
        metrics: observes everything.
        in_force: the policy.
        on_failure: called on a lane's fatal error; the process must then end.
        tracing: exports a span for each record; None to export none.
        journal: tracks records in progress; by default in private memory.
        redact: redacts contributed traces for ``topics.redacted``; None if there is no such topic.
    """

    def __init__(
        self,
        settings: Settings,
        socket: str,
        topics: dict[str, Topic],
        batcher: Batcher | None,
        clients: Clients,
        metrics: Metrics,
        in_force: PolicyInForce,
        on_failure: Callable[[BaseException], None],
        tracing: Tracing | None = None,
        journal: Journal | None = None,
        redact: Redact | None = None,
    ) -> None:
        kafka, limits = settings.kafka, settings.limits
        self.settings = settings
        self.metrics = metrics
        self.readiness = Readiness()
        self._raw = topics[settings.topics.raw]
        self._owned: set[int] = set()
        self._assigned_at = 0.0
        changelog = changelog_topic_name(kafka.group)
        self.ledgers = Ledgers(changelog, clients.reader, clients.publisher)
        outputs = Outputs(settings.topics, {name: topic.partitions for name, topic in topics.items()})
        copies = settings.topics.redacted
        services = LaneServices(
            policy=in_force,
            cache=settings.cache,
            limits=limits,
            batcher=batcher,
            outputs=outputs,
            publisher=clients.publisher,
            changelog_topic=changelog,
            metrics=metrics,
            text=settings.embedding.text,
            retention_check=RetentionCheck(_kept_ms(topics.values()), metrics),
            redaction=Redaction(redact, copies, outputs, metrics) if redact and copies else None,
            tracing=tracing,
            journal=journal or Journal(),
        )
        self.lanes = Lanes(services, self.ledgers.changelog, on_failure)
        self.faust = _App(kafka.group, **_faust_settings(settings, socket, self._raw))
        transport = SourceTransport(
            self.faust.conf.broker_consumer,
            self.faust,
            SourceServices(
                client=clients.group,
                topic=self._raw.name,
                topic_ids=clients.topic_ids,
                lanes=self.lanes,
                ledgers=self.ledgers,
                metrics=metrics,
                on_recovered=self._on_recovered,
            ),
        )
        self.faust.transport = self.faust.producer_transport = transport
        self.guard = Guard(
            self._raw,
            limits.stall,
            remaining=lambda: self.ledgers.remaining,
            is_rebalancing=lambda: self.faust.rebalancing,
            is_ready=lambda: not self.readiness.reasons,
        )
        self._add_agent()
        add_pages(self.faust, settings, metrics)
        metrics.partitions.labels("topic").set(self._raw.partitions)
        self.faust.on_partitions_assigned.connect(self._on_assigned)  # type: ignore[arg-type]  # no keywords there
        metrics.on_scrape(self._refresh_gauges)

    @property
    def source(self) -> Source:
        """The record source behind Faust; requires a running event loop."""
        return cast("Source", self.faust.consumer)

    def _add_agent(self) -> None:
        topic = self.faust.topic(
            self._raw.name,
            schema=BatchSchema(),
            partitions=self._raw.partitions,
            acks=False,  # with acks, Faust would retain every acknowledged offset forever
        )

        async def hand_over(stream: StreamT[Any]) -> None:
            try:
                async for event in stream.events():
                    await self._take(cast("Batch", event.value))
            except asyncio.CancelledError:
                # Faust restarts a cancelled actor, even for a revoked partition.
                return

        self.faust.agent(topic, name="hand-over", isolated_partitions=True)(hand_over)

    async def _take(self, batch: Batch) -> None:
        for record in batch.records:
            if not batch.is_current():
                return
            await self.lanes.take(record)
        batch.done()

    def _on_recovered(self) -> None:
        self.readiness.done("ledgers")
        if self._owned:
            logger.info(
                "recovered the ledgers of %d partitions in %.1f s: %d records",
                len(self._owned),
                time.monotonic() - self._assigned_at,
                sum(len(self.ledgers.changelog(number).entries) for number in self._owned),
            )

    async def _on_assigned(self, _app: Any, assigned: set[TP], **_: Any) -> None:
        before, self._owned = self._owned, {tp.partition for tp in assigned}
        for partition in before - self._owned:
            self.metrics.partition_left(partition)
        self.readiness.done("partitions")
        self._assigned_at = time.monotonic()
        owned = len(self._owned)
        limits = self.settings.limits
        self.metrics.rebalances.inc()
        self.metrics.partitions.labels("owned").set(owned)
        self.metrics.in_flight_limit.set(owned * limits.in_flight_records)
        self.metrics.in_flight_bytes_limit.set(owned * limits.in_flight_bytes)
        logger.info("owns %d of %d partitions of %s", owned, self._raw.partitions, self._raw.name)

    def _refresh_gauges(self) -> None:
        """Refresh the gauges before a scrape."""
        for partition, records in self.source.lag().items():
            self.metrics.lag(partition, records)
        for partition, records in self.source.held_back().items():
            self.metrics.held_back(partition, records)
        for partition in self._owned:
            self.metrics.recovering(partition, self.ledgers.remaining.get(partition, 0))


class _App(faust.App):
    # Otherwise mode logs its messages about the app under this module's name.
    logger = logging.getLogger("faust.app")

    def _create_directories(self) -> None:
        """Create none: they would stay empty, and the file system may be read-only."""


def _kept_ms(topics: Iterable[Topic]) -> dict[str, int]:
    """Return ``retention.ms`` of the topics that delete records by the records' own timestamps."""
    return {
        topic.name: topic.kept_ms
        for topic in topics
        if topic.kept_ms is not None and topic.timestamp_type != LOG_APPEND_TIME
    }


def _faust_settings(settings: Settings, socket: str, raw: Topic) -> dict[str, Any]:
    servers = settings.kafka.bootstrap_servers.split(",")
    return {
        "broker": [
            URL(f"kafka://{server.strip()}") for server in servers
        ],  # for Faust's display only: the source connects
        "broker_commit_interval": COMMIT_INTERVAL,
        "stream_wait_empty": False,
        "store": "memory://",
        "topic_disable_leader": True,
        "topic_allow_declare": False,
        "topic_partitions": raw.partitions,
        "autodiscover": False,
        "web_transport": URL.build(scheme="unix", path=socket_address(socket)),
    }
