"""Evaluate scores against labels, and detect leaks of the label into the score.

A score that contains the label agrees with it and proves nothing. Every figure is therefore also computed for
each dimension alone, and for the score with one dimension held constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.errors import InputError
from worker.extras import extra
from worker.policy import Policy, Weights
from worker.scoring import Score, ScoredRecord, quality_score
from worker.tools.policies.intervals import Estimate, percentiles, resampled_counts
from worker.tools.policies.labels import Label, Labels
from worker.tools.policies.tune import GRID

with extra("policy"):
    from sklearn.metrics import precision_recall_curve

ALL = "all domains"
DIMENSIONS = tuple(Weights.model_fields)

LEAK_AUC = 0.95
"""A dimension with this AUC or more, or one minus it or less, contains the label."""

LEAK_AGREEMENT = 0.99
"""Labels that equal ``metadata.success`` in this share of the traces are assumed to be derived from it."""

CHANCE = 0.5
"""The AUC of a random order."""

_BINS = 10

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class OperatingPoint:
    """Precision and recall at a threshold.

    Attributes:
        threshold: the lowest score that passes.
        passing: number of traces that pass.
        precision: share of the passing traces that are worth keeping; None if none passes.
        recall: share of the traces worth keeping that pass.
        f1: harmonic mean of precision and recall.
    """

    threshold: float
    passing: int
    precision: float | None
    recall: float
    f1: float


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
        best_f1: the threshold with the highest F1.
        precise: the threshold with the highest recall at the requested precision; None if no threshold
            reaches that precision.
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
        raise InputError(f"none of the {len(labels)} labels matches one of the {len(records)} traces")
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


def _sources(labels: Iterable[Label]) -> dict[str, int]:
    return dict(Counter(label.source or "no source" for label in labels).most_common())


def _evaluate_domain(
    name: str, labelled: Sequence[_Labelled], policy: Policy, precision: float
) -> DomainEvaluation:
    kept = np.array([one.kept for one in labelled])
    scores = np.array([one.score.quality_score for one in labelled])
    groups = np.unique([one.group for one in labelled], return_inverse=True)[1]
    score, alone, without = _aucs([one.score for one in labelled], kept, groups, policy)
    operating = [_operating_point(kept, scores, threshold) for threshold in GRID]
    best, precise = _thresholds(kept, scores, precision)
    return DomainEvaluation(
        domain=name,
        traces=len(labelled),
        kept=int(kept.sum()),
        groups=int(groups.max()) + 1,
        score=score,
        alone=alone,
        without=without,
        agreement=float(np.mean([one.kept == one.record.success for one in labelled])),
        leaks=[
            Leak(dimension, alone[dimension], without[dimension])
            for dimension in alone
            if not 1 - LEAK_AUC < alone[dimension].value < LEAK_AUC
        ],
        current=None if name == ALL else _operating_point(kept, scores, policy.profile(name).threshold),
        operating=[one for one in operating if 0 < one.passing < len(labelled)],
        best_f1=None if best is None else _operating_point(kept, scores, best),
        precise=None if precise is None else _operating_point(kept, scores, precise),
        calibration=_calibrate(kept, np.array([one.record.confidence for one in labelled])),
    )


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


def _thresholds(kept: Bools, scores: Floats, precision: float) -> tuple[float | None, float | None]:
    """Return the thresholds with the highest F1 and with the highest recall at a precision."""
    if not kept.any():
        return None, None
    precisions, recalls, thresholds = precision_recall_curve(kept, scores)
    # The curve's last point has no threshold.
    f1 = 2 * precisions * recalls / np.maximum(precisions + recalls, np.finfo(float).tiny)
    precise = thresholds[precisions[:-1] >= precision]
    return float(thresholds[f1[:-1].argmax()]), float(precise.min()) if len(precise) else None


def _operating_point(kept: Bools, scores: Floats, threshold: float) -> OperatingPoint:
    passing = scores >= threshold
    hits = int((passing & kept).sum())
    return OperatingPoint(
        threshold=float(threshold),
        passing=int(passing.sum()),
        precision=hits / int(passing.sum()) if passing.any() else None,
        recall=hits / int(kept.sum()) if kept.any() else 0.0,
        f1=2 * hits / int(passing.sum() + kept.sum()) if passing.any() or kept.any() else 0.0,
    )


def _calibrate(kept: Bools, confidence: Floats) -> Calibration:
    number = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    bins = [
        ConfidenceBin(float(confidence[at].mean()), float(kept[at].mean()), int(at.sum()))
        for at in (number == one for one in range(_BINS))
        if at.any()
    ]
    error = sum(one.traces * abs(one.confidence - one.kept) for one in bins) / len(kept)
    return Calibration(bins, error, float(np.mean((confidence - kept) ** 2)))
