"""Fit weights to labels, within what a policy may say: each 0 or more, together 1.

Logistic regression whose coefficients are 0 or more and are drawn to the proportions of the policy in force:
``sum(log(1 + exp(-y (x @ v + b)))) + PRIOR * |v - sum(v) * w0|²``, a convex problem. The weights are
``v / sum(v)``: their order of the traces is that of the regression. Overrides count, as they shift a score
whatever the weights. Outcome confidence, which often is the label itself, keeps its weight and is held
constant unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.policy import Weights
from knowledgepulse_worker.scoring import Score, quality_score
from knowledgepulse_worker.scoring.score import Dimensions

with extra("policy"):
    from scipy.optimize import minimize
    from scipy.special import expit

PRIOR = 1.0
FOLDS = 5

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
HELD = tuple(Weights.model_fields).index("outcome_confidence")


def values_of(scores: Sequence[Score], *, hold: bool) -> Floats:
    """Return what the weights average, shape (traces, 4): the dimensions, with what the overrides add.

    Args:
        scores: the traces' scores.
        hold: give every trace the mean outcome confidence.
    """
    dimensions = np.array([astuple(one.dimensions) for one in scores])
    if hold:
        dimensions[:, HELD] = dimensions[:, HELD].mean()
    flat = Weights(complexity=1, novelty=0, tool_diversity=0, outcome_confidence=0)
    shifts = np.array([quality_score(Dimensions(0.5, 0, 0, 0), one.overrides, flat) - 0.5 for one in scores])
    single = np.array(["single_thought" in one.overrides for one in scores])
    dimensions[single] = 0.5
    return dimensions + shifts[:, None]


def fitted_weights(values: Floats, kept: Bools, start: Floats, *, hold: bool, prior: float = PRIOR) -> Floats:
    free = np.arange(len(start)) != HELD if hold else np.ones(len(start), bool)
    rest = 1 - start[free].sum() if hold else 0.0
    if rest >= 1:
        return start
    parts = values[:, free] + (rest / (1 - rest) * values[:, [HELD]] if hold else 0)
    parts = parts - parts.mean(axis=0)
    signs = np.where(kept, 1.0, -1.0)
    to = start[free] / (1 - rest)
    away = np.eye(len(to)) - to[:, None]

    def loss(point: Floats) -> tuple[float, Floats]:
        coefficients, intercept = point[:-1], point[-1]
        margins = signs * (parts @ coefficients + intercept)
        pull = -signs * expit(-margins)
        bent = away @ coefficients
        value = np.logaddexp(0, -margins).sum() + prior * bent @ bent
        gradient = np.r_[parts.T @ pull + 2 * prior * away.T @ bent, pull.sum()]
        return value / len(kept), gradient / len(kept)

    bounds = [(0, None)] * len(to) + [(None, None)]
    found = minimize(loss, np.r_[to, 0.0], jac=True, bounds=bounds, method="L-BFGS-B").x[:-1]
    weights = start.copy()
    if found.sum() > 1e-9:
        weights[free] = found / found.sum() * (1 - rest)
    return weights
