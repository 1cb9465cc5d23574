"""Coverage: of how many groups, such as tasks, are the traces that pass?

Compared with as many traces drawn at random; the hypergeometric distribution gives their expected number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.tools.policies.intervals import Estimate, percentiles, resampled_counts

with extra("policy"):
    from scipy import stats

Floats = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class Coverage:
    """The groups of the traces that pass.

    Attributes:
        passing: number of traces that pass, of those with a group.
        groups: number of groups.
        covered: number of groups with a trace that passes.
        random: expected number of groups of as many traces, drawn at random.
        novel: the same of as many traces with the most novelty; ties are drawn at random.
        perfect: the most groups that as many traces can be of.
        gain: ``covered`` divided by ``random``, over resamples of whole groups; None if no trace passes.
    """

    passing: int
    groups: int
    covered: int
    random: float
    novel: float
    perfect: int
    gain: Estimate | None


def coverage(passes: NDArray[np.bool_], novelty: Floats, groups: Integers) -> Coverage:
    """Return the coverage of the traces that pass.

    Args:
        passes: whether a trace passes, shape (n,).
        novelty: shape (n,).
        groups: group index of each trace, from 0, shape (n,).
    """
    sizes, passing = np.bincount(groups), np.bincount(groups, weights=passes).astype(int)
    count = int(passing.sum())
    return Coverage(
        passing=count,
        groups=len(sizes),
        covered=int((passing > 0).sum()),
        random=expected_groups(np.zeros(len(groups)), groups, count),
        novel=expected_groups(novelty, groups, count),
        perfect=min(count, len(sizes)),
        gain=_gain(sizes, passing) if count else None,
    )


def expected_groups(values: Floats, groups: Integers, count: int) -> float:
    """Return the expected number of groups among the traces with the largest values.

    Args:
        values: shape (n,); of the traces that tie for the last places, those needed are drawn at random.
        groups: group index of each trace, from 0, shape (n,).
        count: number of traces, 0 to n.
    """
    if count == 0:
        return 0.0
    last = np.sort(values)[-count]
    total = int(groups.max()) + 1
    certain, tied = (np.bincount(groups[which], minlength=total) for which in (values > last, values == last))
    missed = stats.hypergeom.pmf(0, tied.sum(), tied, count - certain.sum())
    return float(np.where(certain > 0, 1, 1 - missed).sum())


def _gain(sizes: Integers, passing: Integers) -> Estimate:
    """Return covered over random. A group drawn twice is two groups, as two tasks of that kind would be."""
    resampled = np.concatenate(
        [_gains(drawn, sizes, passing) for drawn in resampled_counts(np.arange(len(sizes)))]
    )
    return percentiles(float(_gains(np.ones((1, len(sizes)), int), sizes, passing)[0]), resampled)


def _gains(drawn: Integers, sizes: Integers, passing: Integers) -> Floats:
    """Return the gain of each resample; NaN if no trace of it passes.

    Args:
        drawn: draws of each group, shape (resamples, groups).
        sizes: traces of each group, shape (groups,).
        passing: those that pass, shape (groups,).
    """
    # Few sizes are different, and the distribution is slow.
    different, size = np.unique(sizes, return_inverse=True)
    of_size = drawn @ (size[:, None] == np.arange(len(different)))
    traces, count = drawn @ sizes, drawn @ passing
    missed = stats.hypergeom.pmf(0, traces[:, None], different, count[:, None])
    random = (of_size * (1 - missed)).sum(axis=1)
    covered = drawn @ (passing > 0)
    gains: Floats = np.divide(covered, random, out=np.full(len(drawn), np.nan), where=count > 0)
    return gains
