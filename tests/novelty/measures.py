"""What a vector is worth, measured on runs whose task is known: pure functions of similarities and labels.

A pair of runs of one task should be more similar than a pair of two tasks (AUC), a run's nearest should be of
its own task, and the share of runs with the largest novelty should cover more tasks than as many at random.
Only runs of one ``domain`` make a pair: to tell a sum from a bug is no merit. Intervals are from a bootstrap
over whole tasks (Efron 1979), since the runs of a task are not independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHARES = (0.05, 0.10, 0.25, 0.50)
ORDERS = 30
RESAMPLES = 1_000


@dataclass(frozen=True)
class Runs:
    """The runs' labels, numbered: each of shape (runs,)."""

    tasks: NDArray[np.int64]
    agents: NDArray[np.int64]
    domains: NDArray[np.int64]

    @classmethod
    def of(cls, tasks: Sequence[object], agents: Sequence[object], domains: Sequence[object]) -> Runs:
        """Number the labels of runs; a task is one of its domain."""
        both = [f"{domain}\0{task}" for domain, task in zip(domains, tasks, strict=True)]
        return cls(
            *(
                np.unique([str(one) for one in each], return_inverse=True)[1]
                for each in (both, agents, domains)
            )
        )


@dataclass(frozen=True)
class Figure:
    """A ratio of sums over tasks, with its 95 % interval; NaN where there is nothing to measure."""

    value: float
    low: float
    high: float


def figure(parts: NDArray[np.float64], wholes: NDArray[np.float64]) -> Figure:
    """Return sum(parts) / sum(wholes), one of each a task, with an interval over tasks."""
    if not len(wholes) or not wholes.sum():
        return Figure(np.nan, np.nan, np.nan)
    drawn = np.random.default_rng(1).integers(len(wholes), size=(RESAMPLES, len(wholes)))
    sums = wholes[drawn].sum(axis=1)
    ratios = parts[drawn].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Figure(float(parts.sum() / wholes.sum()), float(low), float(high))


def auc(similarities: NDArray[np.float64], runs: Runs, *, across: bool) -> Figure:
    """Return how often a pair of one task is more similar than one of two; a tie counts half.

    Args:
        similarities: shape (runs, runs).
        runs: their labels.
        across: compare pairs of two agents, else pairs of one.
    """
    first, second = np.triu_indices(len(runs.tasks), k=1)
    comparable = (runs.domains[first] == runs.domains[second]) & (
        (runs.agents[first] != runs.agents[second]) == across
    )
    first, second = first[comparable], second[comparable]
    values, same = similarities[first, second], runs.tasks[first] == runs.tasks[second]
    others = np.sort(values[~same])
    if not len(others):
        return figure(np.empty(0), np.empty(0))
    below, upto = (
        np.searchsorted(others, values[same], "left"),
        np.searchsorted(others, values[same], "right"),
    )
    wins, pairs = (below + upto) / 2 / len(others), runs.tasks[first[same]]
    tasks = runs.tasks.max() + 1
    return figure(np.bincount(pairs, wins, tasks), np.bincount(pairs, minlength=tasks).astype(float))


def nearest(similarities: NDArray[np.float64], runs: Runs, *, across: bool) -> Figure:
    """Return how often a run's most similar run (of another agent, if ``across``) is of its own task."""
    allowed = (runs.agents[:, None] != runs.agents) if across else ~np.eye(len(runs.tasks), dtype=bool)
    same = runs.tasks[:, None] == runs.tasks
    asked = (allowed & same).any(axis=1)
    best = np.where(allowed, similarities, -np.inf).argmax(axis=1)
    tasks = runs.tasks.max() + 1
    hits = asked & (runs.tasks[best] == runs.tasks)
    return figure(
        np.bincount(runs.tasks, hits, tasks).astype(float),
        np.bincount(runs.tasks, asked, tasks).astype(float),
    )


def novelties(similarities: NDArray[np.float64], order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each run's novelty in an order of arrival: one minus the largest earlier cosine."""
    arrived = np.tril(similarities[np.ix_(order, order)], k=-1)
    arrived[np.triu_indices(len(order))] = -np.inf
    found = np.empty(len(order))
    found[order] = np.clip(1 - arrived.max(axis=1), 0, 1)
    found[order[0]] = 0.5
    return found


@dataclass(frozen=True)
class Coverage:
    """Tasks among the most novel runs: their number, that of a random and of a perfect choice, and the gain.

    Attributes:
        ratio: ``tasks`` divided by ``random``.
    """

    tasks: float
    random: float
    most: int
    ratio: Figure


def coverage(similarities: NDArray[np.float64], runs: Runs) -> tuple[dict[float, Coverage], list[float]]:
    """Return the coverage by share kept, over seeded orders, and the quartiles of novelty."""
    count, sizes = len(runs.tasks), np.bincount(runs.tasks)
    kept = {share: max(1, round(share * count)) for share in SHARES}
    covered = {share: np.zeros(len(sizes)) for share in SHARES}
    source, quartiles = np.random.default_rng(1), []
    for _ in range(ORDERS):
        order = source.permutation(count)
        novelty = novelties(similarities, order)
        quartiles.append(np.quantile(novelty, (0.25, 0.5, 0.75)))
        ranked = order[np.argsort(-novelty[order], kind="stable")]
        for share, number in kept.items():
            covered[share] += np.bincount(runs.tasks[ranked[:number]], minlength=len(sizes)) > 0
    found = {}
    for share, number in kept.items():
        by_chance = 1 - _none_drawn(count, number, sizes)
        of_task = covered[share] / ORDERS
        found[share] = Coverage(
            float(of_task.sum()), float(by_chance.sum()), min(number, len(sizes)), figure(of_task, by_chance)
        )
    return found, [float(one) for one in np.mean(quartiles, axis=0)]


def _none_drawn(count: int, number: int, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probability that ``number`` of ``count`` runs include none of a task's, by its size."""
    none = np.ones(len(sizes))
    for step in range(int(sizes.max())):
        left = max(0, count - number - step) / (count - step)
        none[sizes > step] *= left
    return none
