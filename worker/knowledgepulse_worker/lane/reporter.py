"""Report finished records: metrics, the status page's recent traces, and spans."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_schemas.trace import ending_of
from knowledgepulse_worker.lane.retention import RetentionCheck
from knowledgepulse_worker.lane.stages import Completed, Scored
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.recent import LAST_RECORDS, PublishedTrace
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.policy import ROUTES
from knowledgepulse_worker.records.decode_content import counts_of, sources_of
from knowledgepulse_worker.records.ledger_records import Entry
from knowledgepulse_worker.records.output_headers import trace_of
from knowledgepulse_worker.scoring import ScoredRecord, reading_of

if TYPE_CHECKING:
    from knowledgepulse_worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)


class Reporter:
    """Reports records once their transaction is committed.

    Args:
        metrics: counts and times every record.
        shadow: compares the decisions with those of the shadow policy.
        retention_check: counts outputs that are soon deleted; None if no output topic deletes by age.
        tracing: exports a span for every record; None to export none.
    """

    def __init__(
        self,
        metrics: Metrics,
        shadow: ShadowComparison,
        retention_check: RetentionCheck | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._metrics = metrics
        self._shadow = shadow
        self._retention_check = retention_check
        self._tracing = tracing

    def committed(self, batch: Sequence[Completed]) -> None:
        """Report the records of a transaction, except those that were skipped."""
        reported = [completed for completed in batch if completed.output is not None]
        self._count(reported, time.time())
        latest = _latest(reported)
        shown = {*map(id, latest)}
        for completed in latest if self._shadow.report is None else reported:
            try:
                self._report_details(completed, is_shown=id(completed) in shown)
            except Exception as error:  # noqa: BLE001 - a report must not fail a lane
                # Do not log the error's text, which may quote the trace.
                source = completed.scored.record.source
                logger.error("%s: details not reported: %s", source, type(error).__name__)  # noqa: TRY400
        for completed in reported:
            if (output := completed.output) is not None and self._retention_check is not None:
                self._retention_check.check(output)
            if output is not None and self._tracing is not None:
                self._export_span(self._tracing, completed.scored, completed.entry, output)

    def _count(self, reported: Sequence[Completed], now: float) -> None:
        timestamps = [completed.scored.record.timestamp_ms for completed in reported]
        end_to_end = [max(0.0, now - timestamp / 1000) for timestamp in timestamps if timestamp >= 0]
        outcomes = Counter[str](completed.entry.outcome for completed in reported)
        failures = [failure for completed in reported if (failure := completed.entry.failure) is not None]
        forms = Counter[str](form for completed in reported if (form := completed.scored.form))
        published = [trace for completed in reported if (trace := _published(completed)) is not None]
        metrics = self._metrics
        metrics.traces.finished(outcomes, end_to_end)
        metrics.traces.dead_lettered(Counter(failure.reason for failure in failures))
        metrics.traces.refused(forms)
        metrics.traces.published(published)
        metrics.policy.decided(published)
        metrics.recent.finished(outcomes, end_to_end)
        metrics.recent.published(published)

    def _report_details(self, completed: Completed, *, is_shown: bool) -> None:
        """Report the details of a dead letter, or those of a decision with the shadow policy's decision.

        ``is_shown``: whether the status page shows it.
        """
        scored, entry = completed.scored, completed.entry
        score, trace = scored.score, scored.trace
        if entry.failure is not None:
            self._metrics.recent.dead_lettered(
                scored.record.source,
                score=score,
                failure=entry.failure,
                trace_id=entry.trace_id,
                objective=None if trace is None else trace.objective,
            )
        elif score is not None and trace is not None:
            metadata = trace.metadata
            in_force = self._shadow.in_force
            counts, reading = scored.counts, in_force.reading
            if reading > reading_of(counts):
                counts = counts_of(_trace_in(completed), reading)
            judged, assumed = sources_of(_trace_in(completed)) if is_shown else (None, False)
            decided = ScoredRecord(
                source=scored.record.source,
                id=entry.trace_id or "",
                task_domain=metadata.task_domain,
                visibility=metadata.visibility,
                privacy_level=metadata.privacy_level,
                success=metadata.success,
                confidence=trace.confidence,
                score=score,
                policy=entry.policy,
                counts=counts,
                ending=ending_of(metadata.ending),
                judged=judged,
                assumed_confidence=assumed,
            )
            if (shadow := self._shadow.add(decided)) is not None:
                self._metrics.policy.compared(score.decision, shadow.decision)
            if is_shown:
                self._metrics.recent.detailed(decided, in_force.known(entry.policy or ""), trace.objective)

    def _export_span(self, tracing: Tracing, scored: Scored, entry: Entry, output: OutputRecord) -> None:
        embedded, score = scored.embedded, scored.score
        tracing.finished(
            scored.record,
            taken=scored.taken_at,
            embedded=None if embedded is None else (embedded.started, embedded.finished),
            sent=scored.scored_at,
            output=output.topic,
            outcome={
                "outcome": entry.outcome,
                "score": None if score is None else score.quality_score,
                "domain": None if score is None else score.domain,
                "reason": None if entry.failure is None else entry.failure.reason,
            },
        )


def _trace_in(completed: Completed) -> bytes:
    """Return the bytes of a scored trace, without what wraps it."""
    return b"" if completed.output is None else trace_of(completed.output)


def _published(completed: Completed) -> PublishedTrace | None:
    """Return what is counted of a published trace; None of a dead letter."""
    decision, score, trace = completed.entry.decision, completed.scored.score, completed.scored.trace
    if decision is None or score is None or trace is None:
        return None
    metadata = trace.metadata
    return PublishedTrace(score, decision, metadata.agent_id, metadata.framework, metadata.task_domain)


def _latest(reported: Sequence[Completed]) -> list[Completed]:
    """Return all dead letters, and as many traces of each route as the status page shows."""
    latest: dict[str, deque[Completed]] = {name: deque(maxlen=LAST_RECORDS) for name in ROUTES}
    latest["dead_letter"] = deque()
    for completed in reported:
        latest[completed.entry.outcome].append(completed)
    return [*chain.from_iterable(latest.values())]
