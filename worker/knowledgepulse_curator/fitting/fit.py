"""Fit a learned value to labels, domain by domain, and propose what the labels support.

Every figure is of traces that the value was not fitted to, in folds of whole groups. The order of traces is
compared within a fold only, as each fold has weights of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from knowledgepulse_curator.fitting import logistic
from knowledgepulse_curator.fitting.fitted_promises import fitted_promises
from knowledgepulse_curator.fitting.labelled_traces import (
    NO_LABEL,
    OUTCOME_DIMENSION,
    LabelCounts,
    LabelledTraces,
    held_scores,
    leaks_label,
    matched,
    outcomes_in_text,
    with_rest,
)
from knowledgepulse_curator.fitting.learning import Learned, Wanted, learn, odds_out_of_fold
from knowledgepulse_curator.fitting.length import AgainstLength, against_length, length_odds
from knowledgepulse_curator.fitting.permutations import PERMUTATION_LEVEL, level, surprise
from knowledgepulse_curator.fitting.word_fit import WordFit
from knowledgepulse_curator.labels.fitted_traces import recorded
from knowledgepulse_curator.labels.labels import MIN_SUPPORT, Label, Labels
from knowledgepulse_curator.promises.promise import Asked, Promise
from knowledgepulse_worker.policy import FitOrigin, LearnedValue, Policy
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import (
    Array,
    Estimate,
    areas,
    estimates,
    known,
    percentiles,
    precisions,
    ratios,
)
from knowledgepulse_worker.tools.policies.tune import (
    effect,
    lowest_within,
    tune,
    with_changes,
)

MIN_SHARE_OF_GAINS = 0.9
"""The share of resamples in which the gain over the policy in force has to be above 0."""

TELLTALE_AUC = 0.85
"""An AUC of the length alone, or of the agent's name alone, from which it nearly is the label."""

MAX_AGENTS = 10
"""Number of agents, and :data:`MAX_NAME_CHARACTERS` characters of their names, that a policy records."""

MAX_NAME_CHARACTERS = 100

FitOutcome = Literal["supported", "not supported", "too few labels"]


@dataclass(frozen=True)
class Appraisal:
    """What an order of the traces is worth, on folds that it was not fitted to.

    Attributes:
        auc: the AUC over pairs of one fold.
        within: the AUC over pairs of one group, such as a task; None if no two labels share a group.
        best: the share worth keeping among the best target share of each fold; None if there are none.
    """

    auc: Estimate
    within: Estimate | None
    best: Estimate | None


@dataclass(frozen=True, kw_only=True)
class DomainFit(LabelCounts):
    """The fit of one domain; the counts are those of the labels that it is judged by.

    Attributes:
        judges: number of judges' labels that were also fitted to; people's are those that it is judged by.
        rest: number of the traces that are not worth keeping that have no label: none was dropped.
        since: number of labels by which the policy in force is judged, as it was fitted to the others; None
            if it was fitted to none.
        held: whether outcome confidence is left out, and held constant in the policy in force.
        outcome: whether the labels support the change.
        missing: what the labels would have to show for that.
        learned: the value that is fitted to all labels; None if there are too few labels.
        appraisals: by name, the policy in force, the fitted one, and the length and the agent alone.
        surprise: the share of permuted labels that have a lower AUC; None if there are too few labels.
        difference: the AUC of the fitted value minus that of the policy in force.
        length: the fitted value against the length alone.
        best_difference: likewise of the share worth keeping among the best traces; None if there are none.
        new_agents: the AUC, within an agent, of values fitted to the others; None without several agents.
        leaks: AUCs of the terms that predict the label on their own.
        stated: outcomes in the texts that predict the label, with the number of traces that state them.
        words: what words add to the facts; None if they were not asked for.
        reliability: for tenths of the traces, the mean probability and the share that is worth keeping.
        effect: a sentence on the threshold that is proposed with the learned value; empty without support.
        unnamed: whether the labels lack nothing but the names of their tasks.
    """

    held: bool
    judges: int
    rest: int
    since: int | None = None
    outcome: FitOutcome = "too few labels"
    missing: list[str] = field(default_factory=list)
    learned: LearnedValue | None = None
    appraisals: dict[str, Appraisal] = field(default_factory=dict)
    surprise: float | None = None
    difference: Estimate | None = None
    length: AgainstLength | None = None
    best_difference: Estimate | None = None
    new_agents: Estimate | None = None
    leaks: dict[str, Estimate] = field(default_factory=dict)
    stated: dict[str, int] = field(default_factory=dict)
    words: WordFit | None = None
    reliability: list[tuple[float, float]] = field(default_factory=list)
    effect: str = ""
    unnamed: bool = False


@dataclass(frozen=True)
class Fit:
    """The fits of all domains that have labels.

    Attributes:
        policy: the digest of the policy in force.
        target: the share of the traces that should pass at most.
        proposed: the policy with learned values and shares of the domains whose labels support a change.
        unmatched: number of labels that match no trace.
        promises: what labels promise of the domains, if that was asked.
    """

    policy: str
    target: float
    domains: dict[str, DomainFit]
    proposed: Policy
    unmatched: int
    promises: dict[str, Promise] = field(default_factory=dict)

    @property
    def proposes(self) -> bool:
        """Whether the proposed policy is another than that in force."""
        return self.proposed.digest != self.policy


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
    words: bool = False,
    promised: Asked | None = None,
    every: Sequence[Label] = (),
) -> Fit:
    """Fit learned values to labels, domain by domain, and propose what they support.

    ``today``: the date of the fit, for the policy's record. ``target``: the share of a domain's traces that
    should pass at most. ``share``: that of the learned value in the score. ``outcome_confidence``: whether to
    fit outcome confidence as well, which may be the label itself. ``words``: whether to fit words, too.
    ``promised``: what is asked of a promise, whose share is then proposed instead of the target; ``every``:
    all labels that it may be made by.

    Raises:
        InputError: no label matches a trace, all matching labels are equal, or counts or words are unknown.
    """
    labelled = matched(records, with_rest(records, labels, min_reward), min_reward)
    wanted = Wanted(today, target, share, None if outcome_confidence else OUTCOME_DIMENSION, words)
    domains = {
        name: _fit_domain(name, part, policy, wanted) for name, part in labelled.by_domain(policy).items()
    }
    values = {name: domain.learned for name, domain in domains.items() if domain.outcome == "supported"}
    learned = {name: value for name, value in values.items() if value is not None}
    promises = {}
    if promised is not None:
        promises = fitted_promises(records, every, policy, learned, wanted, promised)
    shares = {name: promise.share for name, promise in promises.items() if promise.outcome == "promised"}
    changes: dict[str, dict[str, Any]] = {
        name: {"learned": value, "share": shares.get(name) or target} for name, value in learned.items()
    } | {name: {"share": share} for name, share in shares.items() if share and name not in learned}
    proposed = with_changes(policy, changes)
    effects = {name: effect(tuning) for name, tuning in tune(records, proposed, target).domains.items()}
    domains = {
        name: replace(domain, effect=effects.get(name, "") if name in changes else "")
        for name, domain in domains.items()
    }
    unmatched = len(labels.keys() - labelled.labels.keys())
    return Fit(policy.digest, target, domains, proposed, unmatched, promises)


def _fit_domain(name: str, labelled: LabelledTraces, policy: Policy, wanted: Wanted) -> DomainFit:
    judged = labelled.only(labelled.checked) or labelled
    result = DomainFit(
        domain=name,
        **judged.counts,
        held=wanted.constant is not None,
        judges=int((~labelled.checked).sum()),
        rest=sum(trace.label.source == NO_LABEL for trace in judged.traces),
    )
    if not judged.has(MIN_SUPPORT, MIN_SUPPORT):
        return result
    found = learn(labelled, judged, wanted)
    orders = _orders(name, policy, found, wanted.constant)
    gains, since = _gains_over(policy, judged, orders, found.folds[labelled.checked], wanted.target)
    told = surprise(found.columns, labelled.kept, labelled.groups, labelled.checked)
    new_agents = _new_agents(found)
    rises = bool(np.ptp(found.probabilities) > 0)
    missing = _missing(rises, gains, told >= level(result.grouped))
    origin = _origin(labelled, wanted.today, gains.appraisals["fitted"], new_agents)
    return replace(
        result,
        since=since,
        outcome="not supported" if missing else "supported",
        missing=missing,
        learned=found.value.model_copy(update={"fitted": origin}),
        appraisals=gains.appraisals,
        surprise=told,
        difference=gains.auc,
        length=_against_length(found, orders),
        best_difference=gains.best,
        new_agents=new_agents,
        leaks=_leaks(found),
        stated=outcomes_in_text(judged),
        words=found.words,
        reliability=_reliability(found.probabilities, judged.kept),
        unnamed=bool(missing) and not _missing(rises, gains, told >= PERMUTATION_LEVEL),
    )


def _orders(name: str, policy: Policy, found: Learned, constant: str | None) -> dict[str, Array]:
    """Return orders of the judged traces by name, those of the policy in force and the fitted one first."""
    labelled, judged, checked = found.labelled, found.judged, found.labelled.checked
    changed = with_changes(policy, {name: {"learned": found.value}})
    orders = {
        "in force": held_scores(judged, policy, constant),
        "fitted": held_scores(judged, changed, constant, found.probabilities),
        "length alone": length_odds(found.values, labelled.kept, found.folds)[checked],
    }
    agents = _agents(labelled)
    if len({*agents}) > 1:
        orders["agent alone"] = logistic.rates_out_of_fold(agents, labelled.kept, found.folds)[checked]
    return orders


def _agents(labelled: LabelledTraces) -> list[str]:
    return [record.agent_id or "" for record in labelled.records]


def _against_length(found: Learned, orders: dict[str, Array]) -> AgainstLength | None:
    judged, checked = found.judged, found.labelled.checked
    steps, folds = found.values["steps"][checked], found.folds[checked]
    return against_length(orders["fitted"], orders["length alone"], steps, judged.kept, judged.groups, folds)


def _leaks(found: Learned) -> dict[str, Estimate]:
    """Return the AUCs of the terms that predict the label on their own."""
    columns = [column[found.labelled.checked] for column in found.values.values()]
    alone = zip(found.values, estimates(found.judged.kept, columns, found.judged.groups), strict=True)
    return {term: area for term, area in alone if leaks_label(area.value)}


class _Gains(NamedTuple):
    """Appraisals by name, and the gains of the second order over the first.

    Attributes:
        auc: the gain in AUC.
        low: the gain in AUC that the share :data:`MIN_SHARE_OF_GAINS` of the resamples exceeds.
        best: the gain among the best traces.
    """

    appraisals: dict[str, Appraisal]
    auc: Estimate | None
    low: float
    best: Estimate | None


def _gains_over(
    policy: Policy, judged: LabelledTraces, orders: dict[str, Array], folds: Array, target: float
) -> tuple[_Gains, int | None]:
    """Appraise orders, that of the policy in force only on traces that it was not fitted to.

    On the others, its figures flatter, and no policy would surely be better. Return the gains over it, and
    the number of these traces; None if it was fitted to none.
    """
    gains, fresh = _appraise(judged, orders, folds, target), ~judged.fitted_to(policy)
    if fresh.all():
        return gains, None
    since, number = judged.only(fresh), int(fresh.sum())
    if since is None or not since.has(1, 1):
        others = {name: appraisal for name, appraisal in gains.appraisals.items() if name != "in force"}
        return _Gains(others, None, 0.0, None), number
    pair = {name: orders[name][fresh] for name in ("in force", "fitted")}
    appraised = _appraise(since, pair, folds[fresh], target)
    in_force = {"in force": appraised.appraisals["in force"]}
    return appraised._replace(appraisals=gains.appraisals | in_force), number


def _appraise(labelled: LabelledTraces, orders: dict[str, Array], folds: Array, target: float) -> _Gains:
    """Judge orders of the traces, of which the first two are the policy in force and the fitted one."""
    kept, groups, columns = labelled.kept, labelled.groups, [*orders.values()]
    aucs, drawn = areas(kept, columns, groups, folds)
    within: Sequence[Estimate | None] = [None] * len(orders)
    if groups.max() + 1 < len(groups):
        within = [known(estimate) for estimate in estimates(kept, columns, groups, groups)]
    passes = np.array([_best(order, folds, target) for order in columns])
    parts = zip(map(percentiles, aucs, drawn), within, precisions(passes, kept, groups), strict=True)
    appraisals = {name: Appraisal(*part) for name, part in zip(orders, parts, strict=True)}
    (force, fitted), (force_drawn, fitted_drawn) = ratios(passes[:2] & kept, passes[:2], groups)
    best = percentiles(fitted - force, fitted_drawn - force_drawn)
    gains = drawn[1] - drawn[0]
    low = np.nanquantile(gains, 1 - MIN_SHARE_OF_GAINS) if np.isfinite(gains).any() else 0.0
    return _Gains(appraisals, known(percentiles(aucs[1] - aucs[0], gains)), float(low), known(best))


def _best(order: Array, folds: Array, target: float) -> Array:
    """Return whether each trace is among the best target share of its fold."""
    passes = np.zeros(len(order), bool)
    for fold in np.unique(folds):
        at = folds == fold
        best = lowest_within(order[at], target)
        passes[at] = order[at] >= (np.inf if best is None else best[0])
    return passes


def _missing(rises: bool, gains: _Gains, is_above_chance: bool) -> list[str]:
    """Return what the labels do not show, and would have to."""
    best = gains.best
    shown = {
        "an AUC that is surely above chance": is_above_chance,
        "labels that the policy in force was not fitted to": gains.auc is not None,
        f"a gain above 0 in {MIN_SHARE_OF_GAINS:.0%} of the resamples": gains.auc is None or gains.low > 0,
        "best traces as good as those under the policy in force": best is None or best.value >= 0,
        "probabilities that rise with the fitted value": rises,
    }
    return [name for name, is_shown in shown.items() if not is_shown]


def _new_agents(found: Learned) -> Estimate | None:
    """Return the AUC, within each agent, of a value that was fitted to the others."""
    labelled = found.labelled
    _, index = np.unique(_agents(labelled), return_inverse=True)
    if index.max() == 0:
        return None
    odds = odds_out_of_fold(found.values, found.trace_words, labelled.kept, index)
    at = np.flatnonzero(labelled.checked)
    (estimate,) = estimates(found.judged.kept, [odds[at]], found.judged.groups, index[at])
    return known(estimate)


def _origin(
    labelled: LabelledTraces, today: str, fitted: Appraisal, new_agents: Estimate | None
) -> FitOrigin:
    sources = Counter(trace.label.source or "no source" for trace in labelled.traces)
    agents = Counter(filter(None, _agents(labelled))).most_common(MAX_AGENTS)
    value, low, high = (round(figure, 3) for figure in fitted.auc)
    return FitOrigin(
        on=today,
        labels={name[:MAX_NAME_CHARACTERS]: number for name, number in sources.most_common(MAX_AGENTS)},
        **{name: labelled.counts[name] for name in ("traces", "kept", "groups")},
        agents=tuple(agent[:MAX_NAME_CHARACTERS] for agent, _ in agents),
        auc=(value, low, high),
        within_groups=fitted.within and round(fitted.within.value, 3),
        new_agents=new_agents and round(new_agents.value, 3),
        ids=recorded(labelled.records),
    )


def _reliability(probabilities: Array, kept: Array) -> list[tuple[float, float]]:
    parts = np.array_split(np.argsort(probabilities, kind="stable"), min(10, len(kept) // 10))
    return [(float(probabilities[at].mean()), float(kept[at].mean())) for at in parts if len(at)]
