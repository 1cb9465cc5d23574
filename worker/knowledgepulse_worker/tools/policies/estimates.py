"""Estimates with their 95% intervals: shares, ranks, and areas under the ROC curve.

Mostly bootstrap intervals: the variation of an estimate over resamples of the traces, drawn with replacement.
Where the bootstrap distribution has a closed form, nothing is drawn. The area, AUC, says how often a trace
worth keeping has the higher value; ties count half. scikit-learn computes it for one resample at a time.

In all functions, ``kept`` says whether each trace is worth keeping, and ``groups`` is its group's index, from
0; values rank the traces. All are of shape (n,).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.extras import extra

with extra("policy"):
    from scipy import stats

Array = NDArray[Any]

CHANCE = 0.5
"""The AUC of a random order."""

LEVEL = 0.95
RESAMPLES = 1000
_CELLS = 2_000_000
_TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


class Estimate(NamedTuple):
    """An estimate and its 95% interval."""

    value: float
    low: float
    high: float


def share(count: int, total: int) -> Estimate:
    """Return a share with its Wilson interval; a bootstrap would take none of a few for certain."""
    interval = stats.binomtest(count, total).proportion_ci(LEVEL, method="wilson")
    return Estimate(count / total, float(interval.low), float(interval.high))


def kth_largest(values: Array, k: int) -> Estimate:
    """Return the k-th largest of n values, shape (n,), with its bootstrap interval; k is 1 to n.

    A resample's k-th largest value is at least the j-th largest value if at least k of the draws are among
    the j largest; their number is binomial.
    """
    descending = np.sort(values)[::-1]
    n = len(descending)
    reached = stats.binom.sf(k - 1, n, np.arange(1, n + 1) / n)
    high, low = (descending[np.searchsorted(reached, tail)] for tail in _TAILS)
    return Estimate(float(descending[k - 1]), float(low), float(high))


def resampled_counts(groups: Array) -> Iterator[Array]:
    """Draw groups with replacement and yield the number of draws of each member.

    Members of a group, such as the trials of one task, are drawn together, as they are not independent.

    Yields:
        Blocks of shape (rows, n), :data:`RESAMPLES` rows in total, identical in every call.
    """
    rng = np.random.default_rng(0)
    total = int(groups.max()) + 1
    chances = np.full(total, 1 / total)
    at_once = max(1, _CELLS // len(groups))
    for start in range(0, RESAMPLES, at_once):
        yield rng.multinomial(total, chances, size=min(at_once, RESAMPLES - start))[:, groups]


def percentiles(value: float, resampled: Array) -> Estimate:
    """Return an estimate with the interval of its resamples, shape (resamples,), ignoring NaN."""
    low, high = np.nanquantile(resampled, _TAILS) if np.isfinite(resampled).any() else (np.nan, np.nan)
    return Estimate(value, float(low), float(high))


def ratios(parts: Array, wholes: Array, groups: Array) -> tuple[Array, Array]:
    """Return ratios of sums over the traces, and the same on resamples of whole groups; NaN where 0 by 0.

    ``parts``, ``wholes``: what each trace adds, shape (ratios, n); the result is of shape (ratios,) and
    (ratios, resamples).
    """
    parts, wholes = parts.astype(float), wholes.astype(float)
    with np.errstate(invalid="ignore"):
        drawn = [(parts @ counts.T) / (wholes @ counts.T) for counts in resampled_counts(groups)]
        return parts.sum(axis=1) / wholes.sum(axis=1), np.hstack(drawn)


def auc(kept: Array, values: Array, counts: Array | None = None) -> Array:
    """Return the AUC of values, shape (resamples,); NaN for resamples of only one kind of trace.

    ``counts``: draws of each trace in each resample, shape (resamples, n); by default, one of every trace.
    """
    return _area(*_wins(kept, values, _once(kept) if counts is None else counts))


def areas(
    kept: Array, columns: Sequence[Array], groups: Array, strata: Array | None = None
) -> tuple[list[float], Array]:
    """Return the AUC of each column, and of each on resamples of whole groups: shape (columns, resamples).

    ``strata``: compare only traces of equal number, such as those of one task or of one fold, shape (n,).
    """
    parts = [np.arange(len(kept))]
    if strata is not None:
        parts = [at for one in np.unique(strata) if kept[at := np.flatnonzero(strata == one)].any()]

    def of(column: Array, counts: Array) -> Array:
        wins = [_wins(kept[at], column[at], counts[:, at]) for at in parts]
        return _area(sum((one for one, _ in wins), np.zeros(1)), sum((one for _, one in wins), np.zeros(1)))

    resampled = np.hstack([[of(column, counts) for column in columns] for counts in resampled_counts(groups)])
    return [float(of(column, _once(kept))[0]) for column in columns], resampled


def estimates(
    kept: Array, columns: Sequence[Array], groups: Array, strata: Array | None = None
) -> list[Estimate]:
    """Return the AUC of each column with its interval; see :func:`areas`."""
    return [percentiles(*one) for one in zip(*areas(kept, columns, groups, strata), strict=True)]


def _once(kept: Array) -> Array:
    return np.ones((1, len(kept)), np.int64)


def _area(wins: Array, pairs: Array) -> Array:
    area: Array = np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
    return area


def _wins(kept: Array, values: Array, counts: Array) -> tuple[Array, Array]:
    """Return the pairs that the trace worth keeping wins, and all pairs, by resample."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(values[order]) > 0])
    ordered = np.take(counts, order, axis=1)
    positive = np.add.reduceat(ordered * kept[order], starts, axis=1)
    negative = np.add.reduceat(ordered, starts, axis=1) - positive
    below = np.cumsum(negative, axis=1) - negative / 2
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    return (positive * below).sum(axis=1), pairs.astype(np.float64)


def with_interval(estimate: Estimate | None) -> str:
    """Format an estimate and its interval; a dash for None."""
    return "-" if estimate is None else "{:.2f} ({:.2f}-{:.2f})".format(*estimate)


def signed(difference: Estimate | None) -> str:
    """Format a difference and its interval; a dash for None."""
    return "-" if difference is None else "{:+.2f} ({:+.2f} to {:+.2f})".format(*difference)
