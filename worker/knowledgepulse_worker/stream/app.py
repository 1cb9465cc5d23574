"""Assemble the worker from lanes, ledgers, source and monitor, independently of the program that runs it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from knowledgepulse_worker.embedding.batcher import Batcher
from knowledgepulse_worker.errors import TopicError
from knowledgepulse_worker.http.probes import Readiness
from knowledgepulse_worker.http.verdict import Diagnosis
from knowledgepulse_worker.kafka.topic_limits import TopicLimits
from knowledgepulse_worker.kafka.topic_reader import Reader
from knowledgepulse_worker.kafka.topics import LOG_APPEND_TIME, Topic, changelog_topic_name
from knowledgepulse_worker.lane.lane import Services
from knowledgepulse_worker.lane.lanes import Lanes
from knowledgepulse_worker.lane.replacements import Replacements
from knowledgepulse_worker.lane.retention import RetentionCheck
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import PolicyInForce
from knowledgepulse_worker.process.heartbeat import Report
from knowledgepulse_worker.records.journal import Journal
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.throttle import Throttles
from knowledgepulse_worker.redaction.copies import Redact, Redaction
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.stream.client import Client, TopicIdentity, Transact
from knowledgepulse_worker.stream.ledgers import Ledgers
from knowledgepulse_worker.stream.monitor import StreamMonitor
from knowledgepulse_worker.stream.progress import Progress
from knowledgepulse_worker.stream.source import Host, Source

if TYPE_CHECKING:
    from knowledgepulse_worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)


class WorkerApp:
    """The assembled worker.

    Args:
        services: the dependencies that all lanes share.
        raw: the raw topic.
        changelog: the changelog topic.
        group: creates the consumer group member; called once there is an event loop.
        topic_ids: identifies the raw topic.
        transact: publishes as a member of the group, in a transaction.
        reader: returns a changelog reader, which connects on entry.
        on_failure: called on a fatal error; the process must then end.

    Attributes:
        diagnosis: holds the verdict on the worker.
        owned: the numbers of the owned partitions.
        throttles: the times for which brokers throttle the clients.
    """

    def __init__(
        self,
        services: Services,
        raw: Topic,
        changelog: Topic,
        *,
        group: Callable[[], Client],
        topic_ids: TopicIdentity,
        transact: Transact,
        reader: Callable[[], AbstractAsyncContextManager[Reader]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.settings = services.settings
        self.metrics = services.metrics
        self.readiness = Readiness()
        self.on_failure = on_failure
        self.raw = raw
        self._changelog = changelog
        self.ledgers = Ledgers(services.changelog_topic, reader)
        self.lanes = Lanes(services, self.ledgers.changelog, on_failure)
        self.monitor = StreamMonitor(
            raw,
            self.settings.limits.stall,
            remaining=lambda: self.ledgers.remaining,
            is_ready=lambda: not self.readiness.reasons,
            throttles=services.throttles,
        )
        self.throttles = services.throttles
        self.diagnosis = Diagnosis()
        self.owned: set[int] = set()
        self._group = group
        self._topic_ids = topic_ids
        self._transact = transact
        self._journal = services.journal
        self._assigned_at = 0.0

    def connect(self, host: Host) -> Source:
        """Return a source that is connected to its host program; requires a running event loop."""
        source = Source(
            host,
            client=self._group(),
            topic=self.raw.name,
            topic_ids=self._topic_ids,
            lanes=self.lanes,
            transact=self._transact,
            ledgers=self.ledgers,
            metrics=self.metrics,
            drain=self.settings.limits.drain,
            is_readable=self._is_readable,
            on_assigned=self._on_assigned,
            on_recovered=self._on_recovered,
        )
        self.metrics.partitions.labels("topic").set(self.raw.partitions)
        self.metrics.on_scrape(partial(self._refresh_gauges, source.progress))
        return source

    def report(self) -> Report:
        """Return the report with which the parent process answers the probes."""
        return {"reasons": self.readiness.reasons, "verdict": self.diagnosis.verdict.as_dict()}

    @property
    def isolated(self) -> tuple[int, ...]:
        """The partitions with a suspect record that is processed alone."""
        return tuple(sorted(self.owned.intersection(self._journal.isolated)))

    def _is_readable(self, partition: int) -> bool:
        """Return whether a partition has a ledger.

        Raises:
            TopicError: the partition was added after the start; a new process would read it.
        """
        if partition >= self.raw.partitions:
            raise TopicError(f"{self.raw.name} now has more than {self.raw.partitions} partitions")
        return partition < self._changelog.partitions

    def _on_recovered(self) -> None:
        self.readiness.done("ledgers")
        if self.owned:
            logger.info(
                "recovered the ledgers of %d partitions in %.1f s: %d records",
                len(self.owned),
                time.monotonic() - self._assigned_at,
                sum(len(self.ledgers.changelog(number).entries) for number in self.owned),
            )

    def _on_assigned(self, assigned: set[int]) -> None:
        before, self.owned = self.owned, assigned
        for partition in before - self.owned:
            self.metrics.partition_left(partition)
        self.readiness.done("partitions")
        self._assigned_at = time.monotonic()
        owned = len(self.owned)
        limits = self.settings.limits
        self.metrics.rebalances.inc()
        self.metrics.partitions.labels("owned").set(owned)
        self.metrics.in_flight_limit.set(owned * limits.in_flight_records)
        self.metrics.in_flight_bytes_limit.set(owned * limits.in_flight_bytes)
        logger.info("owns %d of %d partitions of %s", owned, self.raw.partitions, self.raw.name)

    def _refresh_gauges(self, progress: Progress) -> None:
        """Refresh the gauges before a scrape."""
        self.lanes.refresh_gauges()
        for partition, records in progress.lag().items():
            self.metrics.lag(partition, records)
        for partition, records in progress.held_back().items():
            self.metrics.held_back(partition, records)
        for partition in self.owned:
            self.metrics.recovering(partition, self.ledgers.remaining.get(partition, 0))


def services_of(
    settings: Settings,
    topics: Mapping[str, Topic],
    *,
    batcher: Batcher | None,
    metrics: Metrics,
    policy: PolicyInForce,
    tracing: Tracing | None = None,
    journal: Journal | None = None,
    redact: Redact | None = None,
    throttles: Throttles | None = None,
) -> Services:
    """Return the dependencies that all lanes share.

    Args:
        settings: the effective settings.
        topics: the existing topics, by name.
        batcher: embeds the texts; None without an embedder.
        metrics: observes everything.
        policy: the policy in force.
        tracing: exports a span for each record; None to export none.
        journal: tracks records in progress; by default in private memory.
        redact: redacts contributed traces for ``topics.redacted``; None if there is no such topic.
        throttles: the times for which brokers throttle the clients.
    """
    outputs = Outputs(settings.topics, {name: topic.partitions for name, topic in topics.items()})
    copies = settings.topics.redacted
    redaction = Redaction(redact, copies, outputs, metrics) if redact and copies else None
    return Services(
        settings=settings,
        policy=policy,
        batcher=batcher,
        replacements=Replacements(outputs, TopicLimits(topics).problem_of, redaction),
        changelog_topic=changelog_topic_name(settings.kafka.group),
        metrics=metrics,
        retention_check=RetentionCheck(_kept_ms(topics.values()), metrics),
        redaction=redaction,
        tracing=tracing,
        journal=journal or Journal(),
        throttles=throttles or Throttles(),
    )


def _kept_ms(topics: Iterable[Topic]) -> dict[str, int]:
    """Return ``retention.ms`` of the topics that delete records by the records' own timestamps."""
    return {
        topic.name: topic.kept_ms
        for topic in topics
        if topic.kept_ms is not None and topic.timestamp_type != LOG_APPEND_TIME
    }
