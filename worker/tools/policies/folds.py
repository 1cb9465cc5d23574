"""Weights judged on folds that they were not fitted to.

Each fold is of whole groups. The order that weights give is compared within a fold only, as each fold has
weights of its own; the threshold for the target share is that of the other folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.policy import DEFAULT_DOMAIN, DIMENSIONS, REFERENCE_WEIGHTS
from knowledgepulse_worker.tools.policies.auc import areas, auc
from knowledgepulse_worker.tools.policies.intervals import Bools, Estimate, Floats, Integers, percentiles
from knowledgepulse_worker.tools.policies.labelled import Columns
from knowledgepulse_worker.tools.policies.operating import OperatingPoint, operating_points
from knowledgepulse_worker.tools.policies.simplex import HELD, fitted_weights, typed_weights
from knowledgepulse_worker.tools.policies.thresholds import lowest_within

with extra("policy"):
    from sklearn.model_selection import GroupKFold

FOLDS = 5

Learn = Callable[[Floats, Bools], Floats]
"""Returns weights for values of shape (n, 4) and whether each trace is worth keeping."""


@dataclass(frozen=True)
class Candidate:
    """Weights, judged on folds that they were not fitted to."""

    weights: dict[str, float]  # those of all labels
    auc: Estimate  # of pairs of one fold
    point: OperatingPoint  # of the traces that reach the threshold for the target share


def learners_of(name: str, start: Floats, *, hold: bool) -> dict[str, Learn]:
    """Return by name what gives the candidates' weights.

    ``start``: the weights in force, shape (4,). ``hold``: leave the weight of outcome confidence as it is.
    """
    reference = REFERENCE_WEIGHTS.get(name, REFERENCE_WEIGHTS[DEFAULT_DOMAIN])
    sdk = np.array([weight for _, weight in reference])
    learners: dict[str, Learn] = {
        "the SDK's": lambda _values, _kept: sdk,
        "in force": lambda _values, _kept: start,
        "fitted": lambda values, kept: fitted_weights(values, kept, start, hold=hold),
        "best dimension": lambda values, kept: _best_dimension(values, kept, hold=hold),
    }
    if (sdk == start).all():
        del learners["the SDK's"]
    return learners


def _best_dimension(values: Floats, kept: Bools, *, hold: bool) -> Floats:
    found = [auc(kept, column) for column in (values.T[:HELD] if hold else values.T)]
    best: Floats = np.eye(len(DIMENSIONS))[int(np.argmax(found))]
    return best


def judged(
    learners: Mapping[str, Learn], values: Floats, columns: Columns, target: float
) -> tuple[dict[str, Candidate], Estimate]:
    """Return the candidates, and the difference of the AUCs of the fitted weights and those in force.

    ``values``: what the weights average, shape (n, 4).
    """
    kept, groups, *_ = columns
    folds = np.zeros(len(kept), np.intp)
    split = GroupKFold(FOLDS, shuffle=True, random_state=0).split(values, kept, groups)
    for number, (_, at) in enumerate(split):
        folds[at] = number
    orders = {name: _out_of_fold(learn, values, kept, folds, target) for name, learn in learners.items()}
    found, resampled = areas(kept, [order for order, _ in orders.values()], groups, folds)
    by_name = dict(zip(orders, zip(found, resampled, strict=True), strict=True))
    candidates = {}
    for name, (_, passes) in orders.items():
        weights = typed_weights(learners[name](values, kept))
        point = operating_points(passes.astype(float), columns, [1.0])[1.0]
        candidates[name] = Candidate(weights, percentiles(*by_name[name]), point)
    (fitted, fitted_drawn), (force, force_drawn) = by_name["fitted"], by_name["in force"]
    return candidates, percentiles(fitted - force, fitted_drawn - force_drawn)


def _out_of_fold(
    learn: Learn, values: Floats, kept: Bools, folds: Integers, target: float
) -> tuple[Floats, Bools]:
    """Return each trace's score by the weights of the other folds, and whether it reaches their threshold."""
    order, passes = np.zeros(len(kept)), np.zeros(len(kept), bool)
    for fold in range(FOLDS):
        at, others = folds == fold, folds != fold
        weights = learn(values[others], kept[others])
        order[at] = values[at] @ weights
        best = lowest_within(values[others] @ weights, target)
        passes[at] = order[at] >= (np.inf if best is None else best[0])
    return order, passes
