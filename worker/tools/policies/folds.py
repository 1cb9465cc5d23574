"""Weights judged on folds that they were not fitted to.

Each fold is of whole groups. The order that weights give is compared within a fold only, as each fold has
weights of its own; the threshold for the target share is that of the other folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.policy import DEFAULT_DOMAIN, REFERENCE_WEIGHTS
from knowledgepulse_worker.tools.policies.auc import Bools, Floats, areas, auc
from knowledgepulse_worker.tools.policies.intervals import Estimate, percentiles
from knowledgepulse_worker.tools.policies.operating import LabelledScores, OperatingPoint, operating_points
from knowledgepulse_worker.tools.policies.simplex import DIMENSIONS, HELD, fitted_weights, typed_weights
from knowledgepulse_worker.tools.policies.thresholds import lowest_within

with extra("policy"):
    from sklearn.model_selection import GroupKFold

FOLDS = 5

Learn = Callable[[Floats, Bools], Floats]
"""Returns weights for values of shape (n, 4) and whether each trace is worth keeping."""


@dataclass(frozen=True)
class Candidate:
    """Weights, judged on folds that they were not fitted to.

    Attributes:
        weights: those of all labels.
        auc: of pairs of one fold.
        point: of the traces that reach the threshold for the target share.
    """

    weights: dict[str, float]
    auc: Estimate
    point: OperatingPoint


def learners_of(name: str, start: Floats, *, hold: bool) -> dict[str, Learn]:
    """Return by name what gives the candidates' weights.

    Args:
        name: the domain.
        start: the weights in force, shape (4,).
        hold: leave the weight of outcome confidence as it is.
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
    learners: Mapping[str, Learn],
    values: Floats,
    kept: Bools,
    groups: NDArray[np.intp],
    grouped: Bools,
    target: float,
) -> tuple[dict[str, Candidate], Estimate]:
    """Return the candidates, and the difference of the AUCs of the fitted weights and those in force.

    Args:
        learners: of :func:`learners_of`.
        values: what the weights average, shape (n, 4).
        kept: whether each trace is worth keeping, shape (n,).
        groups: group index of each trace, from 0, shape (n,).
        grouped: whether that is a group of the labels, shape (n,).
        target: the share that should pass at most.
    """
    folds = np.zeros(len(kept), np.intp)
    split = GroupKFold(FOLDS, shuffle=True, random_state=0).split(values, kept, groups)
    for number, (_, at) in enumerate(split):
        folds[at] = number
    orders = {name: _out_of_fold(learn, values, kept, folds, target) for name, learn in learners.items()}
    found, resampled = areas(kept, [order for order, _ in orders.values()], groups, folds)
    by_name = dict(zip(orders, zip(found, resampled, strict=True), strict=True))
    candidates = {}
    for name, (_, passes) in orders.items():
        traces = LabelledScores(passes.astype(float), kept, groups, grouped)
        weights = typed_weights(learners[name](values, kept))
        point = operating_points(traces, [1.0])[1.0]
        candidates[name] = Candidate(weights, percentiles(*by_name[name]), point)
    (fitted, fitted_drawn), (force, force_drawn) = by_name["fitted"], by_name["in force"]
    return candidates, percentiles(fitted - force, fitted_drawn - force_drawn)


def _out_of_fold(
    learn: Learn, values: Floats, kept: Bools, folds: NDArray[np.intp], target: float
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
