"""Estimates with their 95% intervals: shares, ranks, and areas under the ROC curve.

Mostly bootstrap intervals: the variation of an estimate over resamples of the traces, drawn with replacement.
Where the bootstrap distribution has a closed form, nothing is drawn. The area, AUC, says how often a trace
worth keeping has the higher value; ties count half. scikit-learn computes it for one resample at a time.

In all functions, ``kept`` says whether each trace is worth keeping, and ``groups`` is its group's index, from
0; values rank the traces. All are of shape (n,).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.extras import extra

with extra("policy"):
    import scipy  # which imports `scipy.stats` on first use, as that takes half a second

Array = NDArray[Any]

CHANCE_AUC = 0.5
"""The AUC of a random order."""

CONFIDENCE_LEVEL = 0.95
RESAMPLES = 1000
_MAX_CELLS = 2_000_000
_TAILS = ((1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2)


class Estimate(NamedTuple):
    """An estimate and its 95% interval."""

    value: float
    low: float
    high: float


def share(count: int, total: int) -> Estimate:
    """Return a share with its Wilson interval; a bootstrap would take none of a few for certain."""
    interval = scipy.stats.binomtest(count, total).proportion_ci(CONFIDENCE_LEVEL, method="wilson")
    return Estimate(count / total, float(interval.low), float(interval.high))


def kth_largest(values: Array, k: int) -> Estimate:
    """Return the k-th largest of n values, shape (n,), with its bootstrap interval; k is 1 to n.

    A resample's k-th largest value is at least the j-th largest value if at least k of the draws are among
    the j largest; their number is binomial.
    """
    descending = np.sort(values)[::-1]
    n = len(descending)
    reached = scipy.stats.binom.sf(k - 1, n, np.arange(1, n + 1) / n)
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
    at_once = max(1, _MAX_CELLS // len(groups))
    for start in range(0, RESAMPLES, at_once):
        yield rng.multinomial(total, chances, size=min(at_once, RESAMPLES - start))[:, groups]


def percentiles(value: float, resampled: Array) -> Estimate:
    """Return an estimate with the interval of its resamples, shape (resamples,), ignoring NaN."""
    low, high = np.nanquantile(resampled, _TAILS) if np.isfinite(resampled).any() else (np.nan, np.nan)
    return Estimate(float(value), float(low), float(high))


def known(estimate: Estimate) -> Estimate | None:
    """Return an estimate; None if there is nothing to estimate it from."""
    return None if np.isnan(estimate.value) else estimate


def ratios(parts: Array, wholes: Array, groups: Array) -> tuple[Array, Array]:
    """Return ratios of sums over the traces, and the same on resamples of whole groups; NaN where 0 by 0.

    ``parts``, ``wholes``: what each trace adds, shape (ratios, n); the result is of shape (ratios,) and
    (ratios, resamples).
    """
    parts, wholes = parts.astype(float), wholes.astype(float)
    with np.errstate(invalid="ignore"):
        drawn = [(parts @ counts.T) / (wholes @ counts.T) for counts in resampled_counts(groups)]
        return parts.sum(axis=1) / wholes.sum(axis=1), np.hstack(drawn)


def precisions(passes: Array, kept: Array, groups: Array) -> list[Estimate | None]:
    """Return the share worth keeping of each selection; None where no trace passes.

    At each end, the wider of two intervals counts. The bootstrap interval would be empty for nine hits of
    nine, and Wilson's interval would count the trials of a task as independent.

    ``passes``: whether each trace passes, shape (selections, n).
    """
    hits = passes & kept
    _, drawn = ratios(hits, passes, groups)
    estimates: list[Estimate | None] = []
    for hit, passing, resampled in zip(hits.sum(axis=1), passes.sum(axis=1), drawn, strict=True):
        if passing:
            value, low, high = share(int(hit), int(passing))
            _, lowest, highest = percentiles(value, resampled)
        estimates.append(Estimate(value, min(low, lowest), max(high, highest)) if passing else None)
    return estimates


def areas(
    kept: Array, columns: Sequence[Array], groups: Array, strata: Array | None = None
) -> tuple[Array, Array]:
    """Return the AUC of each column, and the same on resamples of whole groups.

    ``strata``: compare only traces of equal number, such as those of one task or of one fold, shape (n,). The
    result is of shape (columns,) and (columns, resamples).
    """
    parts = [np.arange(len(kept))]
    if strata is not None:
        parts = [at for stratum in np.unique(strata) if kept[at := np.flatnonzero(strata == stratum)].any()]
    draws = [np.ones((1, len(kept)), np.int64), *resampled_counts(groups)]
    aucs = np.hstack([[auc(kept, column, counts, parts) for column in columns] for counts in draws])
    return aucs[:, 0], aucs[:, 1:]


def estimates(
    kept: Array, columns: Sequence[Array], groups: Array, strata: Array | None = None
) -> list[Estimate]:
    """Return the AUC of each column with its interval; see :func:`areas`."""
    return [percentiles(*values) for values in zip(*areas(kept, columns, groups, strata), strict=True)]


def auc(kept: Array, values: Array, counts: Array, parts: Iterable[Array]) -> Array:
    """Return the AUC of values, shape (resamples,); NaN for resamples without two traces to compare.

    ``counts``: draws of each trace in each resample, shape (resamples, n). ``parts``: the indices of traces
    that are compared with each other.
    """
    wins, pairs = np.sum([_wins(kept[at], values[at], counts[:, at]) for at in parts], axis=0)
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


def in_pairs(subject: str, auc: Estimate) -> str:
    """Say what an AUC means for who does not know one."""
    right = "of 100 pairs of a trace worth keeping and another one"
    return (
        f"in plain words: {right}, {subject} ranks the former higher in {100 * auc.value:.0f} "
        f"({100 * auc.low:.0f} to {100 * auc.high:.0f}); tossing a coin would in 50"
    )
