"""Compare policies on the same labels by paired differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.terminal.reports import new_table
from knowledgepulse_worker.texts import counted
from knowledgepulse_worker.tools.policies.estimates import (
    Estimate,
    areas,
    percentiles,
    ratios,
    signed,
    with_interval,
)
from knowledgepulse_worker.tools.policies.labelled_traces import (
    OUTCOME,
    SUPPORT,
    Labelled,
    held_scores,
    matched,
)
from knowledgepulse_worker.tools.policies.labels import Labels

FIGURES = ("AUC", "precision", "recall", "passing")
"""``passing`` is the share of all traces that pass. The precision is None if no trace passes."""

Figures = dict[str, Estimate | None]


@dataclass(frozen=True)
class Compared:
    """The comparison of several policies on the labels of a domain.

    Attributes:
        domain: the profile's name in the first policy.
        held: whether outcome confidence is held constant for the AUC, as labels equal `metadata.success`.
        policies: the values of :data:`FIGURES` by the policies' digests.
        differences: the figures of each later policy minus those of the first.
    """

    domain: str
    traces: int
    held: bool
    policies: dict[str, Figures]
    differences: dict[str, Figures]


def compare(
    records: Sequence[ScoredRecord], labels: Labels, policies: Sequence[Policy], *, min_reward: float = 0.5
) -> list[Compared]:
    """Compare two or more policies in each domain of the first policy that has enough labels."""
    labelled = matched(records, labels, min_reward).by_domain(policies[0])
    return [_compare(name, each, policies) for name, each in labelled.items() if each.has(SUPPORT, SUPPORT)]


def comparison_tables(compared: Sequence[Compared]) -> Iterator[Table | str]:
    """Yield the figures of each domain, and a sentence for each difference."""
    for one in compared:
        held = (
            "; AUC with outcome confidence constant, as the labels equal metadata.success" if one.held else ""
        )
        yield ""
        yield f"{one.domain}: the policies on the same {counted(one.traces, 'trace')}{held}"
        table = new_table("policy", *FIGURES)
        for digest, figures in one.policies.items():
            table.add_row(digest, *(with_interval(figure) for figure in figures.values()))
        for digest, figures in one.differences.items():
            table.add_row(f"{digest} - first", *(signed(figure) for figure in figures.values()))
        yield table
        yield from (f"change: {one.domain}: {_sentence(*change)}" for change in one.differences.items())


def _sentence(digest: str, difference: Figures) -> str:
    known = [(name, one) for name in FIGURES[:3] if (one := difference[name])]
    better = ", ".join(name for name, one in known if one.low > 0)
    worse = ", ".join(name for name, one in known if one.high < 0)
    parts = [f"{how} {names}" for how, names in (("higher", better), ("lower", worse)) if names]
    return f"{digest} has {' and '.join(parts)}" if parts else f"the labels show no difference of {digest}"


def _compare(name: str, labelled: Labelled, policies: Sequence[Policy]) -> Compared:
    kept, groups, held = labelled.kept, labelled.groups, labelled.equals_success
    by_policy = [labelled.scores(policy) for policy in policies]
    orders = [held_scores(labelled, policy, OUTCOME if held else None) for policy in policies]
    passes = np.array([[score.reaches_threshold for score in scores] for scores in by_policy])
    hits, every = passes & kept, np.ones_like(passes)
    shares = ratios(hits, passes, groups), ratios(hits, every & kept, groups), ratios(passes, every, groups)
    values, resampled = map(np.array, zip(areas(kept, orders, groups), *shares, strict=True))

    def figures(at: int, minus: int | None = None) -> Figures:
        found, each = values[:, at], resampled[:, at]
        if minus is not None:
            found, each = found - values[:, minus], each - resampled[:, minus]
        rows = zip(FIGURES, found, each, strict=True)
        return {
            figure: None if np.isnan(value) else percentiles(float(value), row) for figure, value, row in rows
        }

    digests = dict(enumerate(policy.digest for policy in policies))
    return Compared(
        name,
        len(kept),
        held,
        policies={digest: figures(at) for at, digest in digests.items()},
        differences={digest: figures(at, 0) for at, digest in digests.items() if at},
    )
