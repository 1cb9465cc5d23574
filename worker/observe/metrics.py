"""The metrics, with their names, in a registry that is handed in.

Times are in seconds. Labels are bounded: ``domain`` is a weight profile's name, never what a producer
wrote. Label sets that are closed start at zero, so that ``increase()`` sees the first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client import generate_latest as render_text
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as render_openmetrics
from prometheus_client.samples import Sample

from worker.errors import REASONS
from worker.observe.recent import Recent
from worker.policy import Policy
from worker.scoring import Score

_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES = ("contribute", "rejected", "dead_letter")
DIMENSIONS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
STAGES = ("decode", "queue", "embed", "score", "remember", "publish")
RELOAD_RESULTS = ("ok", "failed")
RESET_REASONS = ("model", "rewind", "recreated")

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_END_TO_END = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_MAX_EXEMPLAR = 100


class Metrics:
    """Every metric of the worker.

    Args:
        policy: its domains and thresholds become labels and gauges.
        budget: seconds; a bucket's boundary of its own.
        registry: where they are registered; a new one with process and platform collectors when left out.

    Attributes:
        recent: what happened last, for the status page.
    """

    def __init__(self, policy: Policy, budget: float, registry: CollectorRegistry | None = None) -> None:
        if registry is None:
            registry = CollectorRegistry()
            ProcessCollector(registry=registry)
            PlatformCollector(registry=registry)
        disable_created_metrics()  # a series a series, which nobody reads
        self.registry = registry
        self.recent = Recent()
        self._budget = budget
        self._observers: list[Callable[[], None]] = []
        self._count_traces(registry)
        self._time(budget, registry)
        self._watch_embedding(registry)
        self._watch_flow(registry)
        self._watch_ledger(registry)
        self._describe(policy, budget, registry)

    def _count_traces(self, registry: CollectorRegistry) -> None:
        self._traces = Counter("kp_traces", "Records that ended in an output", ["outcome"], registry=registry)
        self._dead_letters = Counter(
            "kp_dead_letters", "Records that could not be scored", ["reason"], registry=registry
        )
        self._quality = Histogram(
            "kp_quality_score",
            "Scores of published traces",
            ["domain", "outcome"],
            buckets=[step / 20 for step in range(1, 21)],
            registry=registry,
        )
        dimension = Histogram(
            "kp_dimension_score",
            "The parts of the scores",
            ["dimension"],
            buckets=[step / 10 for step in range(1, 11)],
            registry=registry,
        )
        self._expired = Counter(
            "kp_expired_outputs", "Outputs older than their topic keeps records", registry=registry
        )
        self._redelivered = Counter(
            "kp_redelivered", "Records that were published from their ledger entry", registry=registry
        )
        self._retries = Counter(
            "kp_publish_retries", "Outputs that were sent again, alone", registry=registry
        )
        self._poison_skipped = Counter(
            "kp_poison_skipped",
            "Records without any output, because each attempt was deadly",
            registry=registry,
        )
        _start_at_zero(self._traces, OUTCOMES)
        _start_at_zero(self._dead_letters, REASONS)
        self._dimension_of = _start_at_zero(dimension, DIMENSIONS)

    def _time(self, budget: float, registry: CollectorRegistry) -> None:
        self._scoring = Histogram(
            "kp_scoring_seconds",
            "From a record's admission to embedding to its score",
            buckets=sorted({*_LATENCY, budget}),
            registry=registry,
        )
        self._over_budget = Counter(
            "kp_budget_exceeded", "Scores that took longer than the budget", registry=registry
        )
        self._admission = Histogram(
            "kp_admission_wait_seconds",
            "From a lane's take of a record to its admission to embedding",
            buckets=[*_LATENCY, 5, 10, 30],
            registry=registry,
        )
        stage = Histogram(
            "kp_stage_seconds", "Where the time goes", ["stage"], buckets=_LATENCY, registry=registry
        )
        self._end_to_end = Histogram(
            "kp_end_to_end_seconds",
            "From a record's timestamp to its confirmed output",
            buckets=_END_TO_END,
            registry=registry,
        )
        self._stage_of = _start_at_zero(stage, STAGES)

    def _watch_embedding(self, registry: CollectorRegistry) -> None:
        self._batch_size = Histogram(
            "kp_embedding_batch_size", "Texts in a batch", buckets=[1, 2, 4, 8, 16, 32, 64], registry=registry
        )
        self._embedding_errors = Counter("kp_embedding_errors", "Batches that failed", registry=registry)
        self._truncated = Counter(
            "kp_embedding_truncated", "Texts longer than the model reads", registry=registry
        )
        self._repeated = Counter(
            "kp_embedding_repeated",
            "Texts not embedded, as the model had read the same before",
            registry=registry,
        )

    def _watch_flow(self, registry: CollectorRegistry) -> None:
        self._in_flight = Gauge(
            "kp_in_flight_records", "Records between fetch and confirmation", registry=registry
        )
        self._in_flight_bytes = Gauge(
            "kp_in_flight_bytes", "Bytes between fetch and confirmation", registry=registry
        )
        self.in_flight_limit = Gauge(
            "kp_in_flight_records_limit", "At most so many, owned partitions together", registry=registry
        )
        self.in_flight_bytes_limit = Gauge(
            "kp_in_flight_bytes_limit", "At most so many, owned partitions together", registry=registry
        )
        self._lag = Gauge(
            "kp_consumer_lag_records",
            "Offsets between the watermark and the end of the partition",
            ["partition"],
            registry=registry,
        )
        self._held_back = Gauge(
            "kp_open_transaction_records",
            "Offsets that open transactions hold back",
            ["partition"],
            registry=registry,
        )
        self._last_commit = Gauge(
            "kp_last_commit_timestamp_seconds",
            "When a partition was last committed",
            ["partition"],
            registry=registry,
        )
        self._skipped = Counter(
            "kp_skipped_offsets", "Offsets of raw that were deleted before they were read", registry=registry
        )
        self.partitions = Gauge("kp_partitions", "Partitions of the raw topic", ["state"], registry=registry)
        self.rebalances = Counter("kp_rebalances", "Rebalances of the group", registry=registry)
        _start_at_zero(self.partitions, ("owned", "topic"))

    def _watch_ledger(self, registry: CollectorRegistry) -> None:
        self._cache_entries = Gauge(
            "kp_novelty_cache_entries",
            "Vectors that a trace is compared with",
            ["partition"],
            registry=registry,
        )
        self._cache_resets = Counter(
            "kp_cache_resets", "Ledgers that were cut to what is still valid", ["reason"], registry=registry
        )
        self._recovery = Gauge(
            "kp_recovery_remaining_records",
            "Ledger records still to be read",
            ["partition"],
            registry=registry,
        )
        _start_at_zero(self._cache_resets, RESET_REASONS)

    def _describe(self, policy: Policy, budget: float, registry: CollectorRegistry) -> None:
        Gauge("kp_budget_seconds", "What a score may take", registry=registry).set(budget)
        self._threshold = Gauge(
            "kp_threshold", "Scores from here on are contributed", ["domain"], registry=registry
        )
        self._policy = Gauge("kp_policy_info", "The policy in force", ["policy"], registry=registry)
        self._policy_reloads = Counter(
            "kp_policy_reloads", "Times that the policy's file had changed", ["result"], registry=registry
        )
        _start_at_zero(self._policy_reloads, RELOAD_RESULTS)
        self.policy_in_force(policy)
        self._build = Gauge(
            "kp_build_info", "What runs here", ["version", "model", "precision", "device"], registry=registry
        )

    def policy_in_force(self, policy: Policy) -> None:
        """Say which policy scores are made with from now on."""
        self._policy.clear()
        self._policy.labels(policy.digest).set(1)
        self._threshold.clear()
        for domain, profile in policy.profiles.items():
            self._threshold.labels(domain).set(profile.threshold)
            for outcome in ("contribute", "rejected"):
                self._quality.labels(domain, outcome)

    def policy_reloaded(self, result: str) -> None:
        """The policy's file had changed, and was taken over or not."""
        self._policy_reloads.labels(result).inc()

    def watch(self, observe: Callable[[], None]) -> None:
        """Have a function bring gauges up to date whenever the page is asked for."""
        self._observers.append(observe)

    def built(self, version: str, model: str, precision: str, device: str) -> None:
        """Say what runs."""
        self._build.labels(version, model, precision, device).set(1)

    def scored(self, score: Score, trace_id: str, seconds: float) -> None:
        """A record was scored now, so long after its admission."""
        for dimension, histogram in self._dimension_of.items():
            histogram.observe(getattr(score, dimension))
        self._scoring.observe(seconds, exemplar=_exemplar(trace_id))
        self.recent.scored(seconds)
        if seconds > self._budget:
            self._over_budget.inc()

    def published(self, domain: str, outcome: str, quality_score: float, end_to_end: float | None) -> None:
        """A trace's output was confirmed."""
        self._traces.labels(outcome).inc()
        self._quality.labels(domain, outcome).observe(quality_score)
        self._observe_end_to_end(end_to_end)

    def buried(self, reason: str, end_to_end: float | None) -> None:
        """A dead letter was confirmed."""
        self._traces.labels("dead_letter").inc()
        self._dead_letters.labels(reason).inc()
        self._observe_end_to_end(end_to_end)

    def _observe_end_to_end(self, seconds: float | None) -> None:
        if seconds is not None:
            self._end_to_end.observe(max(0.0, seconds))

    def expired(self) -> None:
        """Count an output that its topic deletes for its age."""
        self._expired.inc()

    def stage(self, stage: str, seconds: float) -> None:
        """A record spent so long in a stage."""
        self._stage_of[stage].observe(seconds)

    def admitted(self, waited: float) -> None:
        """A record's turn for embedding came."""
        self._admission.observe(waited)

    def embedded(self, batch: int, truncated: int, repeated: int) -> None:
        """A batch was embedded."""
        self._batch_size.observe(batch)
        self._truncated.inc(truncated)
        self._repeated.inc(repeated)

    def embedding_failed(self) -> None:
        """A batch was not embedded."""
        self._embedding_errors.inc()

    def in_flight(self, records: int, size: int) -> None:
        """So many records and bytes were taken, or less than zero finished."""
        self._in_flight.inc(records)
        self._in_flight_bytes.inc(size)

    def redelivered(self) -> None:
        """A record came again."""
        self._redelivered.inc()

    def skipped_poison(self) -> None:
        """Count a record that was skipped."""
        self._poison_skipped.inc()

    def retried(self) -> None:
        """An output is sent again."""
        self._retries.inc()

    def cache_size(self, partition: int, size: int) -> None:
        """A partition's cache has so many vectors."""
        self._cache_entries.labels(partition).set(size)

    def cache_reset(self, reason: str) -> None:
        """A ledger was cut."""
        self._cache_resets.labels(reason).inc()

    def committed(self, partition: int, at: float) -> None:
        """A partition was committed at a time, in seconds since the epoch."""
        self._last_commit.labels(partition).set(at)

    def skipped(self, offsets: int) -> None:
        """Count offsets that were deleted before they were read."""
        self._skipped.inc(offsets)

    def lag(self, partition: int, records: int) -> None:
        """Set how many offsets lie between a partition's watermark and its end."""
        self._lag.labels(partition).set(records)

    def held_back(self, partition: int, records: int) -> None:
        """Set how many offsets of a partition open transactions hold back."""
        self._held_back.labels(partition).set(records)

    def recovering(self, partition: int, remaining: int) -> None:
        """Set how many records of a partition's ledger are still to be read."""
        self._recovery.labels(partition).set(remaining)

    def partition_left(self, partition: int) -> None:
        """A partition is no longer ours; its series go."""
        for gauge in (self._cache_entries, self._last_commit, self._lag, self._held_back, self._recovery):
            gauge.remove_by_labels({"partition": str(partition)})

    def render(self, accept: str, *, content: bool) -> tuple[str, bytes]:
        """Return content type and page.

        Args:
            accept: the request's header; OpenMetrics is possible, else it is Prometheus' text format.
            content: whether to show what producers wrote: exemplars, which OpenMetrics has, are trace ids.
        """
        self._bring_up_to_date()
        if content and "application/openmetrics-text" in accept:
            return OPENMETRICS, render_openmetrics(self.registry)
        return TEXT, render_text(self.registry)

    def samples(self, *names: str) -> list[Sample]:
        """Return the samples of these names as they are now."""
        self._bring_up_to_date()
        families = self.registry.restricted_registry(names).collect()
        return [sample for family in families for sample in family.samples]

    def _bring_up_to_date(self) -> None:
        for observe in self._observers:
            observe()


def _start_at_zero(metric: _Metric, labels: Iterable[str]) -> dict[str, _Metric]:
    """Make the series of a closed set, whose first event would else go unseen; returns them by label."""
    return {label: metric.labels(label) for label in labels}


def _exemplar(trace_id: str) -> dict[str, str] | None:
    """An exemplar's label; a longer or non-ASCII id would break the observation, or the page."""
    if len(trace_id) > _MAX_EXEMPLAR or not trace_id.isascii() or not trace_id.isprintable():
        return None
    return {"trace_id": trace_id}
