"""Evaluate scores against labels, and detect leaks of the label into the score.

A score that contains the label agrees with it and proves nothing. Every figure is therefore also computed for
each dimension alone, and for the score with one dimension held constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.scoring import Score, ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import CHANCE, Array, Estimate, estimates
from knowledgepulse_worker.tools.policies.labelled_traces import (
    OUTCOME,
    SUPPORT,
    LabelCounts,
    Labelled,
    held_scores,
    leaks_label,
    matched,
)
from knowledgepulse_worker.tools.policies.labels import Labels
from knowledgepulse_worker.tools.policies.thresholds import (
    OperatingPoint,
    operating_points,
    proposed_thresholds,
)
from knowledgepulse_worker.tools.policies.tune import GRID

ALL = "all domains"

ScoreVerdict = Literal["tells apart", "does not tell apart", "points the wrong way", "too few labels"]


@dataclass(frozen=True, kw_only=True)
class DomainEvaluation(LabelCounts):
    """The evaluation of one domain's labelled traces, or of all domains'.

    Attributes:
        score: the AUC of the score; None if all labels are equal.
        alone: the AUC of each dimension alone.
        without: the AUC of the score with each dimension held constant.
        leaks: dimensions that predict the label on their own.
        current: the policy's threshold; None for ALL, which has no common threshold.
        operating: grid thresholds that some but not all traces pass.
        fair: the AUC of the score. If the score contains the label, the dimension that leaks it is held
            constant.
        verdict: the verdict on `fair` and its interval.
        best_f1: the threshold with the highest F1; None unless the score tells the labels apart.
        precise: the threshold with the highest recall at the requested precision; None also if no threshold
            with enough traces on each side reaches that precision.
    """

    score: Estimate | None
    alone: dict[str, Estimate]
    without: dict[str, Estimate]
    leaks: list[str]
    current: OperatingPoint | None
    operating: list[OperatingPoint]
    fair: Estimate | None
    verdict: ScoreVerdict
    best_f1: OperatingPoint | None
    precise: OperatingPoint | None


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a policy's scores against labels.

    Attributes:
        domains: the evaluations by domain name, with ALL last if there are several.
        unmatched: number of labels that match no trace.
        sources: number of labels by source.
    """

    policy: Policy
    precision: float
    domains: dict[str, DomainEvaluation]
    unmatched: int
    unlabelled: int
    sources: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
        return {**asdict(self), "policy": self.policy.digest}


def evaluate(
    records: Sequence[ScoredRecord],
    labels: Labels,
    policy: Policy,
    *,
    precision: float = 0.9,
    min_reward: float = 0.5,
) -> Evaluation:
    """Evaluate a policy's scores against labels; see also :func:`matched`."""
    labelled = matched(records, labels, min_reward)
    parts = labelled.by_domain(policy)
    if len(parts) > 1:
        parts[ALL] = labelled
    return Evaluation(
        policy=policy,
        precision=precision,
        domains={name: _evaluate(name, each, policy, precision) for name, each in parts.items()},
        unmatched=len(labels) - len(labelled.labels),
        unlabelled=len(records) - len(labelled.traces),
        sources=dict(Counter(one.source or "no source" for one in labelled.labels.values()).most_common()),
    )


def _evaluate(name: str, labelled: Labelled, policy: Policy, precision: float) -> DomainEvaluation:
    by_trace = labelled.scores(policy)
    scores = np.array([one.quality_score for one in by_trace])
    score, alone, without = _aucs(by_trace, scores, labelled, policy)
    leaks = [dimension for dimension, auc in alone.items() if leaks_label(auc)]
    # What leaks the label proves nothing.
    derived = [OUTCOME] if without and labelled.equals_success else []
    fair = min((without[dimension] for dimension in (*leaks, *derived)), default=score)
    verdict = _verdict(fair, labelled)
    proposed = proposed_thresholds(scores, labelled, precision) if verdict == "tells apart" else (None, None)
    current = None if name == ALL else policy.profile(name).threshold
    named = (*proposed, current)
    points = operating_points(scores, labelled, [one for one in (*GRID, *named) if one is not None])
    best, precise, in_force = (None if one is None else points[one] for one in named)
    return DomainEvaluation(
        domain=name,
        **labelled.counts,
        score=score,
        alone=alone,
        without=without,
        leaks=leaks,
        current=in_force,
        operating=[points[one] for one in GRID if 0 < points[one].passing < len(scores)],
        fair=fair,
        verdict=verdict,
        best_f1=best,
        precise=precise,
    )


def _verdict(fair: Estimate | None, labelled: Labelled) -> ScoreVerdict:
    if fair is None or not labelled.has(SUPPORT, SUPPORT):
        return "too few labels"
    if fair.low > CHANCE:
        return "tells apart"
    return "points the wrong way" if fair.high < CHANCE else "does not tell apart"


def _aucs(
    by_trace: Sequence[Score], scores: Array, labelled: Labelled, policy: Policy
) -> tuple[Estimate | None, dict[str, Estimate], dict[str, Estimate]]:
    """Return the AUC of the score, of each dimension alone, and of the score with each dimension constant."""
    if not labelled.has(1, 1):
        return None, {}, {}
    alone = [np.array([getattr(one, name) for one in by_trace]) for name in DIMENSIONS]
    held = [held_scores(labelled, policy, name) for name in DIMENSIONS]
    score, *parts = estimates(labelled.kept, [scores, *alone, *held], labelled.groups)
    count = len(DIMENSIONS)
    by_name = [dict(zip(DIMENSIONS, each, strict=True)) for each in (parts[:count], parts[count:])]
    return score, by_name[0], by_name[1]
