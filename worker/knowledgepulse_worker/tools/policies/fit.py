"""Fit a learned value to labels, domain by domain, and propose what the labels support.

Every figure is of traces that the value was not fitted to, in folds of whole groups. The order of traces is
compared within a fold only, as each fold has weights of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from knowledgepulse_worker.policy import Fitted, Learned, Policy
from knowledgepulse_worker.scoring import ScoredRecord, learned_value, quality_score
from knowledgepulse_worker.tools.policies import logistic
from knowledgepulse_worker.tools.policies.estimates import (
    CHANCE,
    Array,
    Estimate,
    areas,
    estimates,
    percentiles,
)
from knowledgepulse_worker.tools.policies.label_in_text import outcomes_in_text
from knowledgepulse_worker.tools.policies.labelled_traces import LabelCounts, Labelled, leaks_label, matched
from knowledgepulse_worker.tools.policies.labels import Labels
from knowledgepulse_worker.tools.policies.thresholds import OperatingPoint, lowest_within, operating_points
from knowledgepulse_worker.tools.policies.tune import Tuning, tune, with_changes

ENOUGH = 25
"""The gate needs this many traces of each kind; with 18 and 23, the study found noise."""

GROUPS = 20
"""The gate needs this many groups; intervals over fewer are too narrow."""

MARGIN = 0.02
"""How far above chance the interval of the AUC has to be."""

LENGTH = ("steps", "characters", "calls")
"""The facts that say how long a trace is."""

TELLTALE = 0.85
"""An AUC of the length alone, or of the agent's name alone, from which it nearly is the label."""

MAX_AGENTS = 10
"""Number of agents, and :data:`MAX_NAME` characters of their names, that a policy records."""

MAX_NAME = 100

Outcome = Literal["supported", "not supported", "too few labels"]


@dataclass(frozen=True)
class Appraisal:
    """What an order of the traces is worth, on folds that it was not fitted to.

    Attributes:
        auc: the AUC over pairs of one fold.
        within: the AUC over pairs of one group, such as a task; None if no two labels share a group.
        best: the traces among the best target share of their fold.
    """

    auc: Estimate
    within: Estimate | None
    best: OperatingPoint


@dataclass(frozen=True, kw_only=True)
class DomainFit(LabelCounts):
    """The fit of one domain.

    Attributes:
        held: whether outcome confidence is left out, and held constant in the policy in force.
        learned: the value that is fitted to all labels; None if there are too few labels.
        appraisals: by name, the policy in force, the fitted one, and the length and the agent alone.
        difference: the AUC of the fitted value minus that of the policy in force.
        new_agents: the AUC, within an agent, of values fitted to the others; None without several agents.
        leaks: AUCs of the terms that predict the label on their own.
        stated: outcomes in the texts that predict the label, with the number of traces that state them.
        reliability: for tenths of the traces, the mean probability and the share that is worth keeping.
        outcome: whether the labels support the change.
    """

    held: bool
    learned: Learned | None
    appraisals: dict[str, Appraisal]
    difference: Estimate | None
    new_agents: Estimate | None
    leaks: dict[str, Estimate]
    stated: dict[str, int]
    reliability: list[tuple[float, float]]
    outcome: Outcome

    @property
    def too_few(self) -> str:
        """A sentence on what is missing for a verdict."""
        others = self.traces - self.kept
        return (
            f"too few labels: {self.kept:,} traces are worth keeping and {others:,} are not, in "
            f"{self.groups:,} groups; at least {ENOUGH} of each kind and {GROUPS} groups are needed"
        )


@dataclass(frozen=True)
class Fit:
    """The fits of all domains that have labels.

    Attributes:
        policy: the policy in force.
        target: the share of the traces that should pass at most.
        domains: the fits by domain.
        proposed: the policy with learned values and thresholds of the domains whose labels support a change.
        tuning: the thresholds that were found for the proposed policy.
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
        domains = {name: asdict(replace(one, learned=None)) for name, one in self.domains.items()}
        for name, one in self.domains.items():
            domains[name]["learned"] = one.learned and one.learned.model_dump(mode="json", exclude_none=True)
        return {
            "policy": self.policy.digest,
            "target": self.target,
            "domains": domains,
            "proposed": self.proposed.model_dump(mode="json", exclude_none=True),
            "unmatched": self.unmatched,
        }


def fit(
    records: Sequence[ScoredRecord],
    labels: Labels,
    policy: Policy,
    *,
    today: str,
    target: float = 0.1,
    share: float = 1.0,
    min_reward: float = 0.5,
    outcome_confidence: bool = False,
) -> Fit:
    """Fit learned values to labels, domain by domain, and propose what they support.

    Args:
        records: the scored traces.
        labels: the labels of some of them.
        policy: the policy in force.
        today: the date of the fit, for the policy's record.
        target: the share of a domain's traces that should pass at most, more than 0 and up to 1.
        share: the share of the learned value in the score.
        min_reward: the lowest reward of a trace worth keeping.
        outcome_confidence: whether to fit outcome confidence as well, which may be the label itself.

    Raises:
        InputError: no label matches a trace, all matching labels are equal, or counts are unknown.
    """
    labelled = matched(records, labels, min_reward)
    domains = {
        name: _Fitting(name, each, policy, target, share, hold=not outcome_confidence).fit(today)
        for name, each in labelled.by_domain(policy).items()
    }
    learned = {name: {"learned": one.learned} for name, one in domains.items() if one.outcome == "supported"}
    tuning = tune(records, with_changes(policy, learned), target)
    thresholds = {
        name: {"threshold": proposal.passing.threshold}
        for name in learned
        if name in tuning.domains and (proposal := tuning.domains[name].proposal)
    }
    proposed = with_changes(tuning.policy, thresholds)
    unmatched = len(labels) - len({one.label.id for one in labelled.traces})
    return Fit(policy, target, domains, proposed, tuning, unmatched)


def held_scores(
    labelled: Labelled, policy: Policy, *, hold: bool, probabilities: Array | None = None
) -> Array:
    """Return the traces' scores under a policy.

    Args:
        labelled: the traces.
        policy: the policy.
        hold: whether all have the mean outcome confidence.
        probabilities: what the policy's learned values would be; by default, these are computed.
    """
    scores = labelled.scores(policy)
    mean = float(np.mean([one.outcome_confidence for one in scores]))
    found = []
    for number, (one, score) in enumerate(zip(labelled.traces, scores, strict=True)):
        profile, dimensions = policy.profile(one.record.task_domain), score.dimensions
        if hold:
            dimensions = replace(dimensions, outcome_confidence=mean)
        learned = None
        if probabilities is not None:
            learned = float(probabilities[number])
        elif profile.learned:
            learned = learned_value(profile.learned, dimensions, one.record.counts)
        found.append(quality_score(dimensions, score.overrides, profile, learned))
    return np.array(found)


class _Fitting:
    """The fit of one domain, step by step."""

    def __init__(
        self, name: str, labelled: Labelled, policy: Policy, target: float, share: float, *, hold: bool
    ) -> None:
        self.name, self.labelled, self.policy, self.target = name, labelled, policy, target
        self.share, self.hold = share, hold
        self.kept, self.groups = labelled.kept, labelled.groups

    def fit(self, today: str) -> DomainFit:
        """Return the fit."""
        result = DomainFit(
            domain=self.name,
            **self.labelled.counts,
            held=self.hold,
            learned=None,
            appraisals={},
            difference=None,
            new_agents=None,
            leaks={},
            stated={},
            reliability=[],
            outcome="too few labels",
        )
        if self.labelled.fewer < ENOUGH or self.groups.max() + 1 < GROUPS:
            return result
        values = logistic.values_of([one.record for one in self.labelled.traces])
        if self.hold:
            del values["outcome_confidence"]
        folds = logistic.folds_of(self.groups)
        odds = logistic.out_of_fold(values, self.kept, folds)
        slope, offset = logistic.calibration(odds, self.kept)
        probabilities = logistic.probabilities(odds, slope, offset)
        orders = {
            "in force": held_scores(self.labelled, self.policy, hold=self.hold),
            "fitted": held_scores(
                self.labelled, self._with_share(), hold=self.hold, probabilities=probabilities
            ),
            "length alone": logistic.out_of_fold({name: values[name] for name in LENGTH}, self.kept, folds),
        }
        agents = [one.record.agent_id or "" for one in self.labelled.traces]
        if len({*agents}) > 1:
            orders["agent alone"] = logistic.rates_out_of_fold(agents, self.kept, folds)
        appraisals, difference = self._judged(orders, folds)
        new_agents = self._new_agents(values, agents)
        fitted = appraisals["fitted"]
        better = slope > 0 and fitted.auc.low > CHANCE + MARGIN and difference.low > 0
        learned = logistic.calibrated(logistic.learn(values, self.kept, self.share), slope, offset)
        origin = self._origin(today, agents, fitted, new_agents)
        return replace(
            result,
            learned=learned.model_copy(update={"fitted": origin}),
            appraisals=appraisals,
            difference=difference,
            new_agents=new_agents,
            leaks=self._leaks(values),
            stated=outcomes_in_text(self.labelled),
            reliability=_reliability(probabilities, self.kept),
            outcome="supported" if better else "not supported",
        )

    def _with_share(self) -> Policy:
        """Return the policy in force with a learned value that has the share of the fitted one."""
        learned = Learned(share=self.share, facts_version=1, intercept=0, terms={})
        return with_changes(self.policy, {self.name: {"learned": learned}})

    def _judged(self, orders: dict[str, Array], folds: Array) -> tuple[dict[str, Appraisal], Estimate]:
        """Return the appraisals, and the AUC of the fitted value minus that of the policy in force."""
        found, resampled = areas(self.kept, [*orders.values()], self.groups, folds)
        within: Sequence[Estimate | None] = [None] * len(orders)
        if self.groups.max() + 1 < len(self.groups):
            within = estimates(self.kept, [*orders.values()], self.groups, self.groups)
        by_name = dict(zip(orders, zip(found, resampled, strict=True), strict=True))
        appraisals = {
            name: Appraisal(percentiles(*by_name[name]), inside, self._best(order, folds))
            for (name, order), inside in zip(orders.items(), within, strict=True)
        }
        (fitted, fitted_drawn), (force, force_drawn) = by_name["fitted"], by_name["in force"]
        return appraisals, percentiles(fitted - force, fitted_drawn - force_drawn)

    def _best(self, order: Array, folds: Array) -> OperatingPoint:
        """Return the operating point of the best target share of each fold."""
        passes = np.zeros(len(order), bool)
        for fold in np.unique(folds):
            at = folds == fold
            best = lowest_within(order[at], self.target)
            passes[at] = order[at] >= (np.inf if best is None else best[0])
        return operating_points(passes.astype(float), self.labelled, [1.0])[1.0]

    def _new_agents(self, values: dict[str, Array], agents: Sequence[str]) -> Estimate | None:
        """Return the AUC within each agent of a value that was fitted to the others."""
        _, index = np.unique(agents, return_inverse=True)
        if index.max() == 0:
            return None
        odds = logistic.out_of_fold(values, self.kept, index)
        (found,) = estimates(self.kept, [odds], self.groups, index)
        return None if np.isnan(found.value) else found

    def _leaks(self, values: dict[str, Array]) -> dict[str, Estimate]:
        alone = zip(values, estimates(self.kept, [*values.values()], self.groups), strict=True)
        return {name: one for name, one in alone if leaks_label(one)}

    def _origin(
        self, today: str, agents: Sequence[str], fitted: Appraisal, new_agents: Estimate | None
    ) -> Fitted:
        counts = self.labelled.counts
        sources = Counter(one.label.source or "no source" for one in self.labelled.traces)
        frequent = [agent[:MAX_NAME] for agent, _ in Counter(filter(None, agents)).most_common(MAX_AGENTS)]
        value, low, high = (round(figure, 3) for figure in fitted.auc)
        return Fitted(
            on=today,
            labels={name[:MAX_NAME]: number for name, number in sources.most_common(MAX_AGENTS)},
            traces=counts["traces"],
            kept=counts["kept"],
            groups=counts["groups"],
            agents=tuple(frequent),
            auc=(value, low, high),
            within_groups=None if fitted.within is None else _finite(fitted.within.value),
            new_agents=None if new_agents is None else _finite(new_agents.value),
        )


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 3)


def _reliability(probabilities: Array, kept: Array) -> list[tuple[float, float]]:
    parts = np.array_split(np.argsort(probabilities, kind="stable"), min(10, len(kept) // 10))
    return [(float(probabilities[at].mean()), float(kept[at].mean())) for at in parts if len(at)]
