"""The assembled worker: lanes, ledgers, source and guard, whatever program they run in."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from worker.embedding.batcher import Batcher
from worker.http.probes import Readiness
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
from worker.stream.client import Client, TopicIdentity
from worker.stream.guard import Guard
from worker.stream.ledgers import Ledgers, Reader
from worker.stream.progress import Progress
from worker.stream.source import Host, Source, SourceServices

if TYPE_CHECKING:
    from worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)


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
        self.settings = settings
        self.metrics = metrics
        self.readiness = Readiness()
        self.raw = topics[settings.topics.raw]
        self.ledgers = Ledgers(changelog_topic_name(settings.kafka.group), clients.reader, clients.publisher)
        services = _lane_services(
            settings, topics, batcher, clients, metrics, in_force, tracing, journal, redact
        )
        self.lanes = Lanes(services, self.ledgers.changelog, on_failure)
        self.guard = Guard(
            self.raw,
            settings.limits.stall,
            remaining=lambda: self.ledgers.remaining,
            is_ready=lambda: not self.readiness.reasons,
        )
        self._clients = clients
        self._owned: set[int] = set()
        self._assigned_at = 0.0

    def connect(self, host: Host) -> Source:
        """Return a source within a program; requires a running event loop."""
        source = Source(
            host,
            SourceServices(
                client=self._clients.group(),
                topic=self.raw.name,
                topic_ids=self._clients.topic_ids,
                lanes=self.lanes,
                ledgers=self.ledgers,
                metrics=self.metrics,
                on_assigned=self._on_assigned,
                on_recovered=self._on_recovered,
            ),
        )
        self.metrics.partitions.labels("topic").set(self.raw.partitions)
        self.metrics.on_scrape(partial(self._refresh_gauges, source.progress))
        return source

    def _on_recovered(self) -> None:
        self.readiness.done("ledgers")
        if self._owned:
            logger.info(
                "recovered the ledgers of %d partitions in %.1f s: %d records",
                len(self._owned),
                time.monotonic() - self._assigned_at,
                sum(len(self.ledgers.changelog(number).entries) for number in self._owned),
            )

    def _on_assigned(self, assigned: set[int]) -> None:
        before, self._owned = self._owned, assigned
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
        logger.info("owns %d of %d partitions of %s", owned, self.raw.partitions, self.raw.name)

    def _refresh_gauges(self, progress: Progress) -> None:
        """Refresh the gauges before a scrape."""
        for partition, records in progress.lag().items():
            self.metrics.lag(partition, records)
        for partition, records in progress.held_back().items():
            self.metrics.held_back(partition, records)
        for partition in self._owned:
            self.metrics.recovering(partition, self.ledgers.remaining.get(partition, 0))


def _lane_services(
    settings: Settings,
    topics: dict[str, Topic],
    batcher: Batcher | None,
    clients: Clients,
    metrics: Metrics,
    in_force: PolicyInForce,
    tracing: Tracing | None,
    journal: Journal | None,
    redact: Redact | None,
) -> LaneServices:
    outputs = Outputs(settings.topics, {name: topic.partitions for name, topic in topics.items()})
    copies = settings.topics.redacted
    return LaneServices(
        policy=in_force,
        cache=settings.cache,
        limits=settings.limits,
        batcher=batcher,
        outputs=outputs,
        publisher=clients.publisher,
        changelog_topic=changelog_topic_name(settings.kafka.group),
        metrics=metrics,
        text=settings.embedding.trace_text,
        retention_check=RetentionCheck(_kept_ms(topics.values()), metrics),
        redaction=Redaction(redact, copies, outputs, metrics) if redact and copies else None,
        tracing=tracing,
        journal=journal or Journal(),
    )


def _kept_ms(topics: Iterable[Topic]) -> dict[str, int]:
    """Return ``retention.ms`` of the topics that delete records by the records' own timestamps."""
    return {
        topic.name: topic.kept_ms
        for topic in topics
        if topic.kept_ms is not None and topic.timestamp_type != LOG_APPEND_TIME
    }
