"""Thresholds against labels: what each is worth, and the ones to propose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.tools.policies.coverage import Coverage, coverage
from knowledgepulse_worker.tools.policies.intervals import (
    Bools,
    Estimate,
    Floats,
    percentiles,
    resampled_counts,
    share,
)
from knowledgepulse_worker.tools.policies.labelled import Columns
from knowledgepulse_worker.tools.policies.thresholds import typed

with extra("policy"):
    from sklearn.metrics import precision_recall_curve

SUPPORT = 10
"""A verdict needs this many traces of each kind, a proposed threshold as many on each side of it."""


@dataclass(frozen=True)
class OperatingPoint:
    """Precision and recall at a threshold."""

    threshold: float  # the lowest score that passes
    passing: int
    precision: Estimate | None  # share of the passing traces that are worth keeping; None if none passes
    recall: float
    f1: float
    coverage: Coverage | None  # the groups of the passing traces; None unless labels share groups


def proposed_thresholds(
    scores: Floats, columns: Columns, precision: float
) -> tuple[float | None, float | None]:
    """Return the thresholds with the highest F1 and with the highest recall at a precision.

    Each has :data:`SUPPORT` traces or more on both sides; None if there is no such threshold.
    """
    precisions, recalls, thresholds = precision_recall_curve(columns.kept, scores)
    # The curve's last point has no threshold.
    f1 = 2 * precisions * recalls / np.maximum(precisions + recalls, np.finfo(float).tiny)
    passing = len(scores) - np.searchsorted(np.sort(scores), thresholds)
    supported = (passing >= SUPPORT) & (len(scores) - passing >= SUPPORT)
    if not supported.any():
        return None, None
    best = thresholds[np.where(supported, f1[:-1], -1).argmax()]
    precise = thresholds[supported & (precisions[:-1] >= precision)]
    return typed(scores, float(best)), typed(scores, float(precise.min())) if len(precise) else None


def operating_points(
    scores: Floats, columns: Columns, thresholds: Iterable[float]
) -> dict[float, OperatingPoint]:
    """Return the operating points by threshold."""
    thresholds = sorted({*thresholds})
    kept, passes = columns.kept, scores[:, None] >= thresholds
    passing, hits = passes.sum(axis=0), passes[kept].sum(axis=0)
    recalls, f1s = hits / max(1, kept.sum()), 2 * hits / np.maximum(1, passing + kept.sum())
    rows = zip(thresholds, passing, _precisions(columns, passes), recalls, f1s, passes.T, strict=True)
    return {
        threshold: OperatingPoint(
            threshold, int(count), precision, float(recall), float(f1), _coverage(columns, reached)
        )
        for threshold, count, precision, recall, f1, reached in rows
    }


def _precisions(columns: Columns, passes: Bools) -> list[Estimate | None]:
    """Return the precision at each threshold; None where no trace passes.

    The interval is the wider one at each end: the bootstrap takes nine hits of nine for certain, and Wilson's
    takes the trials of one task for as many tasks.

    ``passes``: whether each trace passes each threshold, shape (traces, thresholds).
    """
    hits = passes & columns.kept[:, None]
    drawn = [(counts @ hits, counts @ passes) for counts in resampled_counts(columns.groups)]
    drawn_hits, drawn_passing = (np.concatenate(parts).astype(float) for parts in zip(*drawn, strict=True))
    drawn_passing[drawn_passing == 0] = np.nan
    counted = zip(hits.sum(axis=0), passes.sum(axis=0), (drawn_hits / drawn_passing).T, strict=True)
    return [_precision(int(hit), int(passing), resampled) for hit, passing, resampled in counted]


def _precision(hits: int, passing: int, resampled: Floats) -> Estimate | None:
    if passing == 0:
        return None
    value, low, high = share(hits, passing)
    _, lowest, highest = percentiles(value, resampled)
    return Estimate(value, min(low, lowest), max(high, highest))


def _coverage(columns: Columns, passes: Bools) -> Coverage | None:
    """Return the coverage of the traces whose labels have a group; None if no two have the same."""
    at = columns.grouped
    groups = np.unique(columns.groups[at], return_inverse=True)[1]
    if not len(groups) or groups.max() + 1 == len(groups):
        return None
    return coverage(passes[at], groups)
