"""Coverage: of how many groups, such as tasks, are the traces that pass?

Compared with as many traces drawn at random; the hypergeometric distribution gives their expected number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.tools.policies.intervals import (
    Bools,
    Estimate,
    Floats,
    Integers,
    percentiles,
    resampled_counts,
)

with extra("policy"):
    from scipy import stats


@dataclass(frozen=True)
class Coverage:
    """The groups of the traces that pass."""

    passing: int  # number of traces that pass, of those with a group
    groups: int
    covered: int  # number of groups with a trace that passes
    random: float  # expected number of groups of as many traces, drawn at random
    # `covered` divided by `random`, over resamples of whole groups; None if no trace passes
    gain: Estimate | None


def coverage(passes: Bools, groups: Integers) -> Coverage:
    """Return the coverage of the traces that pass.

    Args:
        passes: whether a trace passes, shape (n,).
        groups: group index of each trace, from 0, shape (n,).
    """
    sizes, passing = np.bincount(groups), np.bincount(groups, weights=passes).astype(int)
    count, covered = int(passing.sum()), int((passing > 0).sum())
    gain = _gain(sizes, passing) if count else None
    return Coverage(count, len(sizes), covered, covered / gain.value if gain else 0.0, gain)


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
