"""The status page and its data.

The page is a single static file without external resources. Only the data, which the page fetches, contains
trace content, and only for permitted requests.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib import metadata
from typing import Any

import msgspec
import numpy as np
from prometheus_client.samples import Sample

from knowledgepulse_kafka import CLIENT
from knowledgepulse_worker import __version__
from knowledgepulse_worker.observe.evaluation import LabelEvaluation, evaluation
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.recent import (
    LAST_SCORES,
    LETTER_MINUTES,
    RATE_SECONDS,
    RecentDeadLetter,
    RecentTrace,
    excerpt,
)
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.observe.status_data import (
    AboutWorker,
    Breakdown,
    DomainScores,
    Fleet,
    InFlight,
    Latency,
    LatestLetters,
    LetterDetails,
    NamedDecisions,
    NamedTraces,
    OtherDecisions,
    Outcomes,
    OwnedPartition,
    Partitions,
    Quantiles,
    ReplacedOffsets,
    Rules,
    Scores,
    ScoringTimes,
    ShadowFigures,
    SkippedOffsets,
    StatusData,
    TraceDetails,
    Transactions,
    Unprofiled,
)
from knowledgepulse_worker.observe.trace_metrics import OUTCOMES
from knowledgepulse_worker.policy import ROUTES, Decision
from knowledgepulse_worker.scoring import Score, override_effects, similarity_text
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.verdict import Verdict

_PARTITION_GAUGES = {
    "lag": "kp_consumer_lag_records",
    "vectors": "kp_novelty_cache_entries",
    "recovering": "kp_recovery_remaining_records",
    "last_commit": "kp_last_commit_timestamp_seconds",
}
_OTHER_METRICS = (
    "kp_threshold",
    "kp_share",
    "kp_budget_seconds",
    "kp_embedding_pass_seconds",
    "kp_restarts_total",
    "kp_policy_info",
    "kp_build_info",
    "kp_partitions",
    "kp_in_flight_records",
    "kp_in_flight_records_limit",
)
_DISTRIBUTIONS = ("faust-streaming", CLIENT, "openvino", "tokenizers")

LISTED_AGENTS = 10
"""Number of agents and frameworks each that are listed; all others are counted together."""


class Status:
    """The data of ``/api/status``: current metrics and recent events.

    Args:
        metrics: the worker's metrics, with its recent events.
        settings: the topics and the group.
        shadow: the comparison with the shadow policy, and the policies in force.
        verdict: returns the verdict on the worker.
    """

    def __init__(
        self, metrics: Metrics, settings: Settings, shadow: ShadowComparison, verdict: Callable[[], Verdict]
    ) -> None:
        self._metrics = metrics
        self._comparison = shadow
        self._verdict = verdict
        self._settings = settings
        self._versions = dict(_versions())
        self._started = time.monotonic()

    def to_json(self, *, content: bool) -> bytes:
        """Return :meth:`data` as JSON."""
        return msgspec.json.encode(self.data(content=content).members())

    def data(self, *, content: bool) -> StatusData:
        """Return the current status.

        Args:
            content: whether to include trace content: ids, objectives, the traces' own domains and the
                messages of dead letters, which may quote it. Otherwise, these are None, and only agents and
                frameworks that the settings name are listed.
        """
        now = _Values(self._metrics.samples(*_OTHER_METRICS, *_PARTITION_GAUGES.values()))
        recent, settings = self._metrics.recent, self._settings
        return StatusData(
            at=time.time(),
            up_seconds=time.monotonic() - self._started,
            before_restart=recent.before_restart,
            content_shown=content,
            verdict=self._verdict().shown(settings.web.runbook),
            truncations=[
                ReplacedOffsets(partition, offsets[0], len(offsets), at)
                for partition, offsets, at in reversed(recent.truncations)
            ],
            skips=[
                SkippedOffsets(partition, offsets[0], len(offsets), why, at)
                for partition, offsets, why, at in reversed(recent.skips)
            ],
            worker=self._worker(now),
            outcomes=self._outcomes(),
            scores=self._scores(now),
            unprofiled=self._unprofiled(content=content),
            shadow=self._shadow(content=content),
            fleet=self._fleet(content=content),
            registry=recent.answers if settings.registry.url else None,
            evaluation=self.evaluation(content=content),
            latency=self._latency(now.value("kp_budget_seconds")),
            transactions=self._transactions(),
            in_flight=InFlight(
                int(now.value("kp_in_flight_records")), int(now.value("kp_in_flight_records_limit"))
            ),
            partitions=_partitions(now),
            traces={
                route.participle: [_trace(trace, content=content) for trace in reversed(recent.traces[name])]
                for name, route in ROUTES.items()
            },
            dead_letters=[_dead_letter(letter, content=content) for letter in reversed(recent.dead_letters)],
        )

    def evaluation(self, *, content: bool) -> LabelEvaluation | None:
        """Return what labels say of the policy; None without the setting. See also :meth:`data`."""
        if self._settings.web.evaluation is None:
            return None
        named = None if content else self._settings.fleet.agent_ids
        return evaluation(self._settings.web.evaluation, self._metrics.recent.passed(), named)

    def _worker(self, now: _Values) -> AboutWorker:
        settings, build = self._settings, now.labels("kp_build_info")
        return AboutWorker(
            host=socket.gethostname(),
            process=os.getpid(),
            brokers=settings.kafka.bootstrap_servers,
            group=settings.kafka.group,
            topics=settings.topics.model_dump(),
            model=build.get("model"),
            precision=build.get("precision"),
            device=build.get("device"),
            policy=now.labels("kp_policy_info").get("policy"),
            policy_since=self._comparison.in_force.since,
            budget_seconds=now.value("kp_budget_seconds"),
            embedding_pass_seconds=now.value("kp_embedding_pass_seconds") or None,
            runbook=settings.web.runbook,
            restarts=int(now.value("kp_restarts_total")),
            last_end=self._metrics.recent.last_end or None,
            versions=self._versions,
        )

    def _outcomes(self) -> Outcomes:
        recent = self._metrics.recent
        seconds, letters = recent.per_second(), recent.letters_by_reason().most_common()
        return Outcomes(
            total={outcome: recent.totals[outcome] for outcome in OUTCOMES},
            rate=sum(second.total() for second in seconds) / self._rate_seconds,
            per_second={outcome: [second[outcome] for second in seconds] for outcome in OUTCOMES},
            last_output=recent.last_output,
            dead_letters=LatestLetters(60 * LETTER_MINUTES, dict(letters)),
        )

    @property
    def _rate_seconds(self) -> int:
        """The number of whole seconds that rates are of."""
        return min(RATE_SECONDS, max(1, int(time.monotonic() - self._metrics.recent.began)))

    def _transactions(self) -> Transactions:
        counts = self._metrics.recent.transactions()
        return Transactions(counts.total() / self._rate_seconds, dict(counts.most_common()))

    def _scores(self, now: _Values) -> Scores:
        shares = now.by("kp_share", "domain")
        domains = {
            domain: DomainScores(threshold, shares.get(domain))
            for domain, threshold in now.by("kp_threshold", "domain").items()
        }
        for domain, score, passes in self._metrics.recent.scores:
            if domain in domains:  # a reload may have removed the domain
                domains[domain].values.append(score)
                domains[domain].passes.append(passes)
        return Scores(LAST_SCORES, domains)

    def _unprofiled(self, *, content: bool) -> Unprofiled:
        """Count the traces whose task domain has no profile, and name the most frequent such domains."""
        names = Counter(self._metrics.recent.unprofiled)
        most = names.most_common(LISTED_AGENTS) if content else []
        return Unprofiled(names.total(), [NamedTraces(*named) for named in most])

    def _shadow(self, *, content: bool) -> ShadowFigures | None:
        rescored = self._comparison.report
        if rescored is None:
            return None
        figures, active = rescored.figures, self._comparison.in_force.policy
        flips = [
            msgspec.structs.replace(flip, id=excerpt(flip.id) if content else None)
            for flip in reversed(figures.flips)
        ]
        rules = {
            domain: Rules(active.profile(domain).rule, rescored.policy.profile(domain).rule)
            for domain in rescored.routes
        }
        return ShadowFigures(figures.policy, figures.traces, figures.rescored, figures.routes, flips, rules)

    def _fleet(self, *, content: bool) -> Fleet:
        origins, fleet = self._metrics.recent.origins, self._settings.fleet
        return Fleet(
            LAST_SCORES,
            agents=_breakdown(
                ((origin.agent_id, origin.decision) for origin in origins),
                None if content else fleet.agent_ids,
            ),
            frameworks=_breakdown(
                ((origin.framework, origin.decision) for origin in origins),
                None if content else fleet.frameworks,
            ),
        )

    def _latency(self, budget: float) -> Latency:
        recent = self._metrics.recent
        over = sum(seconds > budget for seconds in recent.scoring_seconds)
        scoring = _quantiles(recent.scoring_seconds)
        return Latency(
            ScoringTimes(scoring.count, scoring.p50, scoring.p95, scoring.p99, over),
            _quantiles(recent.end_to_end_seconds),
        )


class _Values:
    """Samples by name."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples: dict[str, list[Sample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.name, []).append(sample)

    def value(self, name: str) -> float:
        return self._samples[name][0].value

    def by(self, name: str, label: str) -> dict[str, float]:
        return {sample.labels[label]: sample.value for sample in self._samples.get(name, ())}

    def labels(self, name: str) -> dict[str, str]:
        return next((sample.labels for sample in self._samples.get(name, ())), {})


def _partitions(now: _Values) -> Partitions:
    counts, owned = now.by("kp_partitions", "state"), []
    gauges = {key: now.by(name, "partition") for key, name in _PARTITION_GAUGES.items()}
    for number in sorted({label for gauge in gauges.values() for label in gauge}, key=int):
        values = {key: gauge.get(number) for key, gauge in gauges.items()}
        lag, vectors, recovering = (
            value if value is None else int(value)
            for value in (values["lag"], values["vectors"], values["recovering"])
        )
        owned.append(OwnedPartition(int(number), lag, vectors, recovering, values["last_commit"]))
    return Partitions(int(counts.get("topic", 0)), int(counts.get("owned", 0)), owned)


def _breakdown(traces: Iterable[tuple[str | None, Decision]], listed: Collection[str] | None) -> Breakdown:
    """Count traces by name: the :data:`LISTED_AGENTS` most frequent names, and all others together.

    Args:
        traces: pairs of a name, or None for a trace without one, and a decision.
        listed: the names that may be listed; None allows any name.
    """
    counts: dict[str | None, Counter[Decision]] = {}
    for name, decision in traces:
        counts.setdefault(name, Counter())[decision] += 1
    names = [name for name in counts if listed is None or name is None or name in listed]
    names = sorted(names, key=lambda name: -counts[name].total())[:LISTED_AGENTS]
    other = sum((count for name, count in counts.items() if name not in names), Counter[Decision]())
    return Breakdown(
        [NamedDecisions(name, counts[name].total(), _kept(counts[name])) for name in names],
        OtherDecisions(other.total(), _kept(other)),
    )


def _kept(decisions: Counter[Decision]) -> int:
    return sum(count for decision, count in decisions.items() if ROUTES[decision].kept)


def _quantiles(seconds: Collection[float]) -> Quantiles:
    if not seconds:
        return Quantiles(0)
    return Quantiles(len(seconds), *np.quantile(list(seconds), [0.5, 0.95, 0.99]).tolist())


def _trace(trace: RecentTrace, *, content: bool) -> TraceDetails:
    """Return a published trace with its score and the explanation of the score."""
    record, score = trace.record, trace.record.score
    return TraceDetails(
        source=record.source,
        at=trace.at,
        trace_id=record.id if content else None,
        objective=trace.objective if content else None,
        task_domain=trace.task_domain if content else None,
        ending=record.ending,
        judged=record.judged,
        policy=record.policy,
        score=_score(score, content=content),
        similarity=similarity_text(score),
        effects=override_effects(score),
        explanation=trace.explanation,
    )


def _dead_letter(letter: RecentDeadLetter, *, content: bool) -> LetterDetails:
    return LetterDetails(
        source=letter.source,
        at=letter.at,
        trace_id=letter.trace_id if content else None,
        objective=letter.objective if content else None,
        score=None if letter.score is None else _score(letter.score, content=content),
        reason=letter.reason,
        exception=letter.exception,
        message=letter.message if content else None,
    )


def _score(score: Score, *, content: bool) -> dict[str, Any]:
    """Return a score's fields under their names in the ``kp-score`` header, including omitted fields."""
    fields = {field.encode_name: getattr(score, field.name) for field in msgspec.structs.fields(score)}
    return fields if content else {**fields, "nearest": None}


def _versions() -> Iterator[tuple[str, str]]:
    yield "knowledgepulse-worker", __version__
    yield "python", ".".join(map(str, sys.version_info[:3]))
    for name in _DISTRIBUTIONS:
        yield name, metadata.version(name)
