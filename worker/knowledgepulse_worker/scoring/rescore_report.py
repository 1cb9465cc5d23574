"""Rescore traces: the effect that another policy would have had on their decisions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Generic, TypeVar

import msgspec

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import ROUTES, Decision, Policy
from knowledgepulse_worker.scoring.dimensions import Dimensions
from knowledgepulse_worker.scoring.rescorer import Rescorer
from knowledgepulse_worker.scoring.score import Score
from knowledgepulse_worker.scoring.scored_record import ScoredRecord

Value = TypeVar("Value")

DecisionPair = tuple[Decision, Decision]
"""The decisions on a trace before and after."""

DECISION_PAIRS: tuple[DecisionPair, ...] = tuple(product(ROUTES, ROUTES))


class Change(msgspec.Struct, Generic[Value], frozen=True):
    """A value before and after."""

    before: Value
    after: Value


class FlipFigures(msgspec.Struct, frozen=True):
    """A trace with a changed decision, as JSON has it; the id is None where content is hidden."""

    id: str | None
    source: str
    domain: str
    dimensions: Dimensions
    score: Change[float]
    threshold: Change[float]
    decision: Change[Decision]


class RescoreFigures(msgspec.Struct, frozen=True):
    """The effects of a new policy, as JSON has them.

    Attributes:
        policy: the digest of the new policy.
        traces: the number of traces.
        rescored: the number of traces with a changed score.
        routes: the number of traces by domain and by their decisions, such as ``contribute → rejected``.
        flips: the traces with a changed decision.
    """

    policy: str
    traces: int
    rescored: int
    routes: Mapping[str, Mapping[str, int]]
    flips: Sequence[FlipFigures]


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

    @property
    def figures(self) -> FlipFigures:
        """The dimensions, the scores and the decisions."""
        before, after = self.before, self.after
        return FlipFigures(
            self.id,
            self.source,
            after.domain,
            after.dimensions,
            Change(before.quality_score, after.quality_score),
            Change(before.threshold, after.threshold),
            Change(before.decision, after.decision),
        )


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

    @property
    def figures(self) -> RescoreFigures:
        """The report as JSON has it."""
        return RescoreFigures(
            self.policy.digest,
            self.traces,
            self.rescored,
            {
                domain: {f"{before} → {after}": routes[before, after] for before, after in DECISION_PAIRS}
                for domain, routes in sorted(self.routes.items())
            },
            [flip.figures for flip in self.flips],
        )


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
