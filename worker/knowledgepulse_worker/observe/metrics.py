"""The worker's Prometheus metrics.

Times are in seconds. Label values are bounded, since they come from the code or the settings and never from a
producer's text. Series with closed label sets start at zero, so that ``increase()`` sees the first event.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, product
from statistics import median
from typing import Any, Literal, get_args

from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as render_openmetrics
from prometheus_client.samples import Sample

from knowledgepulse_kafka.wait import Wait
from knowledgepulse_schemas.dead_letter import REASONS
from knowledgepulse_worker.errors import REDACTION_REASONS
from knowledgepulse_worker.http.verdict import State
from knowledgepulse_worker.observe.metric_registry import (
    TEXT,
    CollectorRegistry,
    GroupRegistry,
    Makers,
    children_of,
    make_waiting,
    prepare_registry,
    render_text,
    set_waiting,
    start_at_zero,
)
from knowledgepulse_worker.observe.recent import LAST_RECORDS, Recent, UnreadOffsetReason, excerpt
from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.scoring import RescoreReport, Score, ScoredRecord
from knowledgepulse_worker.settings import FleetSettings

DECISIONS = ("contribute", "rejected")
OUTCOMES = (*DECISIONS, "dead_letter")
STAGES = ("decode", "queue", "embed", "score", "redact", "commit")
REDACTION_RESULTS = ("ok", *REDACTION_REASONS)
AbortReason = Literal["refused", "rebalance", "throttled"]
ABORT_REASONS: tuple[AbortReason, ...] = get_args(AbortReason)
QUOTAS = ("producer", "consumer")
PARTITIONERS = ("murmur2", "other")
RELOAD_RESULTS = ("ok", "failed")
RESET_REASONS = ("model", "rewind", "recreated", "lost")

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_END_TO_END = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_MAX_EXEMPLAR = 100
_OTHER = "other"


class Metrics:
    """All metrics of the worker.

    Args:
        policy: the policy, for domain labels and threshold gauges.
        budget: the latency budget in seconds, which becomes a bucket boundary.
        registry: the registry; by default a new one with process and platform collectors.
        fleet: the agents and frameworks with series of their own; by default none.
        group: the consumer group, which is a label of each series.

    Attributes:
        recent: recent events, for the status page.
        shadow: the shadow policy's effects since either policy last changed; None without a shadow policy.
    """

    def __init__(
        self,
        policy: Policy,
        budget: float,
        registry: CollectorRegistry | None = None,
        fleet: FleetSettings | None = None,
        group: str = "",
    ) -> None:
        self.registry = prepare_registry(registry)
        self._page: Any = GroupRegistry(self.registry, group)
        make = Makers(self.registry)
        self.recent = Recent()
        self.shadow: RescoreReport | None = None
        self._budget = budget
        self._refreshers: list[Callable[[], None]] = []
        self._create_trace_metrics(make)
        self._create_fleet_metrics(fleet or FleetSettings(), make)
        self._create_timing_metrics(budget, make)
        self._create_embedding_metrics(make)
        self._create_flow_metrics(make)
        self._create_ledger_metrics(make)
        self._create_info_metrics(policy, budget, make)

    def _create_trace_metrics(self, make: Makers) -> None:
        traces = make.counter("kp_traces", "Records with a committed output", ["outcome"])
        self._dead_letters = make.counter("kp_dead_letters", "Records that could not be scored", ["reason"])
        self._quality = make.histogram(
            "kp_quality_score",
            "Scores of published traces",
            ["domain", "outcome"],
            buckets=[step / 20 for step in range(1, 21)],
        )
        self._dimension = make.histogram(
            "kp_dimension_score",
            "Values of the score dimensions",
            ["domain", "dimension"],
            buckets=[step / 10 for step in range(1, 11)],
        )
        self._expired = make.counter("kp_expired_outputs", "Outputs older than their topic's retention")
        self._aborted = make.counter(
            "kp_aborted_transactions", "Transactions of outputs that were aborted, by reason", ["reason"]
        )
        start_at_zero(self._aborted, ABORT_REASONS)
        self._poison_skipped = make.counter(
            "kp_poison_skipped", "Records skipped without an output because every attempt crashed the worker"
        )
        self._redactions = make.counter(
            "kp_redactions", "Contributed traces, by the result of their redaction", ["result"]
        )
        start_at_zero(self._redactions, REDACTION_RESULTS)
        self._traces_of = start_at_zero(traces, OUTCOMES)
        start_at_zero(self._dead_letters, REASONS)

    def _create_fleet_metrics(self, fleet: FleetSettings, make: Makers) -> None:
        self._agents = make.counter("kp_agent_traces", "Published traces by agent", ["agent_id", "outcome"])
        self._frameworks = make.counter(
            "kp_framework_traces", "Published traces by framework", ["framework", "outcome"]
        )
        self._agent_ids = frozenset(fleet.agent_ids)
        self._framework_names = frozenset(fleet.frameworks)
        for agent_id, decision in product((*fleet.agent_ids, _OTHER), DECISIONS):
            self._agents.labels(agent_id, decision)
        for framework, decision in product((*fleet.frameworks, _OTHER), DECISIONS):
            self._frameworks.labels(framework, decision)
        self._agent_traces_of = children_of(self._agents)
        self._framework_traces_of = children_of(self._frameworks)
        self._unprofiled = make.counter(
            "kp_unprofiled_domain_traces", "Published traces whose task domain has no profile in the policy"
        )
        self._shadow_decisions = make.counter(
            "kp_shadow_decisions",
            "Published traces by their decision and the shadow policy's",
            ["active", "shadow"],
        )
        for decisions in product(DECISIONS, DECISIONS):
            self._shadow_decisions.labels(*decisions)

    def _create_timing_metrics(self, budget: float, make: Makers) -> None:
        self._scoring = make.histogram(
            "kp_scoring_seconds",
            "Time from a record's admission to the embedding queue to its score",
            buckets=sorted({*_LATENCY, budget}),
        )
        self._over_budget = make.counter("kp_budget_exceeded", "Records scored later than the latency budget")
        self._admission = make.histogram(
            "kp_admission_wait_seconds",
            "Time a record waits in its lane for admission to the embedding queue",
            buckets=[*_LATENCY, 5, 10, 30],
        )
        stage = make.histogram(
            "kp_stage_seconds",
            "Time a record spends in each stage; of the stage commit, the time a transaction takes",
            ["stage"],
            buckets=_LATENCY,
        )
        self._end_to_end = make.histogram(
            "kp_end_to_end_seconds",
            "Time from a record's timestamp to the commit of its output",
            buckets=_END_TO_END,
        )
        self._stage_of = {name: stage.labels(name) for name in STAGES}

    def _create_embedding_metrics(self, make: Makers) -> None:
        self._batch_size = make.histogram(
            "kp_embedding_batch_size", "Texts per embedding batch", buckets=[1, 2, 4, 8, 16, 32, 64]
        )
        self._pass = make.gauge(
            "kp_embedding_pass_seconds",
            "Time that a text that fills the window took at the start; 0 without an embedder",
        )
        self._embedding_errors = make.counter("kp_embedding_errors", "Failed embedding batches")
        self._truncated = make.counter("kp_embedding_truncated", "Texts truncated to the model's window")
        self._repeated = make.counter(
            "kp_embedding_repeated", "Texts whose recently computed embedding was reused"
        )
        self._letters_of = children_of(
            make.counter(
                "kp_embedded_letters",
                "Letters of the first text of each embedding batch, up to 1,000 characters, by script: latin "
                "or other",
                ["domain", "script"],
            )
        )

    def _create_flow_metrics(self, make: Makers) -> None:
        self._in_flight = make.gauge(
            "kp_in_flight_records", "Fetched records whose output is not committed yet"
        )
        self._in_flight_bytes = make.gauge(
            "kp_in_flight_bytes", "Bytes of fetched records whose output is not committed yet"
        )
        self.in_flight_limit = make.gauge(
            "kp_in_flight_records_limit", "Maximum number of records in flight, over all owned partitions"
        )
        self.in_flight_bytes_limit = make.gauge(
            "kp_in_flight_bytes_limit", "Maximum number of bytes in flight, over all owned partitions"
        )
        self._lag = make.gauge(
            "kp_consumer_lag_records",
            "Offsets up to the end of the partition that are neither committed nor passed over",
            ["partition"],
        )
        self._held_back = make.gauge(
            "kp_open_transaction_records", "Offsets held back by open transactions", ["partition"]
        )
        self._last_commit = make.gauge(
            "kp_last_commit_timestamp_seconds", "Time of the partition's last commit", ["partition"]
        )
        self._skipped = make.counter(
            "kp_skipped_offsets",
            "Offsets of the raw topic that no worker read, because they were deleted or passed over",
        )
        self._read_again = make.counter(
            "kp_truncated_offsets", "Offsets scored again because a leader election replaced their records"
        )
        keys = make.counter(
            "kp_sampled_keys",
            "Keys of one record in eight, by whether Kafka's default partitioner chooses their partition",
            ["partitioner"],
        )
        self._sampled_keys_of = start_at_zero(keys, PARTITIONERS)
        self._throttled = make.counter(
            "kp_throttled_seconds", "Seconds for which brokers throttled a client by a quota", ["quota"]
        )
        start_at_zero(self._throttled, QUOTAS)
        self._restarts = make.counter("kp_restarts", "Starts of the worker's process after it had ended")
        self.partitions = make.gauge("kp_partitions", "Partitions of the raw topic", ["state"])
        self.rebalances = make.counter("kp_rebalances", "Rebalances of the group")
        start_at_zero(self.partitions, ("owned", "topic"))
        self._waiting = make_waiting(make)
        self._state = make.gauge("kp_state", "1 for the state that the worker is in", ["state"])
        self.set_state(State.STARTING)

    def set_state(self, state: State) -> None:
        """Set the worker's state, as its verdict names it."""
        for possible in State:
            self._state.labels(possible).set(possible is state)

    def waiting(self, waits: Iterable[Wait], seconds: float) -> None:
        """Set what the worker waits for, and for how long it has been in its present state."""
        set_waiting(self._waiting, dict.fromkeys(waits, seconds))

    def _create_ledger_metrics(self, make: Makers) -> None:
        self._cache_entries = make.gauge(
            "kp_novelty_cache_entries", "Vectors in the novelty cache", ["partition"]
        )
        self._cache_resets = make.counter(
            "kp_cache_resets",
            "Ledgers from which invalid entries were cut, or that the changelog has lost",
            ["reason"],
        )
        self._recovery = make.gauge(
            "kp_recovery_remaining_records", "Ledger records still to be read", ["partition"]
        )
        start_at_zero(self._cache_resets, RESET_REASONS)

    def _create_info_metrics(self, policy: Policy, budget: float, make: Makers) -> None:
        make.gauge("kp_budget_seconds", "Latency budget of a score").set(budget)
        self._threshold = make.gauge(
            "kp_threshold",
            "Lowest score with which a trace is contributed; with a share, at the latest trace",
            ["domain"],
        )
        self._cuts: dict[str, float] = {}  # set in the gauge at each scrape, which is far cheaper
        self._share = make.gauge("kp_share", "Share of the traces that is contributed", ["domain"])
        self._share_threshold = make.gauge(
            "kp_share_threshold",
            "Lowest score that passes by a domain's share: the least, the median and the greatest of the "
            "worker's partitions",
            ["domain", "quantile"],
        )
        self._policy = make.gauge("kp_policy_info", "Digest of the current policy", ["policy"])
        self._shadow_policy = make.gauge(
            "kp_shadow_policy_info", "Digest of the current shadow policy", ["policy"]
        )
        self._policy_reloads = make.counter(
            "kp_policy_reloads", "Reloads of a changed policy file", ["result"]
        )
        start_at_zero(self._policy_reloads, RELOAD_RESULTS)
        self.set_policy(policy)
        self._build = make.gauge(
            "kp_build_info",
            "Version, model, precision and device of this worker",
            ["version", "model", "precision", "device"],
        )

    def set_policy(self, policy: Policy) -> None:
        """Set the current policy."""
        self.recent.policies.append(policy)
        self.recent.policy_since = time.time()
        self._policy.clear()
        self._policy.labels(policy.digest).set(1)
        self._threshold.clear()
        self._cuts.clear()
        self._share.clear()
        for domain, profile in policy.profiles.items():
            self._threshold.labels(domain).set(profile.threshold)
            if profile.share is not None:
                self._share.labels(domain).set(profile.share)
            for decision in DECISIONS:
                self._quality.labels(domain, decision)
            for dimension in (*DIMENSIONS, *(["learned"] if profile.learned else [])):
                self._dimension.labels(domain, dimension)
        if self.shadow is not None:
            self.set_shadow(self.shadow.policy)

    def set_shadow(self, policy: Policy | None) -> None:
        """Set the current shadow policy and restart the comparison; None ends the comparison."""
        self._shadow_policy.clear()
        self.shadow = None
        if policy is not None:
            self._shadow_policy.labels(policy.digest).set(1)
            self.shadow = RescoreReport(policy, flips=deque(maxlen=LAST_RECORDS))

    def policy_reloaded(self, result: str) -> None:
        """Count a reload of a changed policy file."""
        self._policy_reloads.labels(result).inc()

    def share_thresholds(self, cuts: Iterable[Mapping[str, float]]) -> None:
        """Set the lowest scores that pass by a share, given those of each partition by domain."""
        by_domain: defaultdict[str, list[float]] = defaultdict(list)
        for domain, cut in chain.from_iterable(of_partition.items() for of_partition in cuts):
            by_domain[domain].append(cut)
        self._share_threshold.clear()
        for domain, values in by_domain.items():
            for quantile, value in (("0", min(values)), ("0.5", median(values)), ("1", max(values))):
                self._share_threshold.labels(domain, quantile).set(value)

    def on_scrape(self, refresh: Callable[[], None]) -> None:
        """Call a function before every scrape, to refresh gauges."""
        self._refreshers.append(refresh)

    def set_build_info(self, version: str, model: str, precision: str, device: str) -> None:
        """Set the labels of ``kp_build_info``."""
        self._build.labels(version, model, precision, device).set(1)

    def restarted(self, times: int, ends: tuple[float, ...], last_end: str) -> None:
        """Count the restarts before this process, and keep when and how the former ones ended."""
        self._restarts.inc(times)
        self.recent.ends, self.recent.last_end = ends, last_end

    def set_pass(self, seconds: float) -> None:
        """Set how long a text that fills the window takes to embed."""
        self._pass.set(seconds)

    def scored(self, score: Score, trace_id: str, seconds: float) -> None:
        """Observe a score and the time since the record's admission."""
        for dimension in DIMENSIONS:
            self._dimension.labels(score.domain, dimension).observe(getattr(score, dimension))
        if score.learned is not None:
            self._dimension.labels(score.domain, "learned").observe(score.learned)
        self._scoring.observe(seconds, _exemplar(trace_id))
        self.recent.scored(seconds)
        if seconds > self._budget:
            self._over_budget.inc()

    def published(
        self, score: Score, agent_id: str | None, framework: str | None, end_to_end: float | None
    ) -> None:
        """Observe a committed output of a trace, with its origin."""
        decision = score.decision
        self._traces_of[decision].inc()
        self._quality.labels(score.domain, decision).observe(score.quality_score)
        if score.rank is not None:
            self._cuts[score.domain] = score.threshold
        self._observe_end_to_end(end_to_end)
        agent = agent_id if agent_id in self._agent_ids else _OTHER
        self._agent_traces_of(agent, decision).inc()
        self._framework_traces_of(framework if framework in self._framework_names else _OTHER, decision).inc()
        self.recent.published(score, agent_id, framework)

    def unprofiled(self, task_domain: str) -> None:
        """Count a published trace whose task domain has no profile, so that ``default`` applies."""
        self._unprofiled.inc()
        self.recent.unprofiled.append(excerpt(task_domain))

    def compare(self, record: ScoredRecord) -> None:
        """Count a published trace by the shadow policy's decision, if there is a shadow policy."""
        if self.shadow is not None:
            shadow = self.shadow.add(record)
            self._shadow_decisions.labels(record.score.decision, shadow.decision).inc()

    def placed(self, *, elsewhere: bool) -> None:
        """Count a key by whether it is in another partition than Kafka's default partitioner chooses."""
        self._sampled_keys_of["other" if elsewhere else "murmur2"].inc()

    def dead_lettered(self, reason: str, end_to_end: float | None) -> None:
        """Observe a committed dead letter."""
        self._traces_of["dead_letter"].inc()
        self._dead_letters.labels(reason).inc()
        self._observe_end_to_end(end_to_end)

    def _observe_end_to_end(self, seconds: float | None) -> None:
        if seconds is not None:
            self._end_to_end.observe(max(0.0, seconds))

    def redacted(self, result: str, seconds: float) -> None:
        """Observe a redacted copy, or the reason why there is none."""
        self._redactions.labels(result).inc()
        self.stage("redact", seconds)

    def expired(self) -> None:
        """Count an output that is older than its topic's retention."""
        self._expired.inc()

    def stage(self, stage: str, seconds: float) -> None:
        """Observe the time that a record spent in a stage."""
        self._stage_of[stage].observe(seconds)

    def admitted(self, waited: float) -> None:
        """Observe the time that a record waited for admission to the embedding queue."""
        self._admission.observe(waited)

    def embedded(self, batch: int, truncated: int, repeated: int) -> None:
        """Observe an embedded batch."""
        self._batch_size.observe(batch)
        self._truncated.inc(truncated)
        self._repeated.inc(repeated)

    def letters(self, domain: str, latin: int, other: int) -> None:
        """Count the letters of an embedded text by script."""
        self._letters_of(domain, "latin").inc(latin)
        self._letters_of(domain, "other").inc(other)
        self.recent.letters[domain].append((latin, other))

    def embedding_failed(self) -> None:
        """Count a failed batch."""
        self._embedding_errors.inc()

    def in_flight(self, records: int, size: int) -> None:
        """Set the number of records and bytes in flight, over all owned partitions."""
        self._in_flight.set(records)
        self._in_flight_bytes.set(size)

    def skipped_poison(self) -> None:
        """Count a skipped poison record."""
        self._poison_skipped.inc()

    def aborted(self, reason: AbortReason) -> None:
        """Count a transaction that was aborted."""
        self._aborted.labels(reason).inc()

    def cache_size(self, partition: int, size: int) -> None:
        """Set the number of vectors in a partition's cache."""
        self._cache_entries.labels(partition).set(size)

    def cache_reset(self, reason: str) -> None:
        """Count a ledger that was cut."""
        self._cache_resets.labels(reason).inc()

    def committed(self, partition: int, at: float) -> None:
        """Set the time of a partition's last commit, in seconds since the epoch."""
        self._last_commit.labels(partition).set(at)

    def skipped(self, partition: int, offsets: range, reason: UnreadOffsetReason) -> None:
        """Count offsets that no worker reads."""
        self._skipped.inc(len(offsets))
        self.recent.skipped(partition, offsets, reason)

    def truncated(self, partition: int, offsets: range) -> None:
        """Count offsets that are read again because a leader election replaced their records."""
        self._read_again.inc(len(offsets))
        self.recent.truncated(partition, offsets)

    def throttled(self, quota: str, seconds: float) -> None:
        """Count the seconds for which a broker throttles a client of the quota's kind."""
        self._throttled.labels(quota).inc(seconds)

    def lag(self, partition: int, records: int) -> None:
        """Set the number of offsets between a partition's position and its end."""
        self._lag.labels(partition).set(records)

    def held_back(self, partition: int, records: int) -> None:
        """Set the number of a partition's offsets that open transactions hold back."""
        self._held_back.labels(partition).set(records)

    def recovering(self, partition: int, remaining: int) -> None:
        """Set the number of a partition's ledger records still to be read."""
        self._recovery.labels(partition).set(remaining)

    def partition_left(self, partition: int) -> None:
        """Remove the series of a partition that is no longer owned."""
        for gauge in (self._cache_entries, self._last_commit, self._lag, self._held_back, self._recovery):
            gauge.remove_by_labels({"partition": str(partition)})

    def render(self, accept: str, *, content: bool) -> tuple[str, bytes]:
        """Return the content type and the metrics page.

        Args:
            accept: the request's ``Accept`` header, which may ask for OpenMetrics; the default is
                Prometheus's text format.
            content: whether to include trace content, since OpenMetrics exemplars contain trace ids.
        """
        self._refresh()
        if content and "application/openmetrics-text" in accept:
            return OPENMETRICS, render_openmetrics(self._page)
        return TEXT, render_text(self._page)

    def samples(self, *names: str) -> list[Sample]:
        """Return the current samples of these metrics."""
        self._refresh()
        families = self.registry.restricted_registry(names).collect()
        return [sample for family in families for sample in family.samples]

    def _refresh(self) -> None:
        for refresh in self._refreshers:
            refresh()
        for domain in self._cuts.keys() & self.recent.policies[-1].profiles.keys():
            self._threshold.labels(domain).set(self._cuts[domain])


def _exemplar(trace_id: str) -> str | None:
    """Return a trace's id; None for an overlong or non-ASCII id, which would break the page."""
    if len(trace_id) > _MAX_EXEMPLAR or not trace_id.isascii() or not trace_id.isprintable():
        return None
    return trace_id
