"""Traces with their labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.policies.intervals import Bools, Estimate, Integers
from knowledgepulse_worker.tools.policies.labels import Label, Labels, label_of, native_id_of

LEAK_AUC = 0.95
"""A dimension with this AUC or more, or one minus it or less, contains the label."""

LEAK_AGREEMENT = 0.99
"""Labels that equal ``metadata.success`` in this share of the traces are assumed to be derived from it."""


@dataclass(frozen=True)
class Labelled:
    """A trace with its label."""

    record: ScoredRecord
    label: Label
    kept: bool

    @property
    def group(self) -> str:
        """The unit of resampling: the label's group, or else the trace with its repeats."""
        return f"trace {self.label.id}" if self.label.group is None else f"group {self.label.group}"


def matched(records: Sequence[ScoredRecord], labels: Labels, min_reward: float) -> list[Labelled]:
    """Return the traces that have a label, of both kinds.

    Raises:
        InputError: no label matches a trace, or all matching labels are equal.
    """
    labelled = [
        Labelled(record, label, label.is_kept(min_reward))
        for record in records
        if (label := label_of(record, labels)) is not None
    ]
    if not labelled:
        raise InputError(no_match(records, labels))
    kept = sum(one.kept for one in labelled)
    if kept in (0, len(labelled)):
        verdict = "worth keeping" if kept else "not worth keeping"
        raise InputError(f"all {len(labelled)} labels that match a trace say {verdict}; it takes both kinds")
    return labelled


def by_domain(labelled: Iterable[Labelled], policy: Policy) -> dict[str, list[Labelled]]:
    """Return labelled traces by the policy's profile, in the profiles' order."""
    found: defaultdict[str, list[Labelled]] = defaultdict(list)
    for one in labelled:
        found[policy.profile(one.record.task_domain).domain].append(one)
    return dict(sorted(found.items()))


def no_match(records: Sequence[ScoredRecord], labels: Labels) -> str:
    """Say that no label matches a trace, and which id is meant."""
    first, given = records[0], next(iter(labels))
    native_id = native_id_of(first)
    named = f"native_id {printable(native_id)}" if native_id else "native_id, which the first one lacks"
    return (
        f"none of the {len(labels)} labels matches one of the {len(records)} traces: a label's id is that of "
        f"the trace, such as {printable(first.id)}, or its metadata's {named}; not {printable(given)}"
    )


class Columns(NamedTuple):
    """What labels say of traces, shape (traces,) each."""

    kept: Bools
    groups: Integers  # index of the unit of resampling, from 0
    grouped: Bools  # whether that is a group of the labels, not the trace alone
    succeeded: Bools  # whether the label equals `metadata.success`

    @property
    def fewer(self) -> int:
        """The number of traces of the rarer kind: worth keeping, or not."""
        return int(min(self.kept.sum(), (~self.kept).sum()))

    @property
    def counts(self) -> dict[str, Any]:
        """The members of :class:`LabelCounts`."""
        return {
            "traces": len(self.kept),
            "kept": int(self.kept.sum()),
            "groups": int(self.groups.max()) + 1,
            "agreement": float(self.succeeded.mean()),
        }


@dataclass(frozen=True, kw_only=True)
class LabelCounts:
    """The labelled traces of a domain."""

    domain: str  # the profile's name, or that of all domains
    traces: int
    kept: int  # number of traces worth keeping
    groups: int  # number of independent groups
    agreement: float  # share of the labels that equal `metadata.success`


def columns_of(labelled: Sequence[Labelled]) -> Columns:
    """Return labelled traces by column."""
    return Columns(
        np.array([one.kept for one in labelled]),
        np.unique([one.group for one in labelled], return_inverse=True)[1],
        np.array([one.label.group is not None for one in labelled]),
        np.array([one.kept == one.record.success for one in labelled]),
    )


def leaks_label(alone: Estimate) -> bool:
    """Return whether a dimension of this AUC contains the label."""
    return not 1 - LEAK_AUC < alone.value < LEAK_AUC
