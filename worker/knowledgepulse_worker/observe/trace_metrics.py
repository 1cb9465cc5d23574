"""What lanes count of traces: how they are scored, published and redacted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from operator import attrgetter

from knowledgepulse_schemas.dead_letter import FORMS, REASONS
from knowledgepulse_worker.errors import REDACTION_REASONS
from knowledgepulse_worker.observe.metric_registry import Makers, children_of, start_at_zero
from knowledgepulse_worker.observe.recent import PublishedTrace
from knowledgepulse_worker.policy import DIMENSIONS, ROUTES, Policy
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.settings import FleetSettings

OUTCOMES = (*ROUTES, "dead_letter")
STAGES = ("decode", "queue", "embed", "score", "redact", "commit")
REDACTION_RESULTS = ("ok", *REDACTION_REASONS)

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_END_TO_END = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_MAX_EXEMPLAR = 100
_OTHER = "other"


class TraceMetrics:
    """The metrics of traces.

    Args:
        make: makes the metrics.
        budget: the latency budget in seconds, which becomes a bucket boundary.
        fleet: the agents and frameworks with series of their own.
    """

    def __init__(self, make: Makers, budget: float, fleet: FleetSettings) -> None:
        self._budget = budget
        self._create_outcomes(make)
        self._create_origins(make, fleet)
        self._create_times(make, budget)

    def _create_outcomes(self, make: Makers) -> None:
        traces = make.counter("kp_traces", "Records with a committed output", ["outcome"])
        self._dead_letters = make.counter("kp_dead_letters", "Records that could not be scored", ["reason"])
        self._forms = make.counter(
            "kp_dead_letter_forms", "Records that are not traces, by what their value is", ["form"]
        )
        self._quality = make.histogram(
            "kp_quality_score",
            "Scores of published traces",
            ["domain", "outcome"],
            buckets=[step / 20 for step in range(1, 21)],
        )
        self._dimension = make.histogram(
            "kp_dimension_score",
            "Values of the score dimensions of published traces",
            ["domain", "dimension"],
            buckets=[step / 10 for step in range(1, 11)],
        )
        self._expired = make.counter("kp_expired_outputs", "Outputs older than their topic's retention")
        self._poison_skipped = make.counter(
            "kp_poison_skipped", "Records skipped without an output because every attempt crashed the worker"
        )
        self._redactions = make.counter(
            "kp_redactions", "Contributed traces, by the result of their redaction", ["result"]
        )
        start_at_zero(self._redactions, REDACTION_RESULTS)
        self._traces_of = start_at_zero(traces, OUTCOMES)
        start_at_zero(self._dead_letters, REASONS)
        start_at_zero(self._forms, FORMS)

    def _create_origins(self, make: Makers, fleet: FleetSettings) -> None:
        agents = make.counter("kp_agent_traces", "Published traces by agent", ["agent_id", "outcome"])
        frameworks = make.counter(
            "kp_framework_traces", "Published traces by framework", ["framework", "outcome"]
        )
        self._agent_ids = frozenset(fleet.agent_ids)
        self._framework_names = frozenset(fleet.frameworks)
        for agent_id, decision in product((*fleet.agent_ids, _OTHER), ROUTES):
            agents.labels(agent_id, decision)
        for framework, decision in product((*fleet.frameworks, _OTHER), ROUTES):
            frameworks.labels(framework, decision)
        self._agent_traces_of = children_of(agents)
        self._framework_traces_of = children_of(frameworks)
        self._unprofiled = make.counter(
            "kp_unprofiled_domain_traces", "Published traces whose task domain has no profile in the policy"
        )

    def _create_times(self, make: Makers, budget: float) -> None:
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
        make.gauge("kp_budget_seconds", "Latency budget of a score").set(budget)

    def start_domains(self, policy: Policy) -> None:
        """Create the series of a policy's domains."""
        for domain, profile in policy.profiles.items():
            for decision in ROUTES:
                self._quality.labels(domain, decision)
            for dimension in (*DIMENSIONS, *(["learned"] if profile.learned else [])):
                self._dimension.labels(domain, dimension)

    def admitted(self, waited: float) -> None:
        """Observe the time that a record waited for admission to the embedding queue."""
        self._admission.observe(waited)

    def stage(self, stage: str, seconds: float) -> None:
        """Observe the time that a record spent in a stage."""
        self._stage_of[stage].observe(seconds)

    def scored(self, trace_id: str, seconds: float) -> None:
        """Observe the time from a record's admission to its score."""
        self._scoring.observe(seconds, _exemplar(trace_id))
        if seconds > self._budget:
            self._over_budget.inc()

    def finished(self, outcomes: Mapping[str, int], end_to_end: Iterable[float]) -> None:
        """Count committed outputs by outcome, and observe the seconds from the records' timestamps."""
        for outcome, count in outcomes.items():
            self._traces_of[outcome].inc(count)
        self._end_to_end.labels().observe_all(end_to_end)

    def dead_lettered(self, reasons: Mapping[str, int]) -> None:
        """Count committed dead letters by reason."""
        for reason, count in reasons.items():
            self._dead_letters.labels(reason).inc(count)

    def refused(self, forms: Mapping[str, int]) -> None:
        """Count committed dead letters that are not traces, by the form of their value."""
        for form, count in forms.items():
            self._forms.labels(form).inc(count)

    def published(self, traces: Sequence[PublishedTrace]) -> None:
        """Observe the scores of published traces, and count their origins."""
        agents, frameworks = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        scores = defaultdict[tuple[str, str], list[Score]](list)
        for score, decision, agent_id, framework, _ in traces:
            scores[score.domain, decision].append(score)
            agents[agent_id if agent_id in self._agent_ids else _OTHER, decision] += 1
            frameworks[framework if framework in self._framework_names else _OTHER, decision] += 1
        for labels, decided in scores.items():
            self._observe_scores(*labels, decided)
        for origin, count in agents.items():
            self._agent_traces_of(*origin).inc(count)
        for origin, count in frameworks.items():
            self._framework_traces_of(*origin).inc(count)
        self._unprofiled.inc(sum(not trace.has_profile for trace in traces))

    def _observe_scores(self, domain: str, decision: str, scores: Sequence[Score]) -> None:
        self._quality.labels(domain, decision).observe_all(score.quality_score for score in scores)
        for dimension in DIMENSIONS:
            self._dimension.labels(domain, dimension).observe_all(map(attrgetter(dimension), scores))
        learned = [score.learned for score in scores if score.learned is not None]
        if learned:
            self._dimension.labels(domain, "learned").observe_all(learned)

    def redacted(self, result: str, seconds: float) -> None:
        """Observe a redacted copy, or the reason why there is none."""
        self._redactions.labels(result).inc()
        self.stage("redact", seconds)

    def expired(self) -> None:
        """Count an output that is older than its topic's retention."""
        self._expired.inc()

    def skipped_poison(self) -> None:
        """Count a skipped poison record."""
        self._poison_skipped.inc()


def _exemplar(trace_id: str) -> str | None:
    """Return a trace's id; None for an overlong or non-ASCII id, which would break the page."""
    if len(trace_id) > _MAX_EXEMPLAR or not trace_id.isascii() or not trace_id.isprintable():
        return None
    return trace_id
