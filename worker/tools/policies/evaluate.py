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

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy, Weights
from knowledgepulse_worker.scoring import Score, ScoredRecord, quality_score
from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.policies.intervals import Estimate, percentiles, resampled_counts
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

LEAK_AUC = 0.95
"""A dimension with this AUC or more, or one minus it or less, contains the label."""

LEAK_AGREEMENT = 0.99
"""Labels that equal ``metadata.success`` in this share of the traces are assumed to be derived from it."""

CHANCE = 0.5
"""The AUC of a random order."""

Verdict = Literal["tells apart", "does not tell apart", "points the wrong way", "too few labels"]

_BINS = 10

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ConfidenceBin:
    """Traces with similar ``outcome.confidence``.

    Attributes:
        confidence: mean confidence.
        kept: share of the traces worth keeping.
        traces: number of traces.
    """

    confidence: float
    kept: float
    traces: int


@dataclass(frozen=True)
class Calibration:
    """Calibration of the agents' confidence.

    Attributes:
        bins: bins of confidence.
        error: expected calibration error: mean difference of a bin's confidence and share, over the traces.
        brier: mean squared difference of confidence and label.
    """

    bins: list[ConfidenceBin]
    error: float
    brier: float


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
        calibration: calibration of the agents' confidence.
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
    calibration: Calibration


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


@dataclass(frozen=True)
class _Labelled:
    record: ScoredRecord
    score: Score
    label: Label
    kept: bool

    @property
    def group(self) -> str:
        """The unit of resampling: the label's group, or else the trace with its repeats."""
        return f"trace {self.label.id}" if self.label.group is None else f"group {self.label.group}"


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
    labelled = [
        _Labelled(record, record.under(policy), label, label.is_kept(min_reward))
        for record in records
        if (label := labels.get(record.id)) is not None
    ]
    if not labelled:
        raise InputError(_no_match(records, labels))
    kept = sum(one.kept for one in labelled)
    if kept in (0, len(labelled)):
        verdict = "worth keeping" if kept else "not worth keeping"
        raise InputError(
            f"all {len(labelled)} labels that match a trace say {verdict}; an evaluation needs both kinds"
        )
    names = sorted({one.score.domain for one in labelled})
    domains = {
        name: _evaluate_domain(name, [one for one in labelled if one.score.domain == name], policy, precision)
        for name in names
    }
    if len(names) > 1:
        domains[ALL] = _evaluate_domain(ALL, labelled, policy, precision)
    matched = {one.label.id for one in labelled}
    return Evaluation(
        policy=policy,
        precision=precision,
        domains=domains,
        unmatched=len(labels) - len(matched),
        unlabelled=len(records) - len(labelled),
        sources=_sources(labels[one] for one in matched),
    )


def _no_match(records: Sequence[ScoredRecord], labels: Labels) -> str:
    known, given = records[0].id, next(iter(labels))
    return (
        f"none of the {len(labels)} labels matches one of the {len(records)} traces: a label's id is that of "
        f"the trace, such as {printable(known)}, or of its run, metadata.native_id; not {printable(given)}"
    )


def _sources(labels: Iterable[Label]) -> dict[str, int]:
    return dict(Counter(label.source or "no source" for label in labels).most_common())


def _evaluate_domain(
    name: str, labelled: Sequence[_Labelled], policy: Policy, precision: float
) -> DomainEvaluation:
    kept = np.array([one.kept for one in labelled])
    scores = np.array([one.score.quality_score for one in labelled])
    groups = np.unique([one.group for one in labelled], return_inverse=True)[1]
    score, alone, without = _aucs([one.score for one in labelled], kept, groups, policy)
    agreement = float(np.mean([one.kept == one.record.success for one in labelled]))
    leaks = [
        Leak(dimension, alone[dimension], without[dimension])
        for dimension in alone
        if not 1 - LEAK_AUC < alone[dimension].value < LEAK_AUC
    ]
    fair = _fair(score, without, leaks, agreement)
    verdict = _verdict(fair, kept)
    columns = LabelledScores(
        scores=scores,
        novelty=np.array([one.score.novelty for one in labelled]),
        kept=kept,
        groups=groups,
        grouped=np.array([one.label.group is not None for one in labelled]),
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
        calibration=_calibrate(kept, np.array([one.record.confidence for one in labelled])),
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
    resampled = np.hstack(
        [[auc(kept, values, counts) for values in columns] for counts in resampled_counts(groups)]
    )
    score, *parts = [
        percentiles(float(auc(kept, values)), areas) for values, areas in zip(columns, resampled, strict=True)
    ]
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


def auc(kept: Bools, values: Floats, counts: NDArray[np.int64] | None = None) -> Floats:
    """Return the area under the ROC curve; ties count half.

    Args:
        kept: whether each trace is worth keeping, shape (n,).
        values: the values that rank the traces, shape (n,).
        counts: number of draws of each trace in each resample, shape (resamples, n); by default, every trace
            once.

    Returns:
        Shape (resamples,), NaN for resamples of only one kind of trace; a single number without counts.
    """
    counted = np.ones((1, len(kept)), dtype=np.int64) if counts is None else counts
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(values[order]) > 0])
    ordered = np.take(counted, order, axis=1)
    positive = np.add.reduceat(ordered * kept[order], starts, axis=1)
    negative = np.add.reduceat(ordered, starts, axis=1) - positive
    below = np.cumsum(negative, axis=1) - negative / 2
    pairs = (positive.sum(axis=1) * negative.sum(axis=1)).astype(np.float64)
    pairs[pairs == 0] = np.nan
    areas: Floats = (positive * below).sum(axis=1) / pairs
    return areas[0] if counts is None else areas


def _calibrate(kept: Bools, confidence: Floats) -> Calibration:
    number = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    bins = [
        ConfidenceBin(float(confidence[at].mean()), float(kept[at].mean()), int(at.sum()))
        for at in (number == one for one in range(_BINS))
        if at.any()
    ]
    error = sum(one.traces * abs(one.confidence - one.kept) for one in bins) / len(kept)
    return Calibration(bins, error, float(np.mean((confidence - kept) ** 2)))
