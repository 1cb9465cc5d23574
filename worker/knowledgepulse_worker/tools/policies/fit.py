"""Fit weights to labels, domain by domain, and propose what the labels support.

Weights are judged on folds of whole groups that they were not fitted to. The order that weights give is
compared within a fold only, as each fold has weights of its own; the threshold is that of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.policy import DEFAULT_DOMAIN, DIMENSIONS, REFERENCE_WEIGHTS, Policy, Weights
from knowledgepulse_worker.scoring import Score, ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import (
    CHANCE,
    Array,
    Estimate,
    areas,
    auc,
    estimates,
    percentiles,
)
from knowledgepulse_worker.tools.policies.labelled_traces import LabelCounts, Labelled, leaks_label, matched
from knowledgepulse_worker.tools.policies.labels import Labels
from knowledgepulse_worker.tools.policies.policy_weights import (
    HELD,
    fitted_weights,
    rounded_weights,
    values_of,
)
from knowledgepulse_worker.tools.policies.thresholds import OperatingPoint, lowest_within, operating_points
from knowledgepulse_worker.tools.policies.tune import Tuning, tune, with_changes

with extra("policy"):
    from sklearn.model_selection import GroupKFold

FOLDS = 5

FEW_GROUPS = 20
"""With fewer groups than this, an interval over groups is too narrow."""

Outcome = Literal["supported", "not supported", "too few labels"]

Learn = Callable[[Array, Array], Array]
"""Returns weights for values of shape (n, 4) and whether each trace is worth keeping."""


@dataclass(frozen=True)
class JudgedWeights:
    """Weights, judged on folds that they were not fitted to."""

    weights: dict[str, float]  # those of all labels
    auc: Estimate  # of pairs of one fold
    point: OperatingPoint  # of the traces that reach the threshold for the target share


@dataclass(frozen=True, kw_only=True)
class DomainFit(LabelCounts):
    """The fit of one domain."""

    held: bool  # whether outcome confidence kept its weight and was held constant
    # AUCs of the dimensions that predict the label on their own, of those that were fitted
    leaks: dict[str, Estimate]
    candidates: dict[str, JudgedWeights]  # by name; empty if there are too few labels
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
        for name, each in labelled.by_domain(policy).items()
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
    unmatched = len(labels) - len({one.label.id for one in labelled.traces})
    return Fit(policy, target, domains, proposed, tuning, unmatched)


def _fit_domain(name: str, labelled: Labelled, policy: Policy, target: float, *, hold: bool) -> DomainFit:
    scores = labelled.scores(policy)
    start = np.array([weight for _, weight in policy.profile(name).weights])
    hold = hold and bool(start[HELD] < 1)
    candidates: dict[str, JudgedWeights] = {}
    leaks: dict[str, Estimate] = {}
    difference: Estimate | None = None
    outcome: Outcome = "too few labels"
    if labelled.enough:
        learners = _learners(name, start, hold=hold)
        candidates, difference = _judged(learners, values_of(scores, hold=hold), labelled, target)
        leaks = _leaks(scores, labelled, hold=hold)
        better = difference.low > 0 and candidates["fitted"].auc.low > CHANCE
        outcome = "supported" if better else "not supported"
    return DomainFit(
        domain=name,
        **labelled.counts,
        held=hold,
        leaks=leaks,
        candidates=candidates,
        difference=difference,
        outcome=outcome,
    )


def _leaks(scores: Sequence[Score], labelled: Labelled, *, hold: bool) -> dict[str, Estimate]:
    fitted = [name for at, name in enumerate(DIMENSIONS) if not (hold and at == HELD)]
    values = [np.array([getattr(one, name) for one in scores]) for name in fitted]
    alone = zip(fitted, estimates(labelled.kept, values, labelled.groups), strict=True)
    return {name: one for name, one in alone if leaks_label(one)}


def _learners(name: str, start: Array, *, hold: bool) -> dict[str, Learn]:
    """Return by name what gives the weights; ``start`` are those in force, shape (4,)."""
    reference = REFERENCE_WEIGHTS.get(name, REFERENCE_WEIGHTS[DEFAULT_DOMAIN])
    sdk = np.array([weight for _, weight in reference])
    learners: dict[str, Learn] = {
        "the SDK's": lambda _values, _kept: sdk,
        "in force": lambda _values, _kept: start,
        "fitted": lambda values, kept: fitted_weights(values, kept, start, hold=hold),
        "best dimension": lambda values, kept: _best_dimension(values, kept, hold=hold),
    }
    if (sdk == start).all():
        del learners["the SDK's"]
    return learners


def _best_dimension(values: Array, kept: Array, *, hold: bool) -> Array:
    found = [float(auc(kept, column)[0]) for column in (values.T[:HELD] if hold else values.T)]
    best: Array = np.eye(len(DIMENSIONS))[int(np.argmax(found))]
    return best


def _judged(
    learners: Mapping[str, Learn], values: Array, labelled: Labelled, target: float
) -> tuple[dict[str, JudgedWeights], Estimate]:
    """Return the judged weights, and the AUC of the fitted weights minus that of those in force."""
    kept, groups = labelled.kept, labelled.groups
    folds = folds_of(groups)
    orders = {name: _out_of_fold(learn, values, kept, folds, target) for name, learn in learners.items()}
    found, resampled = areas(kept, [order for order, _ in orders.values()], groups, folds)
    by_name = dict(zip(orders, zip(found, resampled, strict=True), strict=True))
    candidates = {}
    for name, (_, passes) in orders.items():
        weights = rounded_weights(learners[name](values, kept))
        point = operating_points(passes.astype(float), labelled, [1.0])[1.0]
        candidates[name] = JudgedWeights(weights, percentiles(*by_name[name]), point)
    (fitted, fitted_drawn), (force, force_drawn) = by_name["fitted"], by_name["in force"]
    return candidates, percentiles(fitted - force, fitted_drawn - force_drawn)


def folds_of(groups: Array) -> Array:
    """Return the fold of each trace, shape (n,): one for all traces of a group."""
    folds = np.zeros(len(groups), np.intp)
    for number, (_, at) in enumerate(
        GroupKFold(FOLDS, shuffle=True, random_state=0).split(folds, None, groups)
    ):
        folds[at] = number
    return folds


def _out_of_fold(
    learn: Learn, values: Array, kept: Array, folds: Array, target: float
) -> tuple[Array, Array]:
    """Return each trace's score by the weights of the other folds, and whether it reaches their threshold."""
    order, passes = np.zeros(len(kept)), np.zeros(len(kept), bool)
    for fold in range(FOLDS):
        at, others = folds == fold, folds != fold
        weights = learn(values[others], kept[others])
        order[at] = values[at] @ weights
        best = lowest_within(values[others] @ weights, target)
        passes[at] = order[at] >= (np.inf if best is None else best[0])
    return order, passes
