"""Do labels say anything about traces? A permutation test of the value that is fitted to them.

The test asks how often labels that say nothing would seem to say as much. Whole groups exchange their labels,
so that runs of one task stay as alike as they are: labels that depend on the task alone are not taken for
labels that depend on the run. It needs fewer labels than an interval of the AUC does, and has no minimum of
them: few labels, or labels of one kind, are seldom surprising.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import NormalDist

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.tools.policies import logistic
from knowledgepulse_worker.tools.policies.estimates import Array, auc
from knowledgepulse_worker.tools.policies.groups import GroupOrigin

with extra("policy"):
    from scipy.special import expit

PERMUTATION_LEVEL = 0.99
"""The share of permutations that the AUC has to exceed."""

PERMUTATION_LEVEL_BY_WORDS = 0.9995
"""The share where groups were found by words, which leave some runs of a task in different groups."""

DIVISIONS = 3
"""Number of divisions into folds, over which the AUC is averaged: with few labels, it varies among them."""

PERMUTATIONS = 40

_NEWTON_STEPS = 7
"""Of Newton's method, after which the weights hardly change."""

_EPSILON = 1e-9


def surprising(grouped: Mapping[GroupOrigin, int]) -> float:
    """Return how many standard deviations are asked for; the AUCs of permutations are nearly normal.

    ``grouped``: the number of traces by how their group was found.
    """
    return NormalDist().inv_cdf(PERMUTATION_LEVEL_BY_WORDS if grouped["similar words"] else PERMUTATION_LEVEL)


def surprise(values: dict[str, Array], kept: Array, groups: Array, checked: Array) -> float:
    """Return by how many standard deviations the AUC exceeds that of permuted labels; 0 if it cannot be told.

    Args:
        values: dimensions and facts by name, each of shape (n,).
        kept: the labels.
        groups: the group of each trace, from 0.
        checked: the labels by which the value is judged; it is fitted to all.
    """
    folds = np.array([logistic.folds_of(groups, seed) for seed in range(DIVISIONS)])
    splits, numbers = np.divmod(np.arange(DIVISIONS * (folds.max() + 1)), folds.max() + 1)
    tested = folds[splits] == numbers[:, None]
    columns = _scaled(np.column_stack([*values.values()]), ~tested)
    parts = [np.flatnonzero(part & checked) for part in tested]
    found, *others = (_auc(columns, labels, tested, parts) for labels in (kept, *_permuted(kept, groups)))
    if not np.isfinite(found) or not np.nanstd(others) > 0:
        return 0.0
    return float((found - np.nanmean(others)) / np.nanstd(others))


def _permuted(kept: Array, groups: Array) -> Iterator[Array]:
    """Yield labels of which each group has those of another, repeated or shortened at random to its size."""
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(groups == group) for group in range(int(groups.max()) + 1)]
    for _ in range(PERMUTATIONS):
        permuted = kept.copy()
        for at, other in zip(members, rng.permutation(len(members)), strict=True):
            permuted[at] = kept[rng.permutation(np.resize(rng.permutation(members[other]), len(at)))]
        yield permuted


def _auc(columns: Array, kept: Array, tested: Array, parts: list[Array]) -> float:
    """Return the AUC of values that were fitted to the other folds, over pairs of one fold.

    ``columns``: shape (folds, n, 1 + values). ``tested``: the traces of each fold of each division, shape
    (folds, n). ``parts``: of these, the indices of the traces that are judged.
    """
    weights = _fitted(columns, kept, ~tested)
    odds = np.where(tested, np.einsum("fnp,fp->fn", columns, weights), 0.0)
    once = np.ones((1, len(kept)), np.int64)
    found = [auc(kept, order, once, [at])[0] for order, at in zip(odds, parts, strict=True) if len(at)]
    return float(np.nanmean(found)) if np.isfinite(found).any() else np.nan


def _scaled(columns: Array, fitted: Array) -> Array:
    """Return the columns in units of the traces that each fold is fitted to, after a column of ones."""
    counts = fitted.sum(axis=1)[:, None]
    means = fitted @ columns / counts
    deviations = np.sqrt(np.maximum(fitted @ columns**2 / counts - means**2, 0))
    deviations[deviations < _EPSILON * (1 + np.abs(means))] = np.inf
    scaled = np.clip(
        (columns - means[:, None]) / deviations[:, None], -logistic.MAX_DEVIATIONS, logistic.MAX_DEVIATIONS
    )
    return np.concatenate([np.ones((*scaled.shape[:2], 1)), scaled], axis=2)


def _fitted(columns: Array, kept: Array, fitted: Array) -> Array:
    """Return the weights of the logistic regressions of all folds at once, by Newton's method.

    scikit-learn fits one at a time, which takes a hundred times as long for so many small ones.
    """
    weights, penalty = (
        np.zeros((len(columns), columns.shape[2])),
        np.eye(columns.shape[2]) / logistic.REGULARISATION,
    )
    penalty[0, 0] = _EPSILON  # of the intercept
    for _ in range(_NEWTON_STEPS):
        chances = expit(np.einsum("fnp,fp->fn", columns, weights))
        slopes = np.einsum("fnp,fn->fp", columns, fitted * (kept - chances)) - weights @ penalty
        spread = (fitted * chances * (1 - chances))[..., None]
        curvature = columns.transpose(0, 2, 1) @ (spread * columns) + penalty
        weights += np.linalg.solve(curvature, slopes[..., None])[..., 0]
    return weights
