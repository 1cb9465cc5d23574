"""Learned values from labels: logistic regression on dimensions and facts, and its order of unseen traces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.policy import DIMENSIONS, FACTS_VERSION, Learned, Term
from knowledgepulse_worker.scoring import FACTS, NoFactsError, ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import Array

with extra("policy"):
    from scipy.special import expit, logit
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

FOLDS = 5

CLIP = 3.0
"""Deviations from the mean beyond which a value counts no more, so that one extreme trace decides nothing."""

PENALTY = 1.0
"""The regularisation ``C`` of the regression, that of the study; it was not chosen on any reported corpus."""

_DIGITS = 4
_SMOOTHING = 1.0


def values_of(records: Sequence[ScoredRecord]) -> dict[str, Array]:
    """Return the dimensions and facts by name, each of shape (records,).

    Raises:
        NoFactsError: the counts of a record are unknown.
    """
    counts = [one.counts for one in records]
    if not all(counts):
        raise NoFactsError
    found = {name: np.array([getattr(one.score, name) for one in records]) for name in DIMENSIONS}
    return found | {name: np.array([fact.of(one) for one in counts if one]) for name, fact in FACTS.items()}


def learn(values: dict[str, Array], kept: Array, share: float) -> Learned:
    """Return the regression of ``kept`` on dimensions and facts by name, not yet calibrated.

    All arrays are of shape (n,), and ``kept`` has both kinds.
    """
    telling = [name for name, column in values.items() if np.ptp(column) > 0]
    if not telling:
        intercept = _round(logit(kept.mean()))
        return Learned(share=share, facts_version=FACTS_VERSION, intercept=intercept, terms={})
    columns = np.column_stack([values[name] for name in telling])
    means, deviations = columns.mean(axis=0), columns.std(axis=0)
    scaled = np.clip((columns - means) / deviations, -CLIP, CLIP)
    model = LogisticRegression(C=PENALTY, max_iter=1000).fit(scaled, kept)
    rows = zip(telling, means, deviations, model.coef_[0], strict=True)
    terms = {
        name: Term(mean=_round(mean), deviation=_round(deviation), weight=_round(weight), clip=CLIP)
        for name, mean, deviation, weight in rows
    }
    intercept = _round(model.intercept_[0])
    return Learned(share=share, facts_version=FACTS_VERSION, intercept=intercept, terms=terms)


def log_odds(learned: Learned, values: dict[str, Array]) -> Array:
    """Return the logarithm of the odds of each trace, shape (n,)."""
    total = np.full(len(next(iter(values.values()))), learned.intercept)
    for name, term in learned.terms.items():
        total += term.weight * np.clip((values[name] - term.mean) / term.deviation, -term.clip, term.clip)
    return total


def folds_of(groups: Array) -> Array:
    """Return the fold of each trace, shape (n,); all traces of a group are in one."""
    folds = np.zeros(len(groups), np.intp)
    splits = GroupKFold(min(FOLDS, int(groups.max()) + 1), shuffle=True, random_state=0)
    for number, (_, at) in enumerate(splits.split(folds, None, groups)):
        folds[at] = number
    return folds


def out_of_fold(values: dict[str, Array], kept: Array, folds: Array) -> Array:
    """Return the log odds of each trace by a regression on the other folds, shape (n,).

    A fold whose others are all of one kind has log odds of 0.
    """
    found = np.zeros(len(kept))
    for fold in np.unique(folds):
        at, others = folds == fold, folds != fold
        if 0 < kept[others].sum() < others.sum():
            learned = learn({name: column[others] for name, column in values.items()}, kept[others], 1.0)
            found[at] = log_odds(learned, {name: column[at] for name, column in values.items()})
    return found


def rates_out_of_fold(names: Sequence[str], kept: Array, folds: Array) -> Array:
    """Return the log odds of each trace by its name alone, such as its agent's, from the other folds."""
    _, index = np.unique(names, return_inverse=True)
    found = np.zeros(len(kept))
    for fold in np.unique(folds):
        at, others = folds == fold, folds != fold
        numbers, hits = (
            np.bincount(index[others], weights=one[others], minlength=index.max() + 1)
            for one in (np.ones(len(kept)), kept)
        )
        rates = (hits + _SMOOTHING * kept[others].mean()) / (numbers + _SMOOTHING)
        found[at] = logit(np.clip(rates[index[at]], 1e-6, 1 - 1e-6))
    return found


def calibration(odds: Array, kept: Array) -> tuple[float, float]:
    """Return slope and offset that make log odds of unseen traces probabilities (Platt's scaling)."""
    model = LogisticRegression(C=1e6, max_iter=1000).fit(odds[:, None], kept)
    return max(0.0, float(model.coef_[0, 0])), float(model.intercept_[0])


def calibrated(learned: Learned, slope: float, offset: float) -> Learned:
    """Return a learned value with calibrated probabilities."""
    weights = {name: {"weight": _round(slope * term.weight)} for name, term in learned.terms.items()}
    terms = {name: term.model_copy(update=weights[name]) for name, term in learned.terms.items()}
    intercept = _round(slope * learned.intercept + offset)
    return learned.model_copy(update={"intercept": intercept, "terms": terms})


def probabilities(odds: Array, slope: float, offset: float) -> Array:
    """Return calibrated probabilities, shape (n,)."""
    found: Array = expit(slope * odds + offset)
    return found


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
