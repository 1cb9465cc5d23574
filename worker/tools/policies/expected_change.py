"""How likely labels change a trace's decision: whether weights fitted to them decide otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.tools.policies.intervals import Bools, Floats, resampled_counts
from knowledgepulse_worker.tools.policies.labelled import Labelled, columns_of
from knowledgepulse_worker.tools.policies.simplex import HELD, fitted_weights, values_of

REFITS = 20

SHARE = 0.1
"""Share of the traces that should pass if the policy in force lets none or all pass."""


def expected_changes(
    labelled: Sequence[Labelled], scores: Sequence[Score], others: Sequence[Score], policy: Policy
) -> list[float]:
    """Return for each other trace how often refits on resampled groups decide otherwise than the policy.

    A refit lets as many traces pass as the policy. Outcome confidence is held constant.

    ``labelled``: traces of one domain with labels of both kinds. ``scores``: theirs under the policy, one for
    each. ``others``: those of the domain's traces without a label.
    """
    everything = [*scores, *others]
    weights = np.array([weight for _, weight in policy.profile(everything[0].domain).weights])
    hold = bool(weights[HELD] < 1)
    values = values_of(everything, hold=hold)
    passing = sum(one.reaches_threshold for one in everything)
    if not 0 < passing < len(everything):
        passing = max(1, round(SHARE * len(everything)))
    kept, groups, *_ = columns_of(labelled)
    now, changed = _best(values @ weights, passing), []
    for drawn in next(resampled_counts(groups))[:REFITS]:
        at = np.repeat(np.arange(len(kept)), drawn)
        if 0 < kept[at].sum() < len(at):
            fitted = fitted_weights(values[at], kept[at], weights, hold=hold)
            changed.append(_best(values @ fitted, passing) != now)
    share = np.mean(changed, axis=0) if changed else np.zeros(len(everything))
    return [float(one) for one in share[len(scores) :]]


def _best(values: Floats, count: int) -> Bools:
    found: Bools = values >= np.sort(values)[-count]
    return found
