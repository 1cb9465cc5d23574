"""Traces with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.policies.intervals import Estimate
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

    Args:
        records: scored under any policy.
        labels: by the id that they give.
        min_reward: the lowest reward of a trace worth keeping.

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


def no_match(records: Sequence[ScoredRecord], labels: Labels) -> str:
    """Say that no label matches a trace, and which id is meant."""
    first, given = records[0], next(iter(labels))
    native_id = native_id_of(first)
    named = f"native_id {printable(native_id)}" if native_id else "native_id, which the first one lacks"
    return (
        f"none of the {len(labels)} labels matches one of the {len(records)} traces: a label's id is that of "
        f"the trace, such as {printable(first.id)}, or its metadata's {named}; not {printable(given)}"
    )


def kept_and_groups(labelled: Sequence[Labelled]) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return whether each trace is worth keeping, and the index of its group, from 0; shape (n,) each."""
    kept = np.array([one.kept for one in labelled])
    return kept, np.unique([one.group for one in labelled], return_inverse=True)[1]


def leaks_label(alone: Estimate) -> bool:
    """Return whether a dimension of this AUC contains the label."""
    return not 1 - LEAK_AUC < alone.value < LEAK_AUC
