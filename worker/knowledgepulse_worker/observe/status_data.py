"""The structure of the status page's data: the members of ``/api/status``.

Where content is hidden, what a producer wrote is None, and only names from the settings are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_schemas.trace import Ending
from knowledgepulse_worker.observe.evaluation import LabelEvaluation
from knowledgepulse_worker.observe.recent import UnreadOffsetReason
from knowledgepulse_worker.scoring import Explanation, RescoreFigures
from knowledgepulse_worker.verdict import ShownVerdict


class ReplacedOffsets(msgspec.Struct, frozen=True):
    """Offsets that are scored again."""

    partition: int
    first: int
    offsets: int
    at: float


class SkippedOffsets(msgspec.Struct, frozen=True):
    """Offsets that no worker reads."""

    partition: int
    first: int
    offsets: int
    reason: UnreadOffsetReason
    at: float


class AboutWorker(msgspec.Struct, frozen=True):
    """The worker and its process."""

    host: str
    process: int
    brokers: str
    group: str
    topics: Mapping[str, str | None]
    model: str | None
    precision: str | None
    device: str | None
    policy: str | None
    policy_since: float
    budget_seconds: float
    embedding_pass_seconds: float | None
    runbook: str | None
    restarts: int
    last_end: str | None
    versions: Mapping[str, str]


class LatestLetters(msgspec.Struct, frozen=True):
    """The dead letters of the last minutes."""

    seconds: int
    by_reason: Mapping[str, int]


class Outcomes(msgspec.Struct, frozen=True):
    """Outputs by outcome: in all, and in each of the last seconds."""

    total: Mapping[str, int]
    rate: float
    per_second: Mapping[str, Sequence[int]]
    last_output: float | None
    dead_letters: LatestLetters


class DomainScores(msgspec.Struct):
    """The last scores of a domain, and the rule that decides on them."""

    threshold: float
    share: float | None
    values: list[float] = msgspec.field(default_factory=list)
    passes: list[bool] = msgspec.field(default_factory=list)


class Scores(msgspec.Struct, frozen=True):
    """The last scores by domain, at most ``limit`` in all."""

    limit: int
    domains: Mapping[str, DomainScores]


class NamedTraces(msgspec.Struct, frozen=True):
    """The number of traces of a domain."""

    name: str
    traces: int


class Unprofiled(msgspec.Struct, frozen=True):
    """Traces whose domain has no profile, and the most frequent such domains."""

    traces: int
    named: Sequence[NamedTraces]


class NamedDecisions(msgspec.Struct, frozen=True):
    """The traces of an agent or a framework, and those kept; the name is None for traces without one."""

    name: str | None
    traces: int
    contributed: int


class OtherDecisions(msgspec.Struct, frozen=True):
    """All other traces, and those kept."""

    traces: int
    contributed: int


class Breakdown(msgspec.Struct, frozen=True):
    """Decisions by the most frequent names, and on all other traces."""

    named: Sequence[NamedDecisions]
    other: OtherDecisions


class Fleet(msgspec.Struct, frozen=True):
    """The origins of the last traces, at most ``limit``."""

    limit: int
    agents: Breakdown
    frameworks: Breakdown


class Quantiles(msgspec.Struct, frozen=True):
    """Quantiles of times in seconds; None without any."""

    count: int
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class ScoringTimes(msgspec.Struct, frozen=True):
    """The times from admission to score, and how many exceeded the budget."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None
    over_budget: int


class Latency(msgspec.Struct, frozen=True):
    """The times of the last traces."""

    scoring: ScoringTimes
    end_to_end: Quantiles


class Transactions(msgspec.Struct, frozen=True):
    """The committed transactions of the last seconds: per second, and by what their begins waited for."""

    per_second: float
    waited_for: Mapping[str, int]


class InFlight(msgspec.Struct, frozen=True):
    """The records that are taken and not committed, and their limit."""

    records: int
    limit: int


class OwnedPartition(msgspec.Struct, frozen=True):
    """A partition that the worker owns; None for what is not known yet."""

    partition: int
    lag: int | None
    vectors: int | None
    recovering: int | None
    last_commit: float | None


class Partitions(msgspec.Struct, frozen=True):
    """The raw topic's partitions."""

    topic_count: int
    owned_count: int
    owned: Sequence[OwnedPartition]


class TraceDetails(msgspec.Struct, frozen=True):
    """A published trace; the score has the members of the header ``kp-score``.

    How its run ended, and whether somebody judged it, are None if the trace does not tell it.
    """

    source: str
    at: float
    trace_id: str | None
    objective: str | None
    task_domain: str | None
    ending: Ending | None
    judged: bool | None
    policy: str | None
    score: Mapping[str, Any]
    similarity: str | None
    effects: Mapping[str, str]
    explanation: Explanation | None


class LetterDetails(msgspec.Struct, frozen=True):
    """A dead letter; the score has the members of the header ``kp-score``."""

    source: str
    at: float
    trace_id: str | None
    objective: str | None
    score: Mapping[str, Any] | None
    reason: Reason
    exception: str
    message: str | None


class Rules(msgspec.Struct, frozen=True):
    """The rules of a domain under both policies: each its share, or else its threshold."""

    policy: Mapping[str, float]
    shadow: Mapping[str, float]


class ShadowFigures(RescoreFigures, frozen=True):
    """The effects of the shadow policy, the newest flip first, with the rules of the domains."""

    rules: Mapping[str, Rules]


class StatusData(msgspec.Struct, frozen=True):
    """The status of a worker; ``traces`` has the latest of each route by its participle."""

    at: float
    up_seconds: float
    before_restart: float | None
    content_shown: bool
    verdict: ShownVerdict
    truncations: Sequence[ReplacedOffsets]
    skips: Sequence[SkippedOffsets]
    worker: AboutWorker
    outcomes: Outcomes
    scores: Scores
    unprofiled: Unprofiled
    shadow: ShadowFigures | None
    fleet: Fleet
    registry: Mapping[str, int] | None
    evaluation: LabelEvaluation | None
    latency: Latency
    transactions: Transactions
    in_flight: InFlight
    partitions: Partitions
    traces: Mapping[str, Sequence[TraceDetails]]
    dead_letters: Sequence[LetterDetails]

    def members(self) -> dict[str, Any]:
        """Return the members as JSON has them: those of ``traces`` stand in its place."""
        members: dict[str, Any] = {}
        for name, value in msgspec.structs.asdict(self).items():
            members |= value if name == "traces" else {name: value}
        return members
