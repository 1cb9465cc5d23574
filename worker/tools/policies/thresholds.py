"""Thresholds to type: of few digits, and yet passed by exactly the traces that they were chosen for."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal

import numpy as np

from knowledgepulse_worker.tools.policies.intervals import Floats

_DECIMALS = range(4, 20)


def typed(scores: Floats, lowest: float) -> float:
    """Return a threshold that the scores from ``lowest`` on reach and no others.

    It is rounded down to four decimals, or to as many more as it takes to stay above the next lower score.

    Args:
        scores: shape (n,).
        lowest: one of them.
    """
    below = float(scores[scores < lowest].max(initial=-math.inf))
    rounded = (
        float(Decimal(repr(float(lowest))).quantize(Decimal(1).scaleb(-decimals), ROUND_FLOOR))
        for decimals in _DECIMALS
    )
    return next((one for one in rounded if one > below), lowest)


def lowest_within(scores: Floats, target: float) -> tuple[float, int] | None:
    """Return the lowest score of the best traces that are at most a target share, and their number.

    Equal scores pass or fail together. None if even the best ones are more than the target.

    Args:
        scores: shape (n,), n at least 1.
        target: more than 0 and up to 1.
    """
    values, numbers = np.unique(-scores, return_counts=True)
    passing = numbers.cumsum()
    # 0.07 * 100 is 7.000000000000001, and 0.29 * 100 is 28.999999999999996.
    last = int(np.searchsorted(passing, round(target * len(scores), 9), side="right")) - 1
    return None if last < 0 else (float(-values[last]), int(passing[last]))
