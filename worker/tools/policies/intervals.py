"""95 % confidence intervals.

Mostly bootstrap intervals: the variation of an estimate over resamples of the traces, drawn with replacement.
Where the bootstrap distribution has a closed form, nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.extras import extra

with extra("policy"):
    from scipy import stats

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.integer]

LEVEL = 0.95
RESAMPLES = 1000
_CELLS = 2_000_000
_TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


class Estimate(NamedTuple):
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float


def share(count: int, total: int) -> Estimate:
    """Return a share with its Wilson interval.

    If none of a few traces passes, a bootstrap would give the interval 0 to 0, as if that were certain.
    """
    interval = stats.binomtest(count, total).proportion_ci(LEVEL, method="wilson")
    return Estimate(count / total, float(interval.low), float(interval.high))


def kth_largest(values: Floats, k: int) -> Estimate:
    """Return the k-th largest value with its bootstrap interval.

    A resample's k-th largest value is at least the j-th largest value if at least k of the draws are among
    the j largest; their number is binomial.

    Args:
        values: shape (n,).
        k: 1 to n.
    """
    descending = np.sort(values)[::-1]
    n = len(descending)
    reached = stats.binom.sf(k - 1, n, np.arange(1, n + 1) / n)
    high, low = (descending[np.searchsorted(reached, tail)] for tail in _TAILS)
    return Estimate(float(descending[k - 1]), float(low), float(high))


def resampled_counts(groups: Integers) -> Iterator[Integers]:
    """Draw groups with replacement and yield the number of draws of each member.

    Members of a group, such as the trials of one task, are drawn together, as they are not independent.

    Args:
        groups: group index of each member, from 0, shape (n,).

    Yields:
        Blocks of shape (rows, n), :data:`RESAMPLES` rows in total, identical in every call.
    """
    rng = np.random.default_rng(0)
    total = int(groups.max()) + 1
    chances = np.full(total, 1 / total)
    at_once = max(1, _CELLS // len(groups))
    for start in range(0, RESAMPLES, at_once):
        yield rng.multinomial(total, chances, size=min(at_once, RESAMPLES - start))[:, groups]


def percentiles(value: float, resampled: Floats) -> Estimate:
    """Return an estimate with the interval of its resamples, ignoring NaN.

    ``resampled``: the estimate on each resample, shape (resamples,).
    """
    low, high = np.nanquantile(resampled, _TAILS) if np.isfinite(resampled).any() else (np.nan, np.nan)
    return Estimate(value, float(low), float(high))


def with_interval(estimate: Estimate | None) -> str:
    """Format an estimate and its interval; a dash for None."""
    if estimate is None:
        return "-"
    return f"{estimate.value:.2f} ({estimate.low:.2f}-{estimate.high:.2f})"


def signed(difference: Estimate | None) -> str:
    """Format a difference and its interval; a dash for None."""
    if difference is None:
        return "-"
    value, low, high = (f"{figure:+.2f}" for figure in difference)
    return f"{value} ({low} to {high})"
