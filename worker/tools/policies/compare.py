"""Policies compared on the same labels: paired differences, so that a change is accepted on evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.auc import areas
from knowledgepulse_worker.tools.policies.intervals import (
    Estimate,
    percentiles,
    resampled_counts,
    signed,
    with_interval,
)
from knowledgepulse_worker.tools.policies.labelled import LEAK_AGREEMENT, Labelled, kept_and_groups, matched
from knowledgepulse_worker.tools.policies.labels import Labels
from knowledgepulse_worker.tools.policies.operating import SUPPORT
from knowledgepulse_worker.tools.policies.simplex import values_of
from knowledgepulse_worker.tools.policies.tables import new_table


@dataclass(frozen=True)
class Figures:
    """What a policy is worth in a domain, or the difference of two.

    Attributes:
        auc: AUC of the score.
        precision: share of the passing traces that are worth keeping; NaN if none passes.
        recall: share of the traces worth keeping that pass.
        passing: share of the traces that pass.
    """

    auc: Estimate
    precision: Estimate
    recall: Estimate
    passing: Estimate


@dataclass(frozen=True)
class Compared:
    """The policies on the labels of a domain.

    Attributes:
        domain: the task domain's profile in the first policy.
        traces: number of labelled traces.
        held: whether outcome confidence is held constant, as the labels equal ``metadata.success``.
        policies: the figures by the policies' digests.
        differences: those of each later policy minus those of the first.
    """

    domain: str
    traces: int
    held: bool
    policies: dict[str, Figures]
    differences: dict[str, Figures]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON."""
        return asdict(self)


def compare(
    records: Sequence[ScoredRecord], labels: Labels, policies: Sequence[Policy], *, min_reward: float
) -> list[Compared]:
    """Compare policies, domain by domain of the first; domains with too few labels are left out.

    Args:
        records: scored under any policy.
        labels: by the id that they give.
        policies: two or more.
        min_reward: the lowest reward of a trace worth keeping.
    """
    of_domain: dict[str, list[Labelled]] = {}
    for one in matched(records, labels, min_reward):
        of_domain.setdefault(policies[0].profile(one.record.task_domain).domain, []).append(one)
    return [
        _compare(name, labelled, policies)
        for name, labelled in sorted(of_domain.items())
        if min(kept := sum(one.kept for one in labelled), len(labelled) - kept) >= SUPPORT
    ]


def comparison_tables(compared: Sequence[Compared]) -> Iterator[Table | str]:
    """Yield the comparison of each domain, and a sentence on each difference."""
    for one in compared:
        held = (
            "; AUC with outcome confidence constant, as the labels equal metadata.success" if one.held else ""
        )
        yield ""
        yield f"{one.domain}: the policies on the same {one.traces} traces{held}"
        table = new_table("policy", "AUC", "precision", "recall", "passing")
        for digest, figures in one.policies.items():
            table.add_row(digest, *map(with_interval, _cells(figures)))
        for digest, figures in one.differences.items():
            table.add_row(f"{digest} - first", *map(signed, _cells(figures)))
        yield table
        yield from (f"change: {one.domain}: {_sentence(*item)}" for item in one.differences.items())


def _sentence(digest: str, difference: Figures) -> str:
    found = {"AUC": difference.auc, "precision": difference.precision, "recall": difference.recall}
    better = [name for name, one in found.items() if one.low > 0]
    worse = [name for name, one in found.items() if one.high < 0]
    parts = [f"higher {', '.join(better)}"] * bool(better) + [f"lower {', '.join(worse)}"] * bool(worse)
    return f"{digest} has {' and '.join(parts)}" if parts else f"the labels show no difference of {digest}"


def _cells(figures: Figures) -> list[Estimate | None]:
    cells = (figures.auc, figures.precision, figures.recall, figures.passing)
    return [None if np.isnan(one.value) else one for one in cells]


def _compare(name: str, labelled: Sequence[Labelled], policies: Sequence[Policy]) -> Compared:
    kept, groups = kept_and_groups(labelled)
    held = float(np.mean([one.kept == one.record.success for one in labelled])) >= LEAK_AGREEMENT
    orders, passes = [], []
    for policy in policies:
        scores = [one.record.under(policy) for one in labelled]
        weights = [
            [weight for _, weight in policy.profile(one.record.task_domain).weights] for one in labelled
        ]
        exact = np.array([one.quality_score for one in scores])
        orders.append((values_of(scores, hold=True) * weights).sum(axis=1) if held else exact)
        passes.append([one.reaches_threshold for one in scores])
    found, drawn = areas(kept, orders, groups)
    shares = _shares(np.array(passes), kept, np.ones((1, len(kept)), int))
    drawn_shares = np.concatenate(
        [_shares(np.array(passes), kept, counts) for counts in resampled_counts(groups)], axis=2
    )
    values = np.vstack([[found], shares[:, :, 0]])
    resampled = np.concatenate([drawn[None], drawn_shares])

    def figures(value: Any, of: Any) -> Figures:
        return Figures(*(percentiles(float(one), each) for one, each in zip(value, of, strict=True)))

    digests = [policy.digest for policy in policies]
    return Compared(
        domain=name,
        traces=len(labelled),
        held=held,
        policies={one: figures(values[:, at], resampled[:, at]) for at, one in enumerate(digests)},
        differences={
            one: figures(values[:, at] - values[:, 0], resampled[:, at] - resampled[:, 0])
            for at, one in enumerate(digests)
            if at
        },
    )


def _shares(passes: Any, kept: Any, counts: Any) -> Any:
    """Return precision, recall and the share that passes, by policy and resample.

    Args:
        passes: shape (policies, n).
        kept: shape (n,).
        counts: shape (resamples, n).
    """
    hits, passing = (passes & kept) @ counts.T, passes @ counts.T
    total = counts.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.array([hits / passing, hits / (counts @ kept), passing / total])
