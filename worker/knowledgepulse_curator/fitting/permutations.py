"""Do labels say anything about traces? A permutation test of the value that is fitted to them.

The test asks how often labels that say nothing would seem to say as much. Whole groups exchange their labels,
so that runs of one task stay as alike as they are: labels that depend on the task alone are not taken for
labels that depend on the run. It has no minimum of labels: few, or those of one kind, are seldom surprising.

The order that is tested is that of a ridge regression on the facts and words of the learned value, out of
fold: its equations are solved once for all permutations. See ``docs/curators/evidence.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np

from knowledgepulse_curator.fitting import logistic
from knowledgepulse_curator.labels.groups import GroupOrigin
from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.tools.policies.estimates import Array

with extra("policy"):
    from scipy.stats import rankdata

PERMUTATION_LEVEL = 0.99
"""The share of permutations that the AUC has to exceed."""

PERMUTATION_LEVEL_BY_WORDS = 0.9995
"""The share where groups were found by words, which leave some runs of a task in different groups."""

DIVISIONS = 10
"""Number of divisions into folds, over which the order is averaged: with few labels, it varies among them."""

PERMUTATIONS = 2_000

RIDGE_PENALTY = 100.0
"""Of the squares of the weights, for columns whose deviation is 1."""

_EPSILON = 1e-9
_MAX_CELLS = 10_000_000


def level(grouped: Mapping[GroupOrigin, int]) -> float:
    """Return the share that is asked for; ``grouped``: the number of traces by how their group was found."""
    return PERMUTATION_LEVEL_BY_WORDS if grouped["similar words"] else PERMUTATION_LEVEL


def surprise(columns: Array, kept: Array, groups: Array, checked: Array) -> float:
    """Return the share of permuted labels whose AUC is lower than that of the labels.

    The labels themselves count as one permutation, so that the share is below 1. AUCs are of traces to which
    the order was not fitted.

    Args:
        columns: what the traces are ordered by, shape (n, columns), all in comparable units.
        kept: the labels.
        groups: the group of each trace, from 0.
        checked: the labels by which the value is judged; it is fitted to all.
    """
    left, values, _ = np.linalg.svd(columns - columns.mean(axis=0), full_matrices=False)
    permuted = _permuted(kept, groups)
    blocks = chain([np.vstack([kept, next(permuted)])], permuted)  # each block solves all equations again
    observed, *others = np.hstack(
        [
            _aucs(labels[:, checked], _orders(left * values, labels.astype(float), groups)[:, checked])
            for labels in blocks
        ]
    )
    return float(np.mean(np.array([*others, np.inf]) < observed - _EPSILON))


def scaled(values: Mapping[str, Array]) -> Array:
    """Return values by name, each of shape (n,), as columns in deviations from their means, limited."""
    columns = np.column_stack([*values.values()])
    deviations = [column.std() if logistic.varies(column) else np.inf for column in columns.T]
    limited: Array = np.clip(
        (columns - columns.mean(axis=0)) / deviations, -logistic.MAX_DEVIATIONS, logistic.MAX_DEVIATIONS
    )
    return limited


def _permuted(kept: Array, groups: Array) -> Iterator[Array]:
    """Yield labels of which each group has those of another, repeated or shortened at random to its size.

    They are in blocks of shape (rows, n), :data:`PERMUTATIONS` rows in total.
    """
    rng = np.random.default_rng(0)
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    in_order = np.repeat(np.arange(len(sizes)), sizes)
    number = np.arange(len(groups)) - starts[in_order]  # of each member within its group
    at_once = max(1, _MAX_CELLS // len(groups))
    for start in range(0, PERMUTATIONS, at_once):
        rows = min(at_once, PERMUTATIONS - start)
        taken, given = np.argsort(groups + rng.random((2, rows, len(groups))), axis=2)
        other = rng.permuted(np.tile(np.arange(len(sizes)), (rows, 1)), axis=1)[:, in_order]
        members = np.take_along_axis(taken, starts[other] + number % sizes[other], axis=1)
        permuted = np.empty(members.shape, bool)
        np.put_along_axis(permuted, given, kept[members], axis=1)
        yield permuted


def _orders(columns: Array, labels: Array, groups: Array) -> Array:
    """Return the orders of the traces by regressions on other folds, one for each row of labels."""
    orders = np.zeros_like(labels)
    penalty = RIDGE_PENALTY * np.eye(columns.shape[1])
    for seed in range(DIVISIONS):
        folds = logistic.folds_of(groups, seed)
        for fold in np.unique(folds):
            at, others = folds == fold, folds != fold
            fitted, told = columns[others], labels[:, others]
            told = told - told.mean(axis=1, keepdims=True)
            towards = np.linalg.solve(fitted.T @ fitted + penalty, columns[at].T)
            orders[:, at] += np.linalg.multi_dot([towards.T, fitted.T, told.T]).T
    return orders


def _aucs(labels: Array, orders: Array) -> Array:
    """Return the AUC of each row; NaN where all labels are of one kind."""
    kept = labels.sum(axis=1)
    pairs = kept * (labels.shape[1] - kept)
    wins = (rankdata(orders, axis=1) * labels).sum(axis=1) - kept * (kept + 1) / 2
    area: Array = np.divide(wins, pairs, out=np.full(len(labels), np.nan), where=pairs > 0)
    return area
