"""Fit weights to labels, domain by domain, and propose what the labels support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.policy import Policy, Weights
from knowledgepulse_worker.scoring import Score, ScoredRecord
from knowledgepulse_worker.tools.policies.auc import CHANCE, Bools, estimates
from knowledgepulse_worker.tools.policies.folds import FOLDS, Candidate, judged, learners_of
from knowledgepulse_worker.tools.policies.intervals import Estimate
from knowledgepulse_worker.tools.policies.labelled import Labelled, kept_and_groups, leaks_label, matched
from knowledgepulse_worker.tools.policies.labels import Labels
from knowledgepulse_worker.tools.policies.operating import (
    SUPPORT,
)
from knowledgepulse_worker.tools.policies.proposal import with_changes
from knowledgepulse_worker.tools.policies.simplex import (
    DIMENSIONS,
    HELD,
    values_of,
)
from knowledgepulse_worker.tools.policies.tune import Tuning, tune

FEW_GROUPS = 20
"""With fewer groups than this, an interval over groups is too narrow."""

Outcome = Literal["supported", "not supported", "too few labels"]


@dataclass(frozen=True)
class DomainFit:
    """The fit of one domain.

    Attributes:
        domain: the profile's name.
        traces, kept, groups: numbers of labelled traces, of those worth keeping, and of independent groups.
        held: whether outcome confidence kept its weight and was held constant.
        leaks: AUCs of the dimensions that predict the label on their own, of those that were fitted.
        agreement: share of the labels that equal ``metadata.success``.
        candidates: by name; empty if there are too few labels.
        difference: AUC of the fitted weights minus that of those in force; None without candidates.
        outcome: whether the labels support the change.
    """

    domain: str
    traces: int
    kept: int
    groups: int
    held: bool
    leaks: dict[str, Estimate]
    agreement: float
    candidates: dict[str, Candidate]
    difference: Estimate | None
    outcome: Outcome


@dataclass(frozen=True)
class Fit:
    """The fits of all domains that have labels.

    Attributes:
        policy: the policy in force.
        target: the share of the traces that should pass at most.
        domains: by name.
        proposed: the policy with weights and thresholds of the domains whose labels support a change.
        tuning: the thresholds that were found for the fitted weights.
        unmatched: number of labels that match no trace.
    """

    policy: Policy
    target: float
    domains: dict[str, DomainFit]
    proposed: Policy
    tuning: Tuning
    unmatched: int

    @property
    def supported(self) -> list[str]:
        """The domains whose labels support a change."""
        return [name for name, one in self.domains.items() if one.outcome == "supported"]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
        return {
            "policy": self.policy.digest,
            "target": self.target,
            "domains": {name: asdict(one) for name, one in self.domains.items()},
            "proposed": self.proposed.model_dump(exclude_none=True),
            "unmatched": self.unmatched,
        }


def fit(
    records: Sequence[ScoredRecord],
    labels: Labels,
    policy: Policy,
    *,
    target: float = 0.1,
    min_reward: float = 0.5,
    outcome_confidence: bool = False,
) -> Fit:
    """Fit weights to labels, domain by domain, and propose what they support.

    Args:
        records: scored under any policy.
        labels: by the id that they give.
        policy: the policy in force.
        target: the share of a domain's traces that should pass at most, more than 0 and up to 1.
        min_reward: the lowest reward of a trace worth keeping.
        outcome_confidence: fit its weight too, which labels that depend on the outcome make meaningless.

    Raises:
        InputError: no label matches a trace, or all matching labels are equal.
    """
    labelled = matched(records, labels, min_reward)
    of_domain: dict[str, list[Labelled]] = {}
    for one in labelled:
        of_domain.setdefault(policy.profile(one.record.task_domain).domain, []).append(one)
    domains = {
        name: _fit_domain(name, of_domain[name], policy, target, hold=not outcome_confidence)
        for name in sorted(of_domain)
    }
    weights = {
        name: {"weights": Weights(**one.candidates["fitted"].weights)}
        for name, one in domains.items()
        if one.outcome == "supported"
    }
    tuning = tune(records, with_changes(policy, weights), target)
    thresholds = {
        name: {"threshold": proposal.passing.threshold}
        for name in weights
        if name in tuning.domains and (proposal := tuning.domains[name].proposal)
    }
    proposed = with_changes(tuning.policy, thresholds)
    unmatched = len(labels) - len({one.label.id for one in labelled})
    return Fit(policy, target, domains, proposed, tuning, unmatched)


def _fit_domain(
    name: str, labelled: Sequence[Labelled], policy: Policy, target: float, *, hold: bool
) -> DomainFit:
    kept, groups = kept_and_groups(labelled)
    scores = [one.record.under(policy) for one in labelled]
    start = np.array([weight for _, weight in policy.profile(name).weights])
    hold = hold and bool(start[HELD] < 1)
    candidates: dict[str, Candidate] = {}
    leaks: dict[str, Estimate] = {}
    difference = None
    if min(kept.sum(), (~kept).sum()) >= SUPPORT and groups.max() + 1 >= 2 * FOLDS:
        values = values_of(scores, hold=hold)
        learners = learners_of(name, start, hold=hold)
        grouped = np.array([one.label.group is not None for one in labelled])
        candidates, difference = judged(learners, values, kept, groups, grouped, target)
        leaks = _leaks(scores, kept, groups, hold=hold)
    return DomainFit(
        domain=name,
        traces=len(labelled),
        kept=int(kept.sum()),
        groups=int(groups.max()) + 1,
        held=hold,
        leaks=leaks,
        agreement=float(np.mean([one.kept == one.record.success for one in labelled])),
        candidates=candidates,
        difference=difference,
        outcome=_outcome(candidates, difference),
    )


def _leaks(
    scores: Sequence[Score], kept: Bools, groups: NDArray[np.intp], *, hold: bool
) -> dict[str, Estimate]:
    fitted = [name for at, name in enumerate(DIMENSIONS) if not (hold and at == HELD)]
    columns = [np.array([getattr(one, name) for one in scores]) for name in fitted]
    alone = zip(fitted, estimates(kept, columns, groups), strict=True)
    return {name: one for name, one in alone if leaks_label(one)}


def _outcome(candidates: Mapping[str, Candidate], difference: Estimate | None) -> Outcome:
    if difference is None:
        return "too few labels"
    better = difference.low > 0 and candidates["fitted"].auc.low > CHANCE
    return "supported" if better else "not supported"
