"""Evaluate scores against labels, compare policies on them, and detect leaks of the label into the score.

A score that contains the label agrees with it and proves nothing. Every figure is therefore also computed for
each dimension alone, and for the score with one dimension held constant. Traces that a learned value was
fitted to prove nothing either, and are left out.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from knowledgepulse_curator.fitting import logistic
from knowledgepulse_curator.fitting.labelled_traces import (
    OUTCOME_DIMENSION,
    LabelCounts,
    LabelledTraces,
    held_scores,
    leaks_label,
    matched,
)
from knowledgepulse_curator.fitting.length import AgainstLength, against_length, length_odds
from knowledgepulse_curator.labels.labels import MIN_SUPPORT, Labels
from knowledgepulse_worker.policy import DIMENSIONS, Policy, Profile
from knowledgepulse_worker.scoring import NoFactsError, Score, ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import (
    CHANCE_AUC,
    Array,
    Estimate,
    areas,
    estimates,
    known,
    percentiles,
    precisions,
    ratios,
)
from knowledgepulse_worker.tools.policies.share_effects import Repeats, repeats
from knowledgepulse_worker.tools.policies.tune import THRESHOLD_GRID, rounded_threshold

ALL_DOMAINS = "all domains"

FIGURES = ("AUC", "precision", "recall", "passing")
"""``passing`` is the share of all traces that pass. The precision is None if no trace passes."""

Figures = dict[str, Estimate | None]


@dataclass(frozen=True)
class LeftOutLabels:
    """The labels of a domain that its learned value was fitted to.

    Attributes:
        labels: their number; None if the policy does not record which they were, and none are left out.
        of: number of all labels of the domain.
        on: the date of the fit.
        auc: the AUC on traces that the value was not fitted to, as the fit found it.
    """

    labels: int | None
    of: int
    on: str
    auc: Estimate


ScoreVerdict = Literal["tells apart", "does not tell apart", "points the wrong way", "too few labels"]


@dataclass(frozen=True)
class OperatingPoint:
    """Precision and recall at a threshold.

    Attributes:
        threshold: the lowest score that passes; of a share, the share.
        precision: share of the passing traces that are worth keeping; None if none passes.
    """

    threshold: float
    passing: int
    precision: Estimate | None
    recall: float
    f1: float


@dataclass(frozen=True, kw_only=True)
class DomainEvaluation(LabelCounts):
    """The evaluation of one domain's labelled traces, or of all domains'.

    Attributes:
        score: the AUC of the score; None if all labels are equal.
        alone: the AUC of each dimension alone.
        without: the AUC of the score with each dimension held constant.
        leaks: dimensions that predict the label on their own.
        current: the policy's threshold; None for a share, and for all domains together.
        share: what passes by the policy's share; None without one.
        repeats: what lowest novelties would withhold.
        operating: grid thresholds that some but not all traces pass.
        length: the score, as in `fair`, against the length alone; None with too few labels, or for traces
            that an earlier release scored.
        fair: the AUC of the score. If the score contains the label, the dimension that leaks it is held
            constant.
        verdict: the verdict on `fair` and its interval.
        best_f1: the threshold with the highest F1; None unless the score tells the labels apart.
    """

    score: Estimate | None
    alone: dict[str, Estimate]
    without: dict[str, Estimate]
    leaks: list[str]
    current: OperatingPoint | None
    share: OperatingPoint | None
    repeats: list[Repeats]
    operating: list[OperatingPoint]
    length: AgainstLength | None
    fair: Estimate | None
    verdict: ScoreVerdict
    best_f1: OperatingPoint | None


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a policy's scores against labels.

    Attributes:
        policy: the policy's digest.
        domains: the evaluations by domain name, with all domains together last if there are several.
        fitted: by domain, the labels that the policy's learned value was fitted to.
        unmatched: number of labels that match no trace.
        sources: number of labels by source.
    """

    policy: str
    domains: dict[str, DomainEvaluation]
    fitted: dict[str, LeftOutLabels]
    unmatched: int
    unlabelled: int
    sources: dict[str, int]


@dataclass(frozen=True)
class PolicyComparison:
    """The comparison of several policies on the labels of a domain.

    Attributes:
        domain: the profile's name in the first policy.
        held: whether outcome confidence is held constant for the AUC, as labels equal `metadata.success`.
        left_out: number of labels that are left out, since one of the policies was fitted to them.
        policies: the values of :data:`FIGURES` by the policies' digests; empty if too few labels remain.
        differences: the figures of each later policy minus those of the first.
    """

    domain: str
    traces: int
    held: bool
    left_out: int
    policies: dict[str, Figures]
    differences: dict[str, Figures]


def evaluate(
    records: Sequence[ScoredRecord],
    labels: Labels,
    policy: Policy,
    *,
    min_reward: float = 0.5,
) -> Evaluation:
    """Evaluate a policy's scores against labels, if there are any; see also :func:`matched`."""
    if not labels:
        return Evaluation(policy.digest, {}, {}, 0, len(records), {})
    labelled = matched(records, labels, min_reward)
    judged = labelled.only(~labelled.fitted_to(policy))
    parts = judged.by_domain(policy) if judged else {}
    if judged and len(parts) > 1:
        parts[ALL_DOMAINS] = judged
    left_out = {name: _left_out(name, part, policy) for name, part in labelled.by_domain(policy).items()}
    return Evaluation(
        policy=policy.digest,
        domains={name: _evaluate(name, part, policy) for name, part in parts.items()},
        fitted={name: fitted for name, fitted in left_out.items() if fitted},
        unmatched=len(labels) - len(labelled.labels),
        unlabelled=len(records) - len(labelled.traces),
        sources=dict(
            Counter(label.source or "no source" for label in labelled.labels.values()).most_common()
        ),
    )


def _left_out(name: str, labelled: LabelledTraces, policy: Policy) -> LeftOutLabels | None:
    learned = policy.profile(name).learned
    if learned is None or (fitted := learned.fitted) is None:
        return None
    labels = None if fitted.ids is None else int(labelled.fitted_to(policy).sum())
    return LeftOutLabels(labels, len(labelled.traces), fitted.on, Estimate(*fitted.auc))


def _evaluate(name: str, labelled: LabelledTraces, policy: Policy) -> DomainEvaluation:
    by_trace = labelled.scores(policy)
    scores = np.array([score.quality_score for score in by_trace])
    score, alone, without = _aucs(by_trace, scores, labelled, policy)
    leaks = [dimension for dimension, auc in alone.items() if leaks_label(auc.value)]
    # What leaks the label proves nothing.
    derived = [OUTCOME_DIMENSION] if without and labelled.equals_success else []
    constant = min((*leaks, *derived), key=without.__getitem__, default=None)
    fair = without[constant] if constant else score
    verdict = _verdict(fair, labelled)
    proposed = best_f1_threshold(scores, labelled) if verdict == "tells apart" else None
    profile = None if name == ALL_DOMAINS else policy.profile(name)
    current = None if profile is None or profile.share is not None else profile.threshold
    named = (proposed, current)
    points = operating_points(
        scores, labelled, [threshold for threshold in (*THRESHOLD_GRID, *named) if threshold is not None]
    )
    best, in_force = (None if threshold is None else points[threshold] for threshold in named)
    return DomainEvaluation(
        domain=name,
        **labelled.counts,
        score=score,
        alone=alone,
        without=without,
        leaks=leaks,
        current=in_force,
        share=_decided(profile, by_trace, labelled),
        repeats=repeats((score.novelty for score in by_trace), labelled.kept.tolist()),
        operating=[
            points[threshold] for threshold in THRESHOLD_GRID if 0 < points[threshold].passing < len(scores)
        ],
        length=None if verdict == "too few labels" else _length(labelled, policy, constant),
        fair=fair,
        verdict=verdict,
        best_f1=best,
    )


def _verdict(fair: Estimate | None, labelled: LabelledTraces) -> ScoreVerdict:
    if fair is None or not labelled.has(MIN_SUPPORT, MIN_SUPPORT):
        return "too few labels"
    if fair.low > CHANCE_AUC:
        return "tells apart"
    return "points the wrong way" if fair.high < CHANCE_AUC else "does not tell apart"


def _length(labelled: LabelledTraces, policy: Policy, constant: str | None) -> AgainstLength | None:
    try:
        values = logistic.values_of(labelled.records)
    except NoFactsError:
        return None
    kept, groups, folds = labelled.kept, labelled.groups, logistic.folds_of(labelled.groups)
    order, odds = held_scores(labelled, policy, constant), length_odds(values, kept, folds)
    return against_length(order, odds, values["steps"], kept, groups, folds)


def _aucs(
    by_trace: Sequence[Score], scores: Array, labelled: LabelledTraces, policy: Policy
) -> tuple[Estimate | None, dict[str, Estimate], dict[str, Estimate]]:
    """Return the AUC of the score, of each dimension alone, and of the score with each dimension constant."""
    if not labelled.has(1, 1):
        return None, {}, {}
    alone = [np.array([getattr(trace_score, name) for trace_score in by_trace]) for name in DIMENSIONS]
    held = [held_scores(labelled, policy, name) for name in DIMENSIONS]
    score, *parts = estimates(labelled.kept, [scores, *alone, *held], labelled.groups)
    count = len(DIMENSIONS)
    by_name = [dict(zip(DIMENSIONS, half, strict=True)) for half in (parts[:count], parts[count:])]
    return score, by_name[0], by_name[1]


def best_f1_threshold(scores: Array, labelled: LabelledTraces) -> float | None:
    """Return the threshold with the highest F1 that has :data:`MIN_SUPPORT` traces on each side, if any."""
    thresholds, index = np.unique(scores, return_inverse=True)
    passing, hits = (
        np.bincount(index, weights)[::-1].cumsum()[::-1] for weights in (np.ones(len(scores)), labelled.kept)
    )
    supported = (passing >= MIN_SUPPORT) & (len(scores) - passing >= MIN_SUPPORT)
    f1 = 2 * hits / (passing + labelled.kept.sum())
    best = thresholds[supported & (f1 == f1[supported].max(initial=0))]
    return rounded_threshold(scores, float(best[0])) if len(best) else None


def operating_points(
    scores: Array, labelled: LabelledTraces, thresholds: Iterable[float]
) -> dict[float, OperatingPoint]:
    """Return the operating points by threshold."""
    thresholds = sorted({*thresholds})
    kept, passes = labelled.kept, scores[:, None] >= thresholds
    passing, hits = passes.sum(axis=0), passes[kept].sum(axis=0)
    recalls, f1s = hits / max(1, kept.sum()), 2 * hits / np.maximum(1, passing + kept.sum())
    rows = zip(thresholds, passing, precisions(passes.T, kept, labelled.groups), recalls, f1s, strict=True)
    return {
        at: OperatingPoint(at, int(count), precision, float(recall), float(f1))
        for at, count, precision, recall, f1 in rows
    }


def _decided(
    profile: Profile | None, scores: Sequence[Score], labelled: LabelledTraces
) -> OperatingPoint | None:
    """Return the operating point of a profile's share, in the place of the threshold; None without one."""
    if profile is None or profile.share is None:
        return None
    passes = np.array([score.passes for score in scores])
    (point,) = operating_points(passes.astype(float), labelled, [1.0]).values()
    return dataclasses.replace(point, threshold=profile.share)


def compare(
    records: Sequence[ScoredRecord], labels: Labels, policies: Sequence[Policy], *, min_reward: float = 0.5
) -> list[PolicyComparison]:
    """Compare two or more policies in each domain of the first policy that has enough labels."""
    labelled = matched(records, labels, min_reward).by_domain(policies[0])
    return [
        _compare(name, part, policies)
        for name, part in labelled.items()
        if part.has(MIN_SUPPORT, MIN_SUPPORT)
    ]


def _compare(name: str, given: LabelledTraces, policies: Sequence[Policy]) -> PolicyComparison:
    seen = np.any([given.fitted_to(policy) for policy in policies], axis=0)
    labelled = given.only(~seen)
    if labelled is None or not labelled.has(MIN_SUPPORT, MIN_SUPPORT):
        return PolicyComparison(name, len(given.kept), given.equals_success, int(seen.sum()), {}, {})
    kept, groups, held = labelled.kept, labelled.groups, labelled.equals_success
    by_policy = [labelled.scores(policy) for policy in policies]
    orders = [held_scores(labelled, policy, OUTCOME_DIMENSION if held else None) for policy in policies]
    passes = np.array([[score.passes for score in scores] for scores in by_policy])
    hits, every = passes & kept, np.ones_like(passes)
    shares = ratios(hits, passes, groups), ratios(hits, every & kept, groups), ratios(passes, every, groups)
    values, resampled = map(np.array, zip(areas(kept, orders, groups), *shares, strict=True))

    def figures(at: int, minus: int | None = None) -> Figures:
        measured, draws = values[:, at], resampled[:, at]
        if minus is not None:
            measured, draws = measured - values[:, minus], draws - resampled[:, minus]
        rows = zip(FIGURES, measured, draws, strict=True)
        return {figure: known(percentiles(value, row)) for figure, value, row in rows}

    digests = dict(enumerate(policy.digest for policy in policies))
    return PolicyComparison(
        name,
        len(kept),
        held,
        int(seen.sum()),
        policies={digest: figures(at) for at, digest in digests.items()},
        differences={digest: figures(at, 0) for at, digest in digests.items() if at},
    )
