"""Rescoring: the effect that another policy would have had on scored traces."""

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
"""The decisions on a trace before and after."""

ROUTES: tuple[Routes, ...] = (
    ("contribute", "contribute"),
    ("contribute", "rejected"),
    ("rejected", "contribute"),
    ("rejected", "rejected"),
)


@dataclass(frozen=True)
class Flip:
    """A trace with a changed decision."""

    record: ScoredRecord
    score: Score

    def as_dict(self) -> dict[str, Any]:
        """Return scores and decisions as plain JSON."""
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
    """Effects of a new policy, accumulated record by record.

    Attributes:
        policy: the new policy.
        routes: number of traces by the new policy's domain and by their decisions.
        flips: traces with a changed decision.
        rescored: number of traces with a changed score.
    """

    policy: Policy
    routes: defaultdict[str, Counter[Routes]] = field(default_factory=lambda: defaultdict(Counter))
    flips: list[Flip] = field(default_factory=list)
    rescored: int = 0

    @property
    def traces(self) -> int:
        """Number of traces."""
        return sum(routes.total() for routes in self.routes.values())

    def add(self, record: ScoredRecord) -> Score:
        """Count a record and return its score under the policy."""
        score = record.under(self.policy)
        self.routes[score.domain][record.score.decision, score.decision] += 1
        self.rescored += score.quality_score != record.score.quality_score
        if score.decision != record.score.decision:
            self.flips.append(Flip(record, score))
        return score

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
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
    """Rescore records under a policy.

    Raises:
        InputError: there are no records.
    """
    rescored = Rescored(policy)
    for record in records:
        rescored.add(record)
    if not rescored.traces:
        raise InputError("no scored traces to rescore")
    return rescored
