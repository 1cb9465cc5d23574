"""Evaluate scores against labels, and detect leaks of the label into the score.

A score that contains the label agrees with it and proves nothing. Every figure is therefore also computed for
each dimension alone, and for the score with one dimension held constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, Literal

import numpy as np

from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.scoring import Score, ScoredRecord, quality_score
from knowledgepulse_worker.tools.policies.advice import Advice, advise, usual_lengths
from knowledgepulse_worker.tools.policies.auc import CHANCE, estimates
from knowledgepulse_worker.tools.policies.intervals import Estimate, Floats
from knowledgepulse_worker.tools.policies.labelled import (
    LEAK_AGREEMENT,
    Columns,
    LabelCounts,
    Labelled,
    by_domain,
    columns_of,
    leaks_label,
    matched,
)
from knowledgepulse_worker.tools.policies.labels import Labels
from knowledgepulse_worker.tools.policies.operating import (
    SUPPORT,
    OperatingPoint,
    operating_points,
    proposed_thresholds,
)
from knowledgepulse_worker.tools.policies.tune import GRID

ALL = "all domains"

Verdict = Literal["tells apart", "does not tell apart", "points the wrong way", "too few labels"]


@dataclass(frozen=True)
class Leak:
    """A dimension that predicts the label on its own."""

    dimension: str
    alone: Estimate  # AUC of the dimension alone
    rest: Estimate  # AUC of the score with the dimension held constant


@dataclass(frozen=True, kw_only=True)
class DomainEvaluation(LabelCounts):
    """The evaluation of one domain's labelled traces, or of all domains'."""

    score: Estimate | None  # AUC of the score; None if all labels are equal
    alone: dict[str, Estimate]  # AUC of each dimension alone
    without: dict[str, Estimate]  # AUC of the score with each dimension held constant
    leaks: list[Leak]  # dimensions that predict the label on their own
    current: OperatingPoint | None  # the policy's threshold; None for ALL, which has no common threshold
    operating: list[OperatingPoint]  # grid thresholds that some but not all traces pass
    # AUC of the score, or, if it contains the label, with the dimension that leaks it held constant
    fair: Estimate | None
    verdict: Verdict  # what `fair` and its interval say
    # the threshold with the highest F1; None unless the score tells the labels apart
    best_f1: OperatingPoint | None
    # the threshold with the highest recall at the requested precision; None also if no threshold with enough
    # traces on each side reaches that precision
    precise: OperatingPoint | None
    advice: dict[str, Advice]  # what cheap features tell of the labels, beside the score


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a policy's scores against labels."""

    policy: Policy  # the policy that all traces are scored under
    precision: float
    domains: dict[str, DomainEvaluation]  # the evaluations by domain name, with ALL last if there are several
    unmatched: int  # number of labels that match no trace
    unlabelled: int
    sources: dict[str, int]  # number of labels by source

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
    """Evaluate a policy's scores against labels.

    Raises:
        InputError: no label matches a trace, or all matching labels are equal.
    """
    labelled = matched(records, labels, min_reward)
    usual = usual_lengths(records)
    parts = by_domain(labelled, policy)
    if len(parts) > 1:
        parts[ALL] = labelled
    found = {one.label.id for one in labelled}
    return Evaluation(
        policy=policy,
        precision=precision,
        domains={
            name: _evaluate_domain(name, each, policy, precision, usual) for name, each in parts.items()
        },
        unmatched=len(labels) - len(found),
        unlabelled=len(records) - len(labelled),
        sources=dict(Counter(labels[one].source or "no source" for one in found).most_common()),
    )


def _evaluate_domain(
    name: str, labelled: Sequence[Labelled], policy: Policy, precision: float, usual: Mapping[str, float]
) -> DomainEvaluation:
    columns, by_trace = columns_of(labelled), [one.record.under(policy) for one in labelled]
    scores = np.array([one.quality_score for one in by_trace])
    score, alone, without = _aucs(by_trace, scores, columns, policy)
    leaks = [Leak(dimension, auc, without[dimension]) for dimension, auc in alone.items() if leaks_label(auc)]
    # What leaks the label proves nothing.
    rests = [leak.rest for leak in leaks]
    if without and columns.succeeded.mean() >= LEAK_AGREEMENT:
        rests.append(without["outcome_confidence"])
    fair = min(rests, default=score)
    verdict = _verdict(fair, columns)
    proposed = proposed_thresholds(scores, columns, precision) if verdict == "tells apart" else (None, None)
    current = None if name == ALL else policy.profile(name).threshold
    named = (*proposed, current)
    points = operating_points(scores, columns, [one for one in (*GRID, *named) if one is not None])
    best, precise, in_force = (None if one is None else points[one] for one in named)
    return DomainEvaluation(
        domain=name,
        **columns.counts,
        score=score,
        alone=alone,
        without=without,
        leaks=leaks,
        current=in_force,
        operating=[points[one] for one in GRID if 0 < points[one].passing < len(labelled)],
        fair=fair,
        verdict=verdict,
        best_f1=best,
        precise=precise,
        advice=advise(labelled, usual),
    )


def _verdict(fair: Estimate | None, columns: Columns) -> Verdict:
    if fair is None or columns.fewer < SUPPORT:
        return "too few labels"
    if fair.low > CHANCE:
        return "tells apart"
    return "points the wrong way" if fair.high < CHANCE else "does not tell apart"


def _aucs(
    by_trace: Sequence[Score], scores: Floats, columns: Columns, policy: Policy
) -> tuple[Estimate | None, dict[str, Estimate], dict[str, Estimate]]:
    """Return the AUC of the score, of each dimension alone, and of the score with each dimension constant."""
    if not columns.fewer:
        return None, {}, {}
    dimensions = np.array([astuple(one.dimensions) for one in by_trace])
    held = np.empty_like(dimensions)
    for at, (name, mean) in enumerate(zip(DIMENSIONS, dimensions.mean(axis=0), strict=True)):
        for number, one in enumerate(by_trace):
            constant = replace(one.dimensions, **{name: mean})
            held[number, at] = quality_score(constant, one.overrides, policy.profile(one.domain).weights)
    score, *parts = estimates(columns.kept, [scores, *dimensions.T, *held.T], columns.groups)
    count = len(DIMENSIONS)
    alone, without = (dict(zip(DIMENSIONS, each, strict=True)) for each in (parts[:count], parts[count:]))
    return score, alone, without
