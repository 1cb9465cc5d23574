"""The length of traces, with which every order of them is compared: labels often say little more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knowledgepulse_curator.fitting import logistic
from knowledgepulse_worker.tools.policies.estimates import Array, Estimate, areas, known, percentiles, signed

LENGTH_FACTS = ("steps", "characters", "calls")
"""The facts that say how long a trace is."""


@dataclass(frozen=True)
class AgainstLength:
    """An order of traces against the length alone, which is fitted to the labels, out of fold.

    Attributes:
        alone: the AUC of the length alone, over pairs of one fold, like the gain.
        gain: the AUC of the order minus that of the length alone.
        short: whether the length alone prefers short traces.
    """

    alone: Estimate
    gain: Estimate
    short: bool

    @property
    def is_beaten(self) -> bool:
        """Whether the order is better than the length alone."""
        return self.gain.low > 0

    def __str__(self) -> str:
        told = f"{signed(self.gain)} against the length alone"
        if self.is_beaten:
            return told
        how = "worse" if self.gain.high < 0 else "no better"
        return f"{told}, so {how} than preferring {self.preference}"

    @property
    def preference(self) -> str:
        """What the length alone prefers."""
        return f"{'short' if self.short else 'long'} runs"


def length_odds(values: dict[str, Array], kept: Array, folds: Array) -> Array:
    """Return the log odds of each trace by its length alone, fitted to the other folds; see ``learn``."""
    return logistic.out_of_fold({name: values[name] for name in LENGTH_FACTS}, kept, folds)


def against_length(
    order: Array, odds: Array, steps: Array, kept: Array, groups: Array, folds: Array
) -> AgainstLength | None:
    """Compare an order of traces, shape (n,), with that of :func:`length_odds`.

    ``steps``: the fact of this name. Return None if no fold has two traces to compare.
    """
    (ordered, alone), (ordered_drawn, alone_drawn) = areas(kept, [order, odds], groups, folds)
    gain = known(percentiles(ordered - alone, ordered_drawn - alone_drawn))
    short = bool(np.cov(odds, steps)[0, 1] < 0)
    return gain and AgainstLength(percentiles(alone, alone_drawn), gain, short)
