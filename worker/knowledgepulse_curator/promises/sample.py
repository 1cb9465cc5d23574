"""Which labels may promise something, and by which shares their traces would pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np

from knowledgepulse_curator.labels.groups import groups_of
from knowledgepulse_curator.labels.labels import JUDGE_PREFIX, OUTCOME, Label
from knowledgepulse_curator.promises.certificate import SHARES
from knowledgepulse_curator.promises.ranks import ranked
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import Array

Sampling = Literal["random", "passing", "step", "feedback"]
"""How the labelled traces were chosen."""

_CHOSEN = ("random", "passing")


class Sample:
    """Labelled traces that were chosen in one way.

    Args:
        pairs: the traces that may count, with their labels.
        sampling: how they were chosen.
        passes: whether each passes by each of the tested shares, shape (shares, n).
        shares: these shares; None stands for what passes now.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[ScoredRecord, Label]],
        sampling: Sampling,
        passes: Array,
        shares: Sequence[float | None] = SHARES,
    ) -> None:
        counting = passes[-1]
        self.pairs = [pair for pair, counts in zip(pairs, counting, strict=True) if counts]
        self.sampling, self.passes, self.shares = sampling, passes[:, counting], shares
        groups = groups_of([record for record, _ in self.pairs], [label for _, label in self.pairs])
        self.tasks = np.unique([name for name, _ in groups], return_inverse=True)[1]

    @property
    def agents(self) -> Counter[str]:
        """The numbers of labels by agent; of traces that name none, under an empty name."""
        return Counter(record.agent_id or "" for record, _ in self.pairs)


class Stream:
    """All scored traces, and by which shares they would pass.

    Attributes:
        domains: the indices of the traces of each domain.
        width, now: see :func:`~knowledgepulse_curator.promises.ranks.ranked`.
    """

    def __init__(self, records: Sequence[ScoredRecord], policy: Policy) -> None:
        self.records, self.policy = records, policy
        self.width, self.now = ranked(records, policy)
        names = np.array([policy.profile(record.task_domain).domain for record in records])
        self.domains = {str(name): np.flatnonzero(names == name) for name in np.unique(names)}

    def passing(self, domain: str, share: float | None) -> list[ScoredRecord]:
        """Return the traces of a domain that would pass by a share; by None, those that pass now."""
        at = self.domains[domain]
        passes = self.now[at] if share is None else self.width[at] <= SHARES.index(share)
        return [self.records[place] for place in at[passes].tolist()]


def of_one_kind(labels: Sequence[Label]) -> list[Label]:
    """Return the labels of people if there are any, else those of outcomes, else those of judges."""
    kinds: defaultdict[int, list[Label]] = defaultdict(list)
    for label in labels:
        kinds[kind_of(label.source)].append(label)
    return kinds[min(kinds)] if kinds else []


def kind_of(source: str | None) -> int:
    """Return 0 for a label of a person, 1 for a trace's own outcome, 2 for a judge's."""
    return 2 if (source or "").startswith(JUDGE_PREFIX) else int(source == OUTCOME)


def is_chosen(label: Label) -> bool:
    """Return whether a label says that its trace was chosen at random."""
    return label.sampling in _CHOSEN


def sample_of(
    pairs: Sequence[tuple[ScoredRecord, Label]], width: Array, now: Array, policy: Policy, odds: float | None
) -> Sample:
    """Return the labels that were chosen in one way.

    Those of contributed traces, and any under a cap for agents, tell only of what passes now.

    ``width``, ``now``: of the labelled traces. ``odds``: of feedback, to take only that; None for labels of
    traces that were chosen at random.
    """
    at = np.array(
        [label.sampling is None if odds is not None else is_chosen(label) for _, label in pairs], bool
    )
    chosen = [pair for pair, counted in zip(pairs, at, strict=True) if counted]
    if odds is not None:
        return Sample(chosen, "feedback", now[None, at], [None])
    passing = any(label.sampling == "passing" for _, label in chosen)
    if passing or policy.agent_cap < 1:
        return Sample(chosen, "passing" if passing else "random", now[None, at], [None])
    return Sample(chosen, "random", np.array([width[at] <= share for share in range(len(SHARES))]))
