"""What another policy would have done with traces that were scored before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from worker.errors import InputError
from worker.policies.records import ScoredRecord
from worker.policy import Policy
from worker.scoring import Decision, Score

Routes = tuple[Decision, Decision]
"""How a trace was routed, and how it is now."""

ROUTES: tuple[Routes, ...] = (
    ("contribute", "contribute"),
    ("contribute", "rejected"),
    ("rejected", "contribute"),
    ("rejected", "rejected"),
)


@dataclass(frozen=True)
class Flip:
    """A trace with another route."""

    record: ScoredRecord
    score: Score

    def as_dict(self) -> dict[str, Any]:
        """Return the scores and routes."""
        before = self.record.score
        return {
            "id": self.record.id,
            "source": self.record.source,
            "domain": self.score.domain,
            "score": {"before": before.quality_score, "after": self.score.quality_score},
            "threshold": {"before": before.threshold, "after": self.score.threshold},
            "decision": {"before": before.decision, "after": self.score.decision},
        }


@dataclass
class Rescored:
    """What a policy does differently, counted record by record.

    Attributes:
        policy: the new one.
        routes: how many traces were routed so and are now, by the new policy's domain.
        flips: the traces with another route.
        rescored: how many traces have another score.
    """

    policy: Policy
    routes: defaultdict[str, Counter[Routes]] = field(default_factory=lambda: defaultdict(Counter))
    flips: list[Flip] = field(default_factory=list)
    rescored: int = 0

    @property
    def traces(self) -> int:
        """How many were counted."""
        return sum(routes.total() for routes in self.routes.values())

    def add(self, record: ScoredRecord) -> Score:
        """Count a record; returns its score under the policy."""
        score = record.under(self.policy)
        self.routes[score.domain][record.score.decision, score.decision] += 1
        self.rescored += score.quality_score != record.score.quality_score
        if score.decision != record.score.decision:
            self.flips.append(Flip(record, score))
        return score

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "policy": self.policy.digest,
            "traces": self.traces,
            "rescored": self.rescored,
            "routes": {
                domain: {f"{before} → {after}": routes[before, after] for before, after in ROUTES}
                for domain, routes in sorted(self.routes.items())
            },
            "flips": [flip.as_dict() for flip in self.flips],
        }


def rescore_all(records: Iterable[ScoredRecord], policy: Policy) -> Rescored:
    """Score records again under a policy.

    Raises:
        InputError: there are no records.
    """
    rescored = Rescored(policy)
    for record in records:
        rescored.add(record)
    if not rescored.traces:
        raise InputError("there are no scored traces to rescore")
    return rescored
