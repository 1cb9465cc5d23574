"""Proposed thresholds, and their precision, recall and covered groups according to labels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.tools.policies.estimates import (
    Array,
    Estimate,
    percentiles,
    resampled_counts,
    share,
)
from knowledgepulse_worker.tools.policies.labelled_traces import SUPPORT, Labelled

with extra("policy"):
    from scipy import stats

_DECIMALS = range(4, 20)


@dataclass(frozen=True)
class Coverage:
    """The groups, such as tasks, that the passing traces cover, compared with as many random traces.

    Attributes:
        passing: number of traces that pass, of those with a group.
        covered: number of groups with a trace that passes.
        random: expected number of groups that as many random traces cover.
        gain: `covered` divided by `random`; None if no trace passes.
    """

    passing: int
    groups: int
    covered: int
    random: float
    gain: Estimate | None


@dataclass(frozen=True)
class OperatingPoint:
    """Precision and recall at a threshold.

    Attributes:
        threshold: the lowest score that passes.
        precision: share of the passing traces that are worth keeping; None if none passes.
        coverage: the groups that the passing traces cover; None unless labels share groups.
    """

    threshold: float
    passing: int
    precision: Estimate | None
    recall: float
    f1: float
    coverage: Coverage | None


def rounded_threshold(scores: Array, lowest: float) -> float:
    """Return a threshold that exactly the scores of at least ``lowest``, one of the scores, reach.

    The threshold is rounded down to four decimals, or to more decimals where four would reach the next lower
    score.
    """
    below = float(scores[scores < lowest].max(initial=-math.inf))
    exact = Decimal(repr(float(lowest)))
    rounded = (float(exact.quantize(Decimal(1).scaleb(-decimals), ROUND_FLOOR)) for decimals in _DECIMALS)
    return next((one for one in rounded if one > below), lowest)


def lowest_within(scores: Array, target: float) -> tuple[float, int] | None:
    """Return the lowest score among the best traces, at most a target share of all, and their number.

    Traces with equal scores pass or fail together. Return None if the traces with the highest score already
    exceed the target.

    Args:
        scores: shape (n,), n at least 1.
        target: more than 0 and up to 1.
    """
    values, numbers = np.unique(-scores, return_counts=True)
    passing = numbers.cumsum()
    # 0.07 * 100 is 7.000000000000001, and 0.29 * 100 is 28.999999999999996.
    last = int(np.searchsorted(passing, round(target * len(scores), 9), side="right")) - 1
    return None if last < 0 else (float(-values[last]), int(passing[last]))


def proposed_thresholds(
    scores: Array, labelled: Labelled, precision: float
) -> tuple[float | None, float | None]:
    """Return the thresholds with the highest F1 and with the highest recall at a precision.

    A threshold needs at least :data:`SUPPORT` traces on each side. Return None in place of one that does not
    exist.
    """
    thresholds, index = np.unique(scores, return_inverse=True)
    passing, hits = (
        np.bincount(index, each)[::-1].cumsum()[::-1] for each in (np.ones(len(scores)), labelled.kept)
    )
    supported = (passing >= SUPPORT) & (len(scores) - passing >= SUPPORT)
    if not supported.any():
        return None, None
    f1 = 2 * hits / (passing + labelled.kept.sum())
    best = thresholds[np.where(supported, f1, -1).argmax()]
    precise = thresholds[supported & (hits / passing >= precision)]
    return rounded_threshold(scores, float(best)), rounded_threshold(scores, float(precise.min())) if len(
        precise
    ) else None


def operating_points(
    scores: Array, labelled: Labelled, thresholds: Iterable[float]
) -> dict[float, OperatingPoint]:
    """Return the operating points by threshold."""
    thresholds = sorted({*thresholds})
    kept, passes = labelled.kept, scores[:, None] >= thresholds
    passing, hits = passes.sum(axis=0), passes[kept].sum(axis=0)
    recalls, f1s = hits / max(1, kept.sum()), 2 * hits / np.maximum(1, passing + kept.sum())
    rows = zip(thresholds, passing, _precisions(labelled, passes), recalls, f1s, passes.T, strict=True)
    return {
        at: OperatingPoint(at, int(count), precision, float(recall), float(f1), _coverage(labelled, reached))
        for at, count, precision, recall, f1, reached in rows
    }


def _precisions(labelled: Labelled, passes: Array) -> list[Estimate | None]:
    """Return the precision at each threshold; None where no trace passes.

    At each end, the wider of two intervals counts. The bootstrap interval would be empty for nine hits of
    nine, and Wilson's interval would count the trials of a task as independent.

    ``passes``: whether each trace passes each threshold, shape (traces, thresholds).
    """
    hits = passes & labelled.kept[:, None]
    drawn = [(counts @ hits, counts @ passes) for counts in resampled_counts(labelled.groups)]
    drawn_hits, drawn_passing = (np.concatenate(parts).astype(float) for parts in zip(*drawn, strict=True))
    drawn_passing[drawn_passing == 0] = np.nan
    counted = zip(hits.sum(axis=0), passes.sum(axis=0), (drawn_hits / drawn_passing).T, strict=True)
    return [_precision(int(hit), int(passing), resampled) for hit, passing, resampled in counted]


def _precision(hits: int, passing: int, resampled: Array) -> Estimate | None:
    if passing == 0:
        return None
    value, low, high = share(hits, passing)
    _, lowest, highest = percentiles(value, resampled)
    return Estimate(value, min(low, lowest), max(high, highest))


def _coverage(labelled: Labelled, passes: Array) -> Coverage | None:
    """Return the coverage of the traces whose labels have a group; None if no two traces share a group."""
    at = labelled.grouped
    groups = np.unique(labelled.groups[at], return_inverse=True)[1]
    if not len(groups) or groups.max() + 1 == len(groups):
        return None
    return coverage(passes[at], groups)


def coverage(passes: Array, groups: Array) -> Coverage:
    """Return the coverage of the traces that pass.

    Args:
        passes: whether a trace passes, shape (n,).
        groups: group index of each trace, from 0, shape (n,).
    """
    sizes, passing = np.bincount(groups), np.bincount(groups, weights=passes).astype(int)
    count, covered, every = int(passing.sum()), int((passing > 0).sum()), np.arange(len(sizes))
    if not count:
        return Coverage(0, len(sizes), 0, 0.0, None)
    # A group drawn twice is two groups, as two tasks of that kind would be.
    drawn = np.concatenate([_gains(counts, sizes, passing) for counts in resampled_counts(every)])
    gain = percentiles(float(_gains(np.ones((1, len(sizes)), int), sizes, passing)[0]), drawn)
    return Coverage(count, len(sizes), covered, covered / gain.value, gain)


def _gains(drawn: Array, sizes: Array, passing: Array) -> Array:
    """Return the ratio of covered to random groups in each resample, or NaN if no trace passes.

    The number of random groups follows from the hypergeometric distribution.

    Args:
        drawn: draws of each group, shape (resamples, groups).
        sizes: traces of each group, shape (groups,).
        passing: passing traces of each group, shape (groups,).
    """
    # Few sizes are different, and the distribution is slow.
    different, size = np.unique(sizes, return_inverse=True)
    of_size = drawn @ (size[:, None] == np.arange(len(different)))
    traces, count = drawn @ sizes, drawn @ passing
    missed = stats.hypergeom.pmf(0, traces[:, None], different, count[:, None])
    random, covered = (of_size * (1 - missed)).sum(axis=1), drawn @ (passing > 0)
    gains: Array = np.divide(covered, random, out=np.full(len(drawn), np.nan), where=count > 0)
    return gains
