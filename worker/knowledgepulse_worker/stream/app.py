"""Assemble the worker from source, tasks and checks, independently of the program that runs it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from knowledgepulse_kafka.group_member import HEARTBEATS
from knowledgepulse_kafka.request_waits import READING, TRANSACTION, Waits
from knowledgepulse_kafka.session import Rebalances, Session
from knowledgepulse_kafka.throttle import Throttles
from knowledgepulse_kafka.topic_id import TopicIds
from knowledgepulse_kafka.topic_limits import TopicLimits
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.embedding.batcher import Batcher
from knowledgepulse_worker.http.probes import Readiness
from knowledgepulse_worker.kafka.replicas import Replicas
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.lane.lane import Services
from knowledgepulse_worker.lane.replacements import Replacements
from knowledgepulse_worker.lane.reporter import Reporter
from knowledgepulse_worker.lane.retention import RetentionCheck
from knowledgepulse_worker.observe.evaluation import evaluation
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.recent import RATE_SECONDS, Recent
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.policy import PolicyInForce
from knowledgepulse_worker.process.heartbeat import Report
from knowledgepulse_worker.process.quarantine import Quarantine
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.redaction.copies import RedactFunction, Redaction
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.stream.checks import Checks
from knowledgepulse_worker.stream.diagnosis import JUST_STARTED, SILENCE_LIMIT, Diagnosis, Observation
from knowledgepulse_worker.stream.languages import unknown_script
from knowledgepulse_worker.stream.progress import Progress
from knowledgepulse_worker.stream.recovery import ReaderFactory
from knowledgepulse_worker.stream.source import Source

if TYPE_CHECKING:
    from knowledgepulse_worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)


class WorkerApp:
    """The assembled worker.

    Args:
        services: the dependencies that all lanes share.
        raw: the raw topic.
        changelog: the changelog topic.
        join: makes the session of the group, given what to do at its rebalances.
        topic_ids: identifies the raw topic.
        reader: returns a changelog reader, which connects on entry.
        on_failure: called on a fatal error; the process must then end.
        recovery_waits: what the changelog readers wait for.

    Attributes:
        source: fetches and commits.
        progress: the source's progress.
        checks: the checks of the source.
        diagnosis: holds the verdict on the worker.
        owned: the numbers of the owned partitions.
    """

    def __init__(
        self,
        services: Services,
        raw: Topic,
        changelog: Topic,
        *,
        join: Callable[[Rebalances], Session],
        topic_ids: TopicIds,
        reader: ReaderFactory,
        on_failure: Callable[[BaseException], None],
        recovery_waits: Waits | None = None,
    ) -> None:
        self._recovery_waits = recovery_waits or Waits()
        self.settings = services.settings
        self.metrics = services.metrics
        self.shadow = services.shadow
        self.readiness = Readiness()
        self.diagnosis = _diagnosis_after(self.metrics.recent)
        self.owned: set[int] = set()
        self._services = services
        self._on_failure = on_failure
        self._raw = raw
        self._assigned_at = 0.0
        self.source = Source(
            services,
            raw,
            changelog,
            join=join,
            topic_ids=topic_ids,
            reader=reader,
            observer=self,
        )
        self.progress = Progress(raw.name, self.source)
        self.checks = Checks(
            self.source,
            self.progress,
            raw,
            stall=self.settings.limits.stall,
            readiness=self.readiness,
            reader=reader,
            throttles=services.throttles,
        )
        self.replicas = Replicas(self.settings, self._waits_for_transaction)
        self.metrics.stream.set_partitions(raw.partitions)
        self.metrics.on_scrape(self._refresh_gauges)

    def report(self) -> Report:
        """Return the report with which the parent process answers the probes."""
        findings = msgspec.to_builtins(self.diagnosis.verdict.findings)
        return {"reasons": self.readiness.reasons, "findings": findings}

    async def diagnose(self) -> None:
        """Observe the worker for the verdict on it and for the metrics of its states and waits."""
        verdict = self.diagnosis.observe(self.observe())
        self.metrics.stream.set_states(verdict.states)
        self.metrics.stream.waiting(self.diagnosis.waits())

    def observe(self) -> Observation:
        """Return an observation of the worker's current state; this sends no requests."""
        publisher = self.source.session.publisher
        throttles, recent = self._services.throttles, self.metrics.recent
        ended, knows_only_english = recent.outcomes(), self.settings.embedding.knows_only_english
        return replace(
            self.progress.observe(self.settings.kafka.session_timeout / HEARTBEATS),
            pending=tuple(self.readiness.reasons),
            partitions=len(self.owned),
            publishing_throttled=throttles.producer.recent,
            reading_throttled=throttles.consumer.recent,
            requests_throttled=throttles.consumer.is_of_requests or throttles.producer.is_of_requests,
            producer_silence=publisher.start_age,
            producer_waits=(*publisher.waits.current(TRANSACTION), *self.replicas.waits),
            recovery_waits=tuple(self._recovery_waits.current(READING)),
            suspect_partitions=tuple(sorted(self.owned.intersection(self._services.quarantine.partitions))),
            dead_letters=ended["dead_letter"],
            outcomes=ended.total(),
            rate=sum(second.total() for second in recent.per_second()) / RATE_SECONDS,
            last_output=recent.last_output,
            policy_refused=self._services.policy.refused,
            ends=recent.ends,
            last_end=recent.last_end,
            keys_elsewhere=self.source.key_placement.problem,
            unknown_script=unknown_script(recent.letters, self._services.policy.policy)
            if knows_only_english
            else "",
            over_budget=recent.over_budget,
        )

    def _waits_for_transaction(self) -> bool:
        seen = self.observe()
        return max(seen.transaction_age, seen.producer_silence) > SILENCE_LIMIT

    # --- the source's observer

    def failed(self, error: BaseException) -> None:
        """End the process."""
        self._on_failure(error)

    def recovered(self) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Observer`."""
        self.readiness.done("ledgers")
        if self.owned:
            logger.info(
                "recovered the ledgers of %d partitions in %.1f s: %d records",
                len(self.owned),
                time.monotonic() - self._assigned_at,
                sum(len(task.changelog.entries) for task in self.source.tasks.values()),
            )

    def assigned(self, owned: Collection[int]) -> None:
        """See :class:`~knowledgepulse_worker.stream.source.Observer`."""
        before, self.owned = self.owned, set(owned)
        for partition in before - self.owned:
            self.metrics.partition_left(partition)
        self.readiness.done("partitions")
        self._assigned_at = time.monotonic()
        count = len(self.owned)
        limits = self.settings.limits
        self.metrics.stream.assigned(count)
        self.metrics.lanes.limited(count * limits.in_flight_records, count * limits.in_flight_bytes)
        logger.info("owns %d of %d partitions of %s", count, self._raw.partitions, self._raw.name)

    # --- gauges

    def _refresh_gauges(self) -> None:
        """Refresh the gauges before a scrape."""
        self.source.assignment.refresh_gauges()
        if file := self.settings.web.evaluation:
            told = evaluation(file, {})
            is_current = told.policy == self._services.policy.policy.digest
            self.metrics.policy.promised(told.kept_promises if is_current else {})
        for partition, records in self.progress.lag().items():
            self.metrics.stream.lag(partition, records)
        for partition, (_, records) in self.progress.open_transactions().items():
            self.metrics.stream.held_back(partition, records)
        for partition in self.owned:
            self.metrics.stream.recovering(partition, self.progress.remaining().get(partition, 0))


def _diagnosis_after(recent: Recent) -> Diagnosis:
    """Return the diagnosis of a process that has just started, given what is known of those before."""
    first = Observation(pending=(JUST_STARTED,), ends=recent.ends, last_end=recent.last_end)
    return Diagnosis(former=recent.former_findings, first=first)


def services_of(
    settings: Settings,
    topics: Mapping[str, Topic],
    *,
    batcher: Batcher | None,
    metrics: Metrics,
    policy: PolicyInForce,
    tracing: Tracing | None = None,
    quarantine: Quarantine | None = None,
    redact: RedactFunction | None = None,
    throttles: Throttles | None = None,
) -> Services:
    """Return the dependencies that all lanes share.

    Args:
        settings: the effective settings.
        topics: the existing topics, by name, which may be brought up to date.
        batcher: embeds the texts; None without an embedder.
        metrics: observes everything.
        policy: the policy in force.
        tracing: exports a span for each record; None to export none.
        quarantine: the records that may kill the process; by default none, and no parent.
        redact: redacts contributed traces for ``topics.redacted``; None if there is no such topic.
        throttles: the times for which brokers throttle the clients.
    """
    partitions = {name: topic.partitions for name, topic in topics.items()}
    outputs = Outputs(settings.topics, partitions, settings.records)
    copies = settings.topics.redacted
    redaction = Redaction(redact, copies, outputs, metrics) if redact and copies else None
    shadow = ShadowComparison(policy)
    return Services(
        settings=settings,
        policy=policy,
        batcher=batcher,
        replacements=Replacements(outputs, TopicLimits(topics).problem_of, redaction),
        changelog_topic=changelog_topic_name(settings.kafka.group),
        metrics=metrics,
        shadow=shadow,
        reporter=Reporter(metrics, shadow, RetentionCheck(topics, metrics), tracing),
        quarantine=quarantine or Quarantine(),
        throttles=throttles or Throttles(),
    )
