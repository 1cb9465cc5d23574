"""Proposed thresholds, and their precision and recall according to labels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

import numpy as np

from knowledgepulse_worker.tools.policies.estimates import Array, Estimate, percentiles, ratios, share
from knowledgepulse_worker.tools.policies.labelled_traces import SUPPORT, Labelled

_DECIMALS = range(4, 20)


@dataclass(frozen=True)
class OperatingPoint:
    """Precision and recall at a threshold.

    Attributes:
        threshold: the lowest score that passes.
        precision: share of the passing traces that are worth keeping; None if none passes.
    """

    threshold: float
    passing: int
    precision: Estimate | None
    recall: float
    f1: float


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
    exceed the target, which is more than 0 and up to 1.
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
    rows = zip(thresholds, passing, precisions(passes.T, labelled), recalls, f1s, strict=True)
    return {
        at: OperatingPoint(at, int(count), precision, float(recall), float(f1))
        for at, count, precision, recall, f1 in rows
    }


def precisions(passes: Array, labelled: Labelled) -> list[Estimate | None]:
    """Return the share worth keeping of each selection; None where no trace passes.

    At each end, the wider of two intervals counts. The bootstrap interval would be empty for nine hits of
    nine, and Wilson's interval would count the trials of a task as independent.

    ``passes``: whether each trace passes, shape (selections, traces).
    """
    hits = passes & labelled.kept
    _, drawn = ratios(hits, passes, labelled.groups)
    found: list[Estimate | None] = []
    for hit, passing, resampled in zip(hits.sum(axis=1), passes.sum(axis=1), drawn, strict=True):
        if passing:
            value, low, high = share(int(hit), int(passing))
            _, lowest, highest = percentiles(value, resampled)
        found.append(Estimate(value, min(low, lowest), max(high, highest)) if passing else None)
    return found
