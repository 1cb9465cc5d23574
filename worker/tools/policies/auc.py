"""The area under the ROC curve: how often a trace worth keeping has the higher value; ties count half."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from knowledgepulse_worker.tools.policies.intervals import (
    Bools,
    Estimate,
    Floats,
    Integers,
    percentiles,
    resampled_counts,
)

CHANCE = 0.5
"""The AUC of a random order."""


def auc(kept: Bools, values: Floats, counts: Integers | None = None) -> Floats:
    """Return the AUC of values.

    Args:
        kept: whether each trace is worth keeping, shape (n,).
        values: the values that rank the traces, shape (n,).
        counts: number of draws of each trace in each resample, shape (resamples, n); by default, every trace
            once.

    Returns:
        Shape (resamples,), NaN for resamples of only one kind of trace; a single number without counts.
    """
    counted = np.ones((1, len(kept)), dtype=np.int64) if counts is None else counts
    areas = _area(*_wins(kept, values, counted))
    return areas[0] if counts is None else areas


def areas(
    kept: Bools, columns: Sequence[Floats], groups: Integers, strata: Integers | None = None
) -> tuple[list[float], Floats]:
    """Return the AUC of each column, and of each on resamples of whole groups.

    Args:
        kept: whether each trace is worth keeping, shape (n,).
        columns: the values that rank the traces, each of shape (n,).
        groups: group index of each trace, from 0, shape (n,).
        strata: compare only traces of equal number, such as those of one task or of one fold, shape (n,).

    Returns:
        The AUCs, and shape (columns, resamples).
    """
    parts = [np.arange(len(kept))]
    if strata is not None:
        parts = [at for one in np.unique(strata) if kept[at := np.flatnonzero(strata == one)].any()]
    whole = np.ones((1, len(kept)), dtype=np.int64)

    def of(column: Floats, counts: Integers) -> Floats:
        wins = [_wins(kept[at], column[at], counts[:, at]) for at in parts]
        return _area(sum((one for one, _ in wins), np.zeros(1)), sum((one for _, one in wins), np.zeros(1)))

    resampled = np.hstack([[of(column, counts) for column in columns] for counts in resampled_counts(groups)])
    return [float(of(column, whole)[0]) for column in columns], resampled


def estimates(
    kept: Bools, columns: Sequence[Floats], groups: Integers, strata: Integers | None = None
) -> list[Estimate]:
    """Return the AUC of each column with its interval; see :func:`areas`."""
    values, resampled = areas(kept, columns, groups, strata)
    return [percentiles(value, drawn) for value, drawn in zip(values, resampled, strict=True)]


def _area(wins: Floats, pairs: Floats) -> Floats:
    found: Floats = np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
    return found


def _wins(kept: Bools, values: Floats, counts: Integers) -> tuple[Floats, Floats]:
    """Return the pairs that the trace worth keeping wins, and all pairs, by resample."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(values[order]) > 0])
    ordered = np.take(counts, order, axis=1)
    positive = np.add.reduceat(ordered * kept[order], starts, axis=1)
    negative = np.add.reduceat(ordered, starts, axis=1) - positive
    below = np.cumsum(negative, axis=1) - negative / 2
    pairs = (positive.sum(axis=1) * negative.sum(axis=1)).astype(np.float64)
    return (positive * below).sum(axis=1).astype(np.float64), pairs
