"""How much may pass, so that at least a part P of it is worth keeping, with a confidence of 90%?

A share is the set of traces that pass by it, and a wider one contains the narrower. Shares are tested in an
order that follows from ranks alone, never from the labels, until a test fails; so all that pass hold together
(fixed sequence testing, as in Angelopoulos et al., *Learn then Test*, arXiv:2110.01052). There are four such
orders, which have a quarter of the error each: from the first share with enough tasks, from a fifth, from
half, and all alone.

Each test is the lower limit of Clopper and Pearson (Biometrika 26, 1934) with the number of labels divided by
the design effect of tasks (Korn and Graubard, *Survey Methodology* 24, 1998), since the runs of a task are
not independent. That is an approximation, whose error at the edge ``tests/policies/promise.py`` simulates.

In all functions, ``kept`` says whether each labelled trace is worth keeping, and ``tasks`` is the index of
its task, both of shape (n,); ``least`` is P, and ``error`` is 1 minus the confidence.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.tools.policies.estimates import Array

with extra("policy"):
    import scipy  # which imports `scipy.stats` on first use, as that takes half a second

CONFIDENCE = 0.9
"""The confidence of a promise, one-sided."""

ERROR = 0.1
SHARES = tuple(round(number * 0.05, 2) for number in range(1, 21))
"""The shares that are tried."""

_STARTS = (0.2, 0.5, 1.0)
_POWER = 0.8
_MOST_LABELS = 10_000


class Evidence(NamedTuple):
    """Labels by their number, divided by the design effect: as many independent ones tell as much."""

    kept: float
    labels: float


def evidence(kept: Array, tasks: Array) -> Evidence:
    """Return what labels tell. Where all are equal, each task is taken for one label."""
    number, hits = len(kept), int(kept.sum())
    sizes = np.bincount(tasks) if number else np.zeros(0)
    groups = np.count_nonzero(sizes)
    if groups == number or hits == 0:
        return Evidence(hits, number)
    if hits == number:
        return Evidence(int(groups), int(groups))
    rate = hits / number
    between = (np.bincount(tasks, kept - rate) ** 2).sum() * groups / max(1, groups - 1)
    effect = max(1.0, between / (number * rate * (1 - rate)))
    labels = max(1, int(number / effect))
    return Evidence(int(rate * labels + 1e-9), labels)


def p_value(told: Evidence, least: float) -> float:
    """Return how often so many would be kept if no more than ``least`` of all were."""
    return float(scipy.stats.binom.sf(told.kept - 1, told.labels, least))


def floor(told: Evidence, error: float = ERROR) -> float:
    """Return the largest part that labels promise: at least this is worth keeping; 0 without one."""
    if not told.kept:
        return 0.0
    return float(scipy.stats.beta.ppf(error, told.kept, told.labels - told.kept + 1))


def widest(kept: Array, tasks: Array, passes: Array, least: float) -> tuple[int | None, float]:
    """Return the index of the widest share that the labels promise, or None, and the error of each order.

    ``passes``: whether each trace passes by each share, the narrowest first, shape (shares, n).
    """
    last = len(passes) - 1
    enough = [at for at in range(last) if len(np.unique(tasks[passes[at]])) >= fewest(least)]
    starts = {*enough[:1], *(at for at, share in enumerate(SHARES[:last]) if share in _STARTS), last}
    of_each, found = ERROR / len(starts), -1
    for start in sorted(starts):
        for at in range(start, last + 1):
            if p_value(evidence(kept[passes[at]], tasks[passes[at]]), least) > of_each:
                break
            found = max(found, at)
    return (None if found < 0 else found), of_each


@cache
def fewest(least: float, error: float = ERROR / 4) -> int:
    """Return the fewest labels of passing traces that promise ``least`` if one of them is bad."""
    numbers = range(2, _MOST_LABELS)
    return next(each for each in numbers if p_value(Evidence(each - 1, each), least) <= error)


def labels_needed(rate: float, least: float, error: float = ERROR / 4) -> int | None:
    """Return how many independent labels promise ``least`` in 80% of the cases, if ``rate`` of all are kept.

    None if more than :data:`_MOST_LABELS` would be needed, or no number of labels would do.
    """
    numbers = np.arange(1, _MOST_LABELS + 1)
    power = scipy.stats.binom.sf(scipy.stats.binom.isf(error, numbers, least), numbers, rate)
    enough = np.flatnonzero(power >= _POWER)
    return int(numbers[enough[0]]) if rate > least and len(enough) else None


def asked_of_feedback(least: float, odds: float) -> float:
    """Return what feedback has to promise if runs worth keeping get it ``odds`` times as often as others."""
    return odds * least / (odds * least + 1 - least)
