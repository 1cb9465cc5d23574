"""Tune thresholds: the score distribution, the threshold for a target share, and its sensitivities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import product
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import DomainPolicy, Policy, Weights
from knowledgepulse_worker.scoring import Score, ScoredRecord, quality_score
from knowledgepulse_worker.tools.policies.embedders import described, embedders_of
from knowledgepulse_worker.tools.policies.intervals import Estimate, kth_largest, share, share_difference
from knowledgepulse_worker.tools.policies.thresholds import lowest_within, typed

QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
STEP = 0.05
"""Step between the thresholds of the grid, and of the changes to weights."""

GRID = tuple(round(number * STEP, 2) for number in range(21))


@dataclass(frozen=True)
class Passing:
    """A threshold and the share of the traces that passes it."""

    threshold: float
    share: Estimate


@dataclass(frozen=True)
class Proposal:
    """The threshold that lets at most the target share pass, or the best trace and its equals.

    Attributes:
        needed: the lowest score that passes, with its bootstrap interval.
        passing: that score as a threshold to type, and the share that passes it.
    """

    needed: Estimate
    passing: Passing


@dataclass(frozen=True)
class Loss:
    """Points that traces below the threshold lose by a dimension.

    Attributes:
        mean: mean difference between the dimension's weight and its contribution to the score.
        largest: share of these traces that lose most by this dimension.
    """

    mean: float
    largest: float


@dataclass(frozen=True)
class Sensitivity:
    """Change of the share that passes the proposed threshold if one weight changes.

    The other weights keep their proportions.

    Attributes:
        weight: the dimension's name.
        by: the change of its weight.
        difference: the change of the share.
    """

    weight: str
    by: float
    difference: Estimate


@dataclass(frozen=True)
class DomainTuning:
    """The tuning of one domain.

    Attributes:
        domain: the profile's name.
        traces: number of traces.
        quantiles: quantiles of the score, by :data:`QUANTILES`.
        current: the policy's threshold.
        grid: thresholds from 0 to 1.
        proposal: the proposed threshold.
        losses: by dimension, over the traces below the current threshold; empty if all pass.
        sensitivities: two per weight.
        scores: shape (traces,), for plots.
    """

    domain: str
    traces: int
    quantiles: dict[float, float]
    current: Passing
    grid: list[Passing]
    proposal: Proposal
    losses: dict[str, Loss]
    sensitivities: list[Sensitivity]
    scores: NDArray[np.float64]


@dataclass(frozen=True)
class Tuning:
    """The tuning of all domains that have traces.

    Attributes:
        policy: the policy that all traces are scored under.
        target: the target share.
        domains: the tunings by domain name.
        embedders: number of traces by what their novelty was computed with.
        withheld: number of traces that are left out, as the policy withholds them whatever their score.
        proposed: the policy with the proposed thresholds; domains without traces keep theirs.
    """

    policy: Policy
    target: float
    domains: dict[str, DomainTuning]
    embedders: dict[str, int]
    withheld: int
    proposed: Policy

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON, without the scores."""
        domains = {name: asdict(one) for name, one in self.domains.items()}
        for one in domains.values():
            del one["scores"]
        return {
            "policy": self.policy.digest,
            "target": self.target,
            "domains": domains,
            "embedders": self.embedders,
            "withheld": self.withheld,
            "proposed": self.proposed.model_dump(exclude_none=True),
        }


def tune(records: Iterable[ScoredRecord], policy: Policy, target: float) -> Tuning:
    """Score records under a policy and propose thresholds.

    Args:
        records: scored under any policy.
        policy: the policy to tune.
        target: the share of each domain that should pass, more than 0 and up to 1.

    Raises:
        InputError: there are no records, or the policy withholds them all.
    """
    records = list(records)
    scores = [record.under(policy) for record in records]
    by_domain: defaultdict[str, list[Score]] = defaultdict(list)
    for score in scores:
        if score.withheld is None:
            by_domain[score.domain].append(score)
    withheld = sum(score.withheld is not None for score in scores)
    if not by_domain:
        because = f": the policy withholds all {withheld}" if withheld else ""
        raise InputError(f"no scored traces to tune with{because}")
    domains = {name: _tune_domain(by_domain[name], policy, target) for name in sorted(by_domain)}
    thresholds = {name: one.proposal.passing.threshold for name, one in domains.items()}
    proposed = with_thresholds(policy, thresholds)
    return Tuning(policy, target, domains, embedders_of(records), withheld, proposed)


def proposed_toml(tuning: Tuning) -> str:
    """Return the proposed ``[policy]`` as TOML, with a comment on the effect of each threshold."""
    comments = [f"# embedder: {described(tuning.embedders)}\n"]
    comments += [
        f"# {name}: of {one.traces} traces, {share.value:.1%} ({share.low:.1%} to {share.high:.1%}) reach "
        f"{one.proposal.passing.threshold}\n"
        for name, one in tuning.domains.items()
        for share in [one.proposal.passing.share]
    ]
    policy = tuning.proposed.model_dump(exclude_none=True)
    return "".join(comments) + tomli_w.dumps({"policy": policy})


def with_thresholds(policy: Policy, thresholds: dict[str, float]) -> Policy:
    """Return a policy with new thresholds for some domains and unchanged ones for all others.

    A domain without a threshold inherits ``default``'s; it gets one of its own if ``default``'s changes.
    """
    changed = _with_thresholds(policy, thresholds)
    kept = {
        name: profile.threshold
        for name, profile in policy.profiles.items()
        if name not in thresholds and changed.profile(name).threshold != profile.threshold
    }
    return _with_thresholds(changed, kept)


def _with_thresholds(policy: Policy, thresholds: dict[str, float]) -> Policy:
    domains = dict(policy.domains)
    for name, threshold in thresholds.items():
        domains[name] = domains.get(name, DomainPolicy()).model_copy(update={"threshold": threshold})
    return Policy(
        threshold=policy.threshold, domains=domains, contribute_visibility=policy.contribute_visibility
    )


def _tune_domain(scores: Sequence[Score], policy: Policy, target: float) -> DomainTuning:
    profile = policy.profile(scores[0].domain)
    values = np.array([score.quality_score for score in scores])
    lowest, passing = lowest_within(values, target)
    proposed = typed(values, lowest)
    return DomainTuning(
        domain=profile.domain,
        traces=len(values),
        quantiles={q: float(np.quantile(values, q)) for q in QUANTILES},
        current=_passing(values, profile.threshold),
        grid=[_passing(values, threshold) for threshold in GRID],
        proposal=Proposal(kth_largest(values, passing), _passing(values, proposed)),
        losses=_losses([score for score in scores if score.decision == "rejected"], profile.weights),
        sensitivities=_sensitivities(scores, profile.weights, proposed),
        scores=values,
    )


def _passing(values: NDArray[np.float64], threshold: float) -> Passing:
    return Passing(threshold, share(int((values >= threshold).sum()), len(values)))


def _losses(rejected: Sequence[Score], weights: Weights) -> dict[str, Loss]:
    if not rejected:
        return {}
    lost = (1 - np.array([astuple(score.dimensions) for score in rejected])) * [
        weight for _, weight in weights
    ]
    largest = lost == lost.max(axis=1, keepdims=True)
    return {
        name: Loss(float(lost[:, column].mean()), float(largest[:, column].mean()))
        for column, name in enumerate(Weights.model_fields)
    }


def reweighted(weights: Weights, name: str, by: float) -> Weights:
    """Change one weight, within 0 to 1, and scale the others in proportion."""
    old = weights.model_dump()
    new = min(1.0, max(0.0, old[name] + by))
    others = 1 - old[name]
    return Weights(
        **{
            other: new if other == name else weight * (1 - new) / others if others else (1 - new) / 3
            for other, weight in old.items()
        }
    )


def _sensitivities(scores: Sequence[Score], weights: Weights, threshold: float) -> list[Sensitivity]:
    before = _passes(scores, weights, threshold)
    found = []
    for name, by in product(Weights.model_fields, (STEP, -STEP)):
        after = _passes(scores, reweighted(weights, name, by), threshold)
        gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
        found.append(Sensitivity(name, by, share_difference(gained, lost, len(scores))))
    return found


def _passes(scores: Sequence[Score], weights: Weights, threshold: float) -> NDArray[np.bool_]:
    values = (quality_score(score.dimensions, score.overrides, weights) for score in scores)
    return np.array([value >= threshold for value in values])
