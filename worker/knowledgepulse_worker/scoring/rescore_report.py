"""Rescore traces: the effect that another policy would have had on their decisions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, MutableSequence
from dataclasses import asdict, dataclass, field
from typing import Any

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring.rescorer import Rescorer
from knowledgepulse_worker.scoring.score import Decision, Score
from knowledgepulse_worker.scoring.scored_record import ScoredRecord

DecisionPair = tuple[Decision, Decision]
"""The decisions on a trace before and after."""

DECISION_PAIRS: tuple[DecisionPair, ...] = (
    ("contribute", "contribute"),
    ("contribute", "rejected"),
    ("rejected", "contribute"),
    ("rejected", "rejected"),
)


@dataclass(frozen=True, slots=True)
class DecisionFlip:
    """A trace with a changed decision.

    Attributes:
        source: ``topic/partition/offset`` of the raw record, or ``file:line``.
        id: the trace's id.
        before: the recorded score.
        after: the score under the new policy.
    """

    source: str
    id: str
    before: Score
    after: Score

    def as_dict(self) -> dict[str, Any]:
        """Return dimensions, scores and decisions as plain JSON."""
        before, after = self.before, self.after
        return {
            "id": self.id,
            "source": self.source,
            "domain": after.domain,
            "dimensions": asdict(after.dimensions),
            "score": {"before": before.quality_score, "after": after.quality_score},
            "threshold": {"before": before.threshold, "after": after.threshold},
            "decision": {"before": before.decision, "after": after.decision},
        }


@dataclass
class RescoreReport:
    """Effects of a new policy, accumulated record by record.

    Attributes:
        policy: the new policy.
        flips: traces with a changed decision, in order; a bounded deque keeps only the last ones.
        routes: number of traces by the new policy's domain and by their decisions.
        rescored: number of traces with a changed score.
    """

    policy: Policy
    flips: MutableSequence[DecisionFlip] = field(default_factory=list)
    routes: defaultdict[str, Counter[DecisionPair]] = field(default_factory=lambda: defaultdict(Counter))
    rescored: int = 0

    def __post_init__(self) -> None:
        self._rescorer = Rescorer(self.policy)

    @property
    def traces(self) -> int:
        """Number of traces."""
        return sum(routes.total() for routes in self.routes.values())

    def add(self, record: ScoredRecord, score: Score | None = None) -> Score:
        """Count a record and return its score under the policy.

        ``score``: the score under the policy; if it is None, the record must be the next of its partition.
        """
        score = score or self._rescorer.score(record)
        self.routes[score.domain][record.score.decision, score.decision] += 1
        self.rescored += score.quality_score != record.score.quality_score
        if score.decision != record.score.decision:
            self.flips.append(DecisionFlip(record.source, record.id, record.score, score))
        return score

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
        return {
            "policy": self.policy.digest,
            "traces": self.traces,
            "rescored": self.rescored,
            "routes": {
                domain: {f"{before} → {after}": routes[before, after] for before, after in DECISION_PAIRS}
                for domain, routes in sorted(self.routes.items())
            },
            "flips": [flip.as_dict() for flip in self.flips],
        }


def rescore_all(records: Iterable[ScoredRecord], policy: Policy) -> RescoreReport:
    """Rescore records under a policy, in the order of the offsets of their partitions.

    Raises:
        InputError: there are no records.
    """
    rescored = RescoreReport(policy)
    for record in sorted(records, key=lambda record: record.offset):
        rescored.add(record)
    if not rescored.traces:
        raise InputError("no scored traces to rescore")
    return rescored
