"""Evaluate scores against labels, and detect leaks of the label into the score.

A score that contains the label agrees with it and proves nothing. Every figure is therefore also computed for
each dimension alone, and for the score with one dimension held constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.policy import Policy, Weights
from knowledgepulse_worker.scoring import Score, ScoredRecord, quality_score
from knowledgepulse_worker.tools.policies.advice import Advice, advise, usual_lengths
from knowledgepulse_worker.tools.policies.auc import CHANCE, Bools, estimates
from knowledgepulse_worker.tools.policies.intervals import Estimate
from knowledgepulse_worker.tools.policies.labelled import (
    LEAK_AGREEMENT,
    Labelled,
    kept_and_groups,
    leaks_label,
    matched,
)
from knowledgepulse_worker.tools.policies.labels import Label, Labels
from knowledgepulse_worker.tools.policies.operating import (
    SUPPORT,
    LabelledScores,
    OperatingPoint,
    operating_points,
    proposed_thresholds,
)
from knowledgepulse_worker.tools.policies.tune import GRID

ALL = "all domains"
DIMENSIONS = tuple(Weights.model_fields)

Verdict = Literal["tells apart", "does not tell apart", "points the wrong way", "too few labels"]


@dataclass(frozen=True)
class Leak:
    """A dimension that predicts the label on its own.

    Attributes:
        dimension: the dimension's name.
        alone: AUC of the dimension alone.
        rest: AUC of the score with the dimension held constant.
    """

    dimension: str
    alone: Estimate
    rest: Estimate


@dataclass(frozen=True)
class DomainEvaluation:
    """The evaluation of one domain's labelled traces, or of all domains'.

    Attributes:
        domain: the profile's name, or :data:`ALL`.
        traces: number of labelled traces.
        kept: number of traces worth keeping.
        groups: number of independent groups.
        score: AUC of the score; None if all labels are equal.
        alone: AUC of each dimension alone.
        without: AUC of the score with each dimension held constant.
        agreement: share of the labels that equal ``metadata.success``.
        leaks: dimensions that predict the label on their own.
        current: the policy's threshold; None for :data:`ALL`, which has no common threshold.
        operating: grid thresholds that some but not all traces pass.
        fair: AUC of the score, or, if it contains the label, with the dimension that leaks it held constant.
        verdict: what ``fair`` and its interval say.
        best_f1: the threshold with the highest F1; None unless the score tells the labels apart.
        precise: the threshold with the highest recall at the requested precision; None also if no threshold
            with enough traces on each side reaches that precision.
        advice: what cheap features tell of the labels, beside the score.
    """

    domain: str
    traces: int
    kept: int
    groups: int
    score: Estimate | None
    alone: dict[str, Estimate]
    without: dict[str, Estimate]
    agreement: float
    leaks: list[Leak]
    current: OperatingPoint | None
    operating: list[OperatingPoint]
    fair: Estimate | None
    verdict: Verdict
    best_f1: OperatingPoint | None
    precise: OperatingPoint | None
    advice: dict[str, Advice]


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a policy's scores against labels.

    Attributes:
        policy: the policy that all traces are scored under.
        precision: the requested precision.
        domains: the evaluations by domain name, with :data:`ALL` last if there are several.
        unmatched: number of labels that match no trace.
        unlabelled: number of traces without a label.
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
    """Evaluate a policy's scores against labels.

    Args:
        records: scored under any policy.
        labels: by trace id.
        policy: the policy to evaluate.
        precision: the precision to find a threshold for.
        min_reward: the lowest reward of a trace worth keeping.

    Raises:
        InputError: no label matches a trace, or all matching labels are equal.
    """
    labelled = [(one, one.record.under(policy)) for one in matched(records, labels, min_reward)]
    usual = usual_lengths(records)
    names = sorted({score.domain for _, score in labelled})
    domains = {
        name: _evaluate_domain(
            name, [one for one in labelled if one[1].domain == name], policy, precision, usual
        )
        for name in names
    }
    if len(names) > 1:
        domains[ALL] = _evaluate_domain(ALL, labelled, policy, precision, usual)
    found = {one.label.id for one, _ in labelled}
    return Evaluation(
        policy=policy,
        precision=precision,
        domains=domains,
        unmatched=len(labels) - len(found),
        unlabelled=len(records) - len(labelled),
        sources=_sources(labels[one] for one in found),
    )


def _sources(labels: Iterable[Label]) -> dict[str, int]:
    return dict(Counter(label.source or "no source" for label in labels).most_common())


def _evaluate_domain(
    name: str,
    labelled: Sequence[tuple[Labelled, Score]],
    policy: Policy,
    precision: float,
    usual: Mapping[str, float],
) -> DomainEvaluation:
    traces, by_trace = [one for one, _ in labelled], [score for _, score in labelled]
    kept, groups = kept_and_groups(traces)
    score, alone, without = _aucs(by_trace, kept, groups, policy)
    agreement = float(np.mean([one.kept == one.record.success for one in traces]))
    leaks = [
        Leak(dimension, alone[dimension], without[dimension])
        for dimension in alone
        if leaks_label(alone[dimension])
    ]
    fair = _fair(score, without, leaks, agreement)
    verdict = _verdict(fair, kept)
    columns = LabelledScores(
        scores=np.array([one.quality_score for one in by_trace]),
        kept=kept,
        groups=groups,
        grouped=np.array([one.label.group is not None for one in traces]),
    )
    best, precise = proposed_thresholds(columns, precision) if verdict == "tells apart" else (None, None)
    current = None if name == ALL else policy.profile(name).threshold
    points = operating_points(columns, [one for one in (*GRID, best, precise, current) if one is not None])
    return DomainEvaluation(
        domain=name,
        traces=len(labelled),
        kept=int(kept.sum()),
        groups=int(groups.max()) + 1,
        score=score,
        alone=alone,
        without=without,
        agreement=agreement,
        leaks=leaks,
        current=None if current is None else points[current],
        operating=[points[one] for one in GRID if 0 < points[one].passing < len(labelled)],
        fair=fair,
        verdict=verdict,
        best_f1=None if best is None else points[best],
        precise=None if precise is None else points[precise],
        advice=advise(traces, usual),
    )


def _fair(
    score: Estimate | None, without: Mapping[str, Estimate], leaks: Sequence[Leak], agreement: float
) -> Estimate | None:
    """Return the AUC to judge the score by: what leaks the label proves nothing."""
    rests = [leak.rest for leak in leaks]
    if without and agreement >= LEAK_AGREEMENT:
        rests.append(without["outcome_confidence"])
    return min(rests, default=score)


def _verdict(fair: Estimate | None, kept: Bools) -> Verdict:
    if fair is None or min(kept.sum(), (~kept).sum()) < SUPPORT:
        return "too few labels"
    if fair.low > CHANCE:
        return "tells apart"
    return "points the wrong way" if fair.high < CHANCE else "does not tell apart"


def _aucs(
    scores: Sequence[Score], kept: Bools, groups: NDArray[np.intp], policy: Policy
) -> tuple[Estimate | None, dict[str, Estimate], dict[str, Estimate]]:
    """Return the AUC of the score, of each dimension alone, and of the score without each dimension."""
    if kept.all() or not kept.any():
        return None, {}, {}
    dimensions = np.array([astuple(score.dimensions) for score in scores])
    held = [
        [_held(score, {name: mean}, policy) for score in scores]
        for name, mean in zip(DIMENSIONS, dimensions.mean(axis=0), strict=True)
    ]
    columns = [np.array([score.quality_score for score in scores]), *dimensions.T, *np.array(held)]
    score, *parts = estimates(kept, columns, groups)
    count = len(DIMENSIONS)
    return (
        score,
        dict(zip(DIMENSIONS, parts[:count], strict=True)),
        dict(zip(DIMENSIONS, parts[count:], strict=True)),
    )


def _held(score: Score, constant: Mapping[str, float], policy: Policy) -> float:
    """Return a trace's score with a dimension held constant."""
    dimensions = replace(score.dimensions, **constant)
    return quality_score(dimensions, score.overrides, policy.profile(score.domain).weights)
