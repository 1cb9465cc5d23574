"""Fit weights to labels, domain by domain, and propose what the labels support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from knowledgepulse_worker.policy import DIMENSIONS, Policy, Weights
from knowledgepulse_worker.scoring import Score, ScoredRecord
from knowledgepulse_worker.tools.policies.auc import CHANCE, estimates
from knowledgepulse_worker.tools.policies.folds import FOLDS, Candidate, judged, learners_of
from knowledgepulse_worker.tools.policies.intervals import Estimate
from knowledgepulse_worker.tools.policies.labelled import (
    Columns,
    LabelCounts,
    Labelled,
    by_domain,
    columns_of,
    leaks_label,
    matched,
)
from knowledgepulse_worker.tools.policies.labels import Labels
from knowledgepulse_worker.tools.policies.operating import SUPPORT
from knowledgepulse_worker.tools.policies.proposal import with_changes
from knowledgepulse_worker.tools.policies.simplex import HELD, values_of
from knowledgepulse_worker.tools.policies.tune import Tuning, tune

FEW_GROUPS = 20
"""With fewer groups than this, an interval over groups is too narrow."""

Outcome = Literal["supported", "not supported", "too few labels"]


@dataclass(frozen=True, kw_only=True)
class DomainFit(LabelCounts):
    """The fit of one domain."""

    held: bool  # whether outcome confidence kept its weight and was held constant
    # AUCs of the dimensions that predict the label on their own, of those that were fitted
    leaks: dict[str, Estimate]
    candidates: dict[str, Candidate]  # by name; empty if there are too few labels
    difference: Estimate | None  # AUC of the fitted weights minus that of those in force
    outcome: Outcome  # whether the labels support the change


@dataclass(frozen=True)
class Fit:
    """The fits of all domains that have labels."""

    policy: Policy  # the policy in force
    target: float  # the share of the traces that should pass at most
    domains: dict[str, DomainFit]
    proposed: Policy  # the policy with weights and thresholds of the domains whose labels support a change
    tuning: Tuning  # the thresholds that were found for the fitted weights
    unmatched: int  # number of labels that match no trace

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

    ``target``: the share of a domain's traces that should pass at most, more than 0 and up to 1.

    Raises:
        InputError: no label matches a trace, or all matching labels are equal.
    """
    labelled = matched(records, labels, min_reward)
    domains = {
        name: _fit_domain(name, each, policy, target, hold=not outcome_confidence)
        for name, each in by_domain(labelled, policy).items()
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
    columns = columns_of(labelled)
    scores = [one.record.under(policy) for one in labelled]
    start = np.array([weight for _, weight in policy.profile(name).weights])
    hold = hold and bool(start[HELD] < 1)
    candidates: dict[str, Candidate] = {}
    leaks: dict[str, Estimate] = {}
    difference: Estimate | None = None
    outcome: Outcome = "too few labels"
    if columns.fewer >= SUPPORT and columns.groups.max() + 1 >= 2 * FOLDS:
        learners = learners_of(name, start, hold=hold)
        candidates, difference = judged(learners, values_of(scores, hold=hold), columns, target)
        leaks = _leaks(scores, columns, hold=hold)
        better = difference.low > 0 and candidates["fitted"].auc.low > CHANCE
        outcome = "supported" if better else "not supported"
    return DomainFit(
        domain=name,
        **columns.counts,
        held=hold,
        leaks=leaks,
        candidates=candidates,
        difference=difference,
        outcome=outcome,
    )


def _leaks(scores: Sequence[Score], columns: Columns, *, hold: bool) -> dict[str, Estimate]:
    fitted = [name for at, name in enumerate(DIMENSIONS) if not (hold and at == HELD)]
    values = [np.array([getattr(one, name) for one in scores]) for name in fitted]
    alone = zip(fitted, estimates(columns.kept, values, columns.groups), strict=True)
    return {name: one for name, one in alone if leaks_label(one)}
