"""Whether scores tell what labels tell, and whether they do so by themselves.

A score that contains the answer agrees with it and proves nothing. So each figure stands beside those of the
dimensions alone, and of the score with one dimension held constant.
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
from worker.policies.intervals import Estimate, percentiles, resampled_counts
from worker.policies.labels import Label, Labels
from worker.policies.records import ScoredRecord
from worker.policies.tune import GRID
from worker.policy import Policy, Weights
from worker.scoring import Score, quality_score

with extra("policy"):
    from sklearn.metrics import precision_recall_curve

ALL = "all domains"
DIMENSIONS = tuple(Weights.model_fields)

LEAK_AUC = 0.95
"""A dimension that orders kept before other traces so well, or the other way round, contains the label."""

LEAK_AGREEMENT = 0.99
"""Labels that agree so often with ``metadata.success`` are taken to be made of it."""

LUCK = 0.5
"""The AUC of what knows nothing."""

_BINS = 10

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Operating:
    """What a threshold does.

    Attributes:
        threshold: scores from it on pass.
        passing: how many traces pass.
        precision: the share of those that pass that are worth keeping; None where none passes.
        recall: the share of those worth keeping that pass.
        f1: the harmonic mean of both.
    """

    threshold: float
    passing: int
    precision: float | None
    recall: float
    f1: float


@dataclass(frozen=True)
class ConfidenceBin:
    """Traces whose agents were about equally confident.

    Attributes:
        confidence: on average, in ``outcome.confidence``.
        kept: the share that is worth keeping.
        traces: how many there are.
    """

    confidence: float
    kept: float
    traces: int


@dataclass(frozen=True)
class Calibration:
    """Whether agents are right as often as they say.

    Attributes:
        bins: by confidence.
        error: the expected calibration error: how far a bin's confidence is off, on average over the traces.
        brier: the mean squared difference of confidence and label.
    """

    bins: list[ConfidenceBin]
    error: float
    brier: float


@dataclass(frozen=True)
class Leak:
    """A dimension that predicts the label by itself.

    Attributes:
        dimension: its name.
        alone: the AUC of the dimension alone.
        rest: the AUC of the score with the dimension held constant.
    """

    dimension: str
    alone: Estimate
    rest: Estimate


@dataclass(frozen=True)
class DomainEvaluation:
    """One domain's labelled traces, or all.

    Attributes:
        domain: the profile, or :data:`ALL`.
        traces: how many have a label.
        kept: how many are worth keeping.
        groups: how many independent groups they are of.
        score: the AUC of the score; None where all labels are the same.
        alone: the AUC of each dimension by itself.
        without: the AUC of the score with each dimension held constant.
        agreement: the share of the labels that equal ``metadata.success``.
        leaks: the dimensions that predict the label by themselves.
        current: the policy's threshold; None for all domains, which have no common one.
        operating: the thresholds from 0 to 1 that some but not all traces pass.
        best_f1: the threshold of the largest F1.
        precise: the threshold of the largest recall at the precision that was asked for; None where no
            threshold has that.
        calibration: of the agents' own confidence.
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
    current: Operating | None
    operating: list[Operating]
    best_f1: Operating | None
    precise: Operating | None
    calibration: Calibration


@dataclass(frozen=True)
class Evaluation:
    """What labels say of a policy's scores.

    Attributes:
        policy: under which all traces were scored.
        precision: that was asked for.
        domains: by name; :data:`ALL` comes last where there are several.
        unmatched: how many labels are of no trace that was read.
        unlabelled: how many traces have no label.
        sources: how many labels each source gave.
    """

    policy: Policy
    precision: float
    domains: dict[str, DomainEvaluation]
    unmatched: int
    unlabelled: int
    sources: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {**asdict(self), "policy": self.policy.digest}


@dataclass(frozen=True)
class _Labelled:
    record: ScoredRecord
    score: Score
    label: Label
    kept: bool

    @property
    def group(self) -> str:
        """What is resampled as one: the label's group, else the trace with its repeats."""
        return f"trace {self.label.id}" if self.label.group is None else f"group {self.label.group}"


def evaluate(
    records: Sequence[ScoredRecord],
    labels: Labels,
    policy: Policy,
    *,
    precision: float = 0.9,
    min_reward: float = 0.5,
) -> Evaluation:
    """Compare a policy's scores with labels.

    Args:
        records: scored under any policy.
        labels: by trace id.
        policy: under which they are scored.
        precision: for which a threshold is looked for.
        min_reward: from which on a reward says that a trace is worth keeping.

    Raises:
        InputError: no label matches a trace, or all that do are the same.
    """
    labelled = [
        _Labelled(record, record.under(policy), label, label.is_kept(min_reward))
        for record in records
        if (label := labels.get(record.id)) is not None
    ]
    if not labelled:
        raise InputError(f"none of the {len(labels)} labels is of one of the {len(records)} traces")
    kept = sum(one.kept for one in labelled)
    if kept in (0, len(labelled)):
        said = "worth keeping" if kept else "not worth keeping"
        raise InputError(
            f"all {len(labelled)} labels that match a trace say {said}; evaluation needs some of either kind"
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
    operating = [_operate(kept, scores, threshold) for threshold in GRID]
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
        current=None if name == ALL else _operate(kept, scores, policy.profile(name).threshold),
        operating=[one for one in operating if 0 < one.passing < len(labelled)],
        best_f1=None if best is None else _operate(kept, scores, best),
        precise=None if precise is None else _operate(kept, scores, precise),
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
    """Return the score that a trace has with a dimension held constant."""
    dimensions = replace(score.dimensions, **constant)
    return quality_score(dimensions, score.overrides, policy.profile(score.domain).weights)


def auc(kept: Bools, values: Floats, counts: NDArray[np.int64] | None = None) -> Floats:
    """Return the area under the ROC curve: how often a kept trace has the larger value, ties counting half.

    Args:
        kept: shape (n,).
        values: what orders the traces, shape (n,).
        counts: how often each trace counts in each resample, shape (resamples, n); once each when left out.

    Returns:
        shape (resamples,), not a number where a resample has traces of one kind only; without counts a
        single number.
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
    """Return the threshold of the largest F1, and that of the largest recall at a precision."""
    if not kept.any():
        return None, None
    precisions, recalls, thresholds = precision_recall_curve(kept, scores)
    # The curve ends in a point without a threshold.
    f1 = 2 * precisions * recalls / np.maximum(precisions + recalls, np.finfo(float).tiny)
    precise = thresholds[precisions[:-1] >= precision]
    return float(thresholds[f1[:-1].argmax()]), float(precise.min()) if len(precise) else None


def _operate(kept: Bools, scores: Floats, threshold: float) -> Operating:
    passing = scores >= threshold
    hits = int((passing & kept).sum())
    return Operating(
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
