"""Weights that order labelled traces, within what a policy may say: each 0 or more, together 1.

Logistic regression whose coefficients v are 0 or more and are drawn to the proportions of the weights in
force, w0: it minimizes ``sum(log(1 + exp(-y (x @ v + b)))) + PRIOR * |v - sum(v) * w0|²``, which is convex.
``w = v / sum(v)`` orders the traces as the regression does. ``x`` is the dimensions with what the overrides
add to a score, whatever the weights: as the weights' sum is 1, that can be added to each dimension. It is in
units of the standard deviation of the score in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.scoring import Score, apply_overrides
from knowledgepulse_worker.tools.policies.estimates import Array, resampled_counts
from knowledgepulse_worker.tools.policies.labelled_traces import Labelled

with extra("policy"):
    from scipy.optimize import minimize
    from scipy.special import expit

PRIOR = 1.0
"""Chosen on three of the corpora of tests/policies."""

HELD = DIMENSIONS.index("outcome_confidence")

REFITS = 20

SHARE = 0.1
"""Share of the traces that should pass if the policy in force lets none or all pass."""

_DECIMALS = 3
_NEUTRAL = 0.5
_NOTHING = 1e-9


def values_of(scores: Sequence[Score], *, hold: bool) -> Array:
    """Return what the weights average, shape (traces, 4); ``hold``: all have the mean outcome confidence."""
    values = np.array([astuple(one.dimensions) for one in scores])
    if hold:
        values[:, HELD] = values[:, HELD].mean()
    values[["single_thought" in one.overrides for one in scores]] = _NEUTRAL  # its score is of the override
    added = np.array([[apply_overrides(_NEUTRAL, one.overrides) - _NEUTRAL] for one in scores])
    shifted: Array = values + added
    return shifted


def fitted_weights(values: Array, kept: Array, start: Array, *, hold: bool) -> Array:
    """Return the weights that tell the traces worth keeping apart; those in force if no dimension does.

    Args:
        values: of :func:`values_of`, shape (n, 4).
        kept: whether each trace is worth keeping, shape (n,), both kinds.
        start: the weights in force, shape (4,).
        hold: leave the weight of outcome confidence as it is, which must be less than 1.
    """
    free = np.arange(len(start)) != (HELD if hold else len(start))
    share = start[free].sum()
    near = start[free] / share
    parts = values[:, free] + (1 / share - 1) * (values[:, [HELD]] if hold else 0)
    spread = (values @ start).std()
    parts = (parts - parts.mean(axis=0)) / (spread if spread > _NOTHING else 1)
    signs = np.where(kept, 1.0, -1.0)
    bend = np.eye(len(near)) - near[:, None]

    def loss(point: Array) -> tuple[float, Array]:
        coefficients, intercept = point[:-1], point[-1]
        margins = signs * (parts @ coefficients + intercept)
        pull, bent = -signs * expit(-margins), bend @ coefficients
        gradient = np.r_[parts.T @ pull + 2 * PRIOR * bend.T @ bent, pull.sum()]
        value = np.logaddexp(0, -margins).sum() + PRIOR * bent @ bent
        return float(value) / len(kept), gradient / len(kept)

    bounds = [(0, None)] * len(near) + [(None, None)]
    found = minimize(loss, np.r_[near, 0.0], jac=True, bounds=bounds, method="L-BFGS-B").x[:-1]
    weights = start.copy()
    if found.sum() > _NOTHING:
        weights[free] = found / found.sum() * share
    return weights


def rounded_weights(weights: Array) -> dict[str, float]:
    """Return weights to type, by dimension: of three decimals, and together 1."""
    thousandths = np.round(weights * 10**_DECIMALS).astype(int)
    thousandths[weights.argmax()] += 10**_DECIMALS - thousandths.sum()
    return {name: int(one) / 10**_DECIMALS for name, one in zip(DIMENSIONS, thousandths, strict=True)}


def expected_changes(labelled: Labelled, others: Sequence[Score], policy: Policy) -> list[float]:
    """Return for each other trace how often refits on resampled groups decide otherwise than the policy.

    A refit lets as many traces pass as the policy. Outcome confidence is held constant.

    ``labelled``: traces of one domain with labels of both kinds; ``others``: the scores of those without one.
    """
    scores = labelled.scores(policy)
    everything = [*scores, *others]
    weights = np.array([weight for _, weight in policy.profile(everything[0].domain).weights])
    hold = bool(weights[HELD] < 1)
    values = values_of(everything, hold=hold)
    passing = sum(one.reaches_threshold for one in everything)
    if not 0 < passing < len(everything):
        passing = max(1, round(SHARE * len(everything)))
    kept = labelled.kept
    now, changed = _best(values @ weights, passing), []
    for drawn in next(resampled_counts(labelled.groups))[:REFITS]:
        at = np.repeat(np.arange(len(kept)), drawn)
        if 0 < kept[at].sum() < len(at):
            fitted = fitted_weights(values[at], kept[at], weights, hold=hold)
            changed.append(_best(values @ fitted, passing) != now)
    share = np.mean(changed, axis=0) if changed else np.zeros(len(everything))
    return [float(one) for one in share[len(scores) :]]


def _best(values: Array, count: int) -> Array:
    best: Array = values >= np.sort(values)[-count]
    return best
