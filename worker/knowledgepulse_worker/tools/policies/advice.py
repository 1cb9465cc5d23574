"""Advice beside the score: features at no model's cost that told kept traces apart on public corpora.

They are no part of ``quality_score``, which is the reference's. tests/policies says where they hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from knowledgepulse_worker.scoring import Features, ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import Estimate, estimates
from knowledgepulse_worker.tools.policies.labelled_traces import Labelled

Feature = Callable[[Features, float], float]

FEATURES: Mapping[str, Feature] = {
    "shorter than usual": lambda one, usual: -one.length / usual,
    "fewer repeated calls": lambda one, _: -one.repeated,
    "fewer failed calls": lambda one, _: -one.failed,
}
"""By name, the value of a trace's features and of the usual length; a higher one should be better.

These told kept traces apart on two of three corpora or more and pointed the wrong way on none.
"""


@dataclass(frozen=True)
class Advice:
    """What a feature tells of the labels."""

    auc: Estimate  # its AUC over all traces
    within: Estimate | None  # over pairs of one group, such as a task; None unless labels share groups


def usual_lengths(records: Iterable[ScoredRecord]) -> dict[str, float]:
    """Return the median number of steps by task domain, of the traces whose content was read."""
    lengths: defaultdict[str, list[int]] = defaultdict(list)
    for record in records:
        if record.content is not None:
            lengths[record.task_domain].append(record.content.features.length)
    return {domain: median(each) for domain, each in lengths.items()}


def advise(
    labelled: Labelled, usual: Mapping[str, float], features: Mapping[str, Feature] = FEATURES
) -> dict[str, Advice]:
    """Return what features tell of the labels; empty without content or with labels of one kind.

    ``usual``: of :func:`usual_lengths`.
    """
    kept, groups = labelled.kept, labelled.groups
    contents = [(one.record.content, one.record.task_domain) for one in labelled.traces]
    if not labelled.fewer or any(content is None for content, _ in contents):
        return {}
    columns = {
        name: np.array([feature(one.features, usual[domain]) for one, domain in contents if one], float)
        for name, feature in features.items()
    }
    telling = {name: column for name, column in columns.items() if np.ptp(column)}
    overall = estimates(kept, [*telling.values()], groups)
    shared = groups.max() + 1 < len(groups)
    within = estimates(kept, [*telling.values()], groups, groups) if shared else [None] * len(telling)
    found = zip(telling, overall, within, strict=True)
    return {name: Advice(auc, inside) for name, auc, inside in found}


def remarks(features: Features, usual: float) -> list[str]:
    """Return what of a trace speaks against it; ``usual``: the usual length in its domain."""
    found = {"repeated": features.repeated, "failed": features.failed}
    longer = [f"{features.length / usual:.1f} times as long as usual"] * (features.length > usual)
    return longer + [f"{share:.0%} of the calls {name}" for name, share in found.items() if share]
