"""Fit weights to labels, and judge them on folds that they were not fitted to.

Each fold is of whole groups. The order that weights give is compared within a fold only, as each fold has
weights of its own; the threshold for the target share is that of the other folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.policy import DEFAULT_DOMAIN, REFERENCE_WEIGHTS, Policy, Weights
from knowledgepulse_worker.scoring import Score, ScoredRecord
from knowledgepulse_worker.tools.policies.auc import CHANCE, Bools, Floats, areas, auc, estimates
from knowledgepulse_worker.tools.policies.intervals import Estimate, percentiles
from knowledgepulse_worker.tools.policies.labelled import Labelled, kept_and_groups, leaks_label, matched
from knowledgepulse_worker.tools.policies.labels import Labels
from knowledgepulse_worker.tools.policies.operating import (
    SUPPORT,
    LabelledScores,
    OperatingPoint,
    operating_points,
)
from knowledgepulse_worker.tools.policies.proposal import with_changes
from knowledgepulse_worker.tools.policies.simplex import (
    DIMENSIONS,
    HELD,
    fitted_weights,
    typed_weights,
    values_of,
)
from knowledgepulse_worker.tools.policies.thresholds import lowest_within
from knowledgepulse_worker.tools.policies.tune import Tuning, tune

with extra("policy"):
    from sklearn.model_selection import GroupKFold

FOLDS = 5

FEW_GROUPS = 20
"""With fewer groups than this, an interval over groups is too narrow."""

Outcome = Literal["supported", "not supported", "too few labels"]

_Learn = Callable[[Floats, Bools], Floats]
"""Returns weights for values of shape (n, 4) and whether each trace is worth keeping."""


@dataclass(frozen=True)
class Candidate:
    """Weights, judged on folds that they were not fitted to.

    Attributes:
        weights: those of all labels.
        auc: of pairs of one fold.
        point: of the traces that reach the threshold for the target share.
    """

    weights: dict[str, float]
    auc: Estimate
    point: OperatingPoint


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
        learners = _learners(name, start, hold=hold)
        candidates, difference = _judged(learners, values, kept, groups, labelled, target)
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


def _learners(name: str, start: Floats, *, hold: bool) -> dict[str, _Learn]:
    """Return by name what gives the candidates' weights."""
    reference = REFERENCE_WEIGHTS.get(name, REFERENCE_WEIGHTS[DEFAULT_DOMAIN])
    sdk = np.array([weight for _, weight in reference])
    learners: dict[str, _Learn] = {
        "the SDK's": lambda _values, _kept: sdk,
        "in force": lambda _values, _kept: start,
        "fitted": lambda values, kept: fitted_weights(values, kept, start, hold=hold),
        "best dimension": lambda values, kept: _best_dimension(values, kept, hold=hold),
    }
    if (sdk == start).all():
        del learners["the SDK's"]
    return learners


def _best_dimension(values: Floats, kept: Bools, *, hold: bool) -> Floats:
    found = [auc(kept, column) for column in (values.T[:HELD] if hold else values.T)]
    best: Floats = np.eye(len(DIMENSIONS))[int(np.argmax(found))]
    return best


def _judged(
    learners: Mapping[str, _Learn],
    values: Floats,
    kept: Bools,
    groups: NDArray[np.intp],
    labelled: Sequence[Labelled],
    target: float,
) -> tuple[dict[str, Candidate], Estimate]:
    """Return the candidates, and the difference of the AUCs of the fitted weights and those in force."""
    folds = np.zeros(len(kept), np.intp)
    split = GroupKFold(FOLDS, shuffle=True, random_state=0).split(values, kept, groups)
    for number, (_, at) in enumerate(split):
        folds[at] = number
    orders = {name: _out_of_fold(learn, values, kept, folds, target) for name, learn in learners.items()}
    found, resampled = areas(kept, [order for order, _ in orders.values()], groups, folds)
    by_name = dict(zip(orders, zip(found, resampled, strict=True), strict=True))
    novelty = np.array([one.record.score.novelty for one in labelled])
    grouped = np.array([one.label.group is not None for one in labelled])
    candidates = {}
    for name, (_, passes) in orders.items():
        traces = LabelledScores(passes.astype(float), novelty, kept, groups, grouped)
        weights = typed_weights(learners[name](values, kept))
        point = operating_points(traces, [1.0])[1.0]
        candidates[name] = Candidate(weights, percentiles(*by_name[name]), point)
    (fitted, fitted_drawn), (force, force_drawn) = by_name["fitted"], by_name["in force"]
    return candidates, percentiles(fitted - force, fitted_drawn - force_drawn)


def _out_of_fold(
    learn: _Learn, values: Floats, kept: Bools, folds: NDArray[np.intp], target: float
) -> tuple[Floats, Bools]:
    """Return each trace's score by the weights of the other folds, and whether it reaches their threshold."""
    order, passes = np.zeros(len(kept)), np.zeros(len(kept), bool)
    for fold in range(FOLDS):
        at, others = folds == fold, folds != fold
        weights = learn(values[others], kept[others])
        order[at] = values[at] @ weights
        best = lowest_within(values[others] @ weights, target)
        passes[at] = order[at] >= (np.inf if best is None else best[0])
    return order, passes
