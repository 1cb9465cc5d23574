"""Learned values from labels: logistic regression on dimensions and facts, and its order of unseen traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.policy import DIMENSIONS, FACTS_VERSION, LearnedValue, Term
from knowledgepulse_worker.scoring import FACTS, NoFactsError, ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import Array

with extra("policy"):
    from scipy.special import expit, logit
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.preprocessing import TargetEncoder

FOLDS = 5

MAX_DEVIATIONS = 3.0
"""Deviations from the mean beyond which a value counts no more, so that one extreme trace decides nothing."""

REGULARISATION = 1.0
"""The regularisation ``C`` of the regression, that of the study; it was not chosen on any reported corpus."""

_DIGITS = 4
_SMOOTHING = 1.0


def values_of(records: Sequence[ScoredRecord]) -> dict[str, Array]:
    """Return the dimensions and facts by name, each of shape (records,).

    Raises:
        NoFactsError: the counts of a record are unknown.
    """
    counts = [record.counts for record in records]
    if not all(counts):
        raise NoFactsError
    columns = {name: np.array([getattr(record.score, name) for record in records]) for name in DIMENSIONS}
    return columns | {
        name: np.array([fact.of(trace_counts) for trace_counts in counts if trace_counts])
        for name, fact in FACTS.items()
    }


def learn(values: dict[str, Array], kept: Array, share: float) -> LearnedValue:
    """Return the regression of ``kept`` on dimensions and facts by name, not yet calibrated.

    All arrays are of shape (n,), and ``kept`` has both kinds. A value that does not vary has no term.
    """
    intercept, terms = logit(kept.mean()), dict[str, Term]()
    if telling := [name for name, column in values.items() if varies(column)]:
        columns = np.column_stack([values[name] for name in telling])
        means, deviations = columns.mean(axis=0), columns.std(axis=0)
        scaled = np.clip((columns - means) / deviations, -MAX_DEVIATIONS, MAX_DEVIATIONS)
        model = LogisticRegression(C=REGULARISATION, max_iter=1000).fit(scaled, kept)
        intercept = model.intercept_[0]
        for name, *figures in zip(telling, means, deviations, model.coef_[0], strict=True):
            mean, deviation, weight = map(rounded, figures)
            terms[name] = Term(mean=mean, deviation=deviation, weight=weight, clip=MAX_DEVIATIONS)
    return LearnedValue(share=share, facts_version=FACTS_VERSION, intercept=rounded(intercept), terms=terms)


def log_odds(learned: LearnedValue, values: dict[str, Array]) -> Array:
    """Return the logarithm of the odds of each trace, shape (n,)."""
    total = np.full(len(next(iter(values.values()))), learned.intercept)
    for name, term in learned.terms.items():
        total += term.weight * np.clip((values[name] - term.mean) / term.deviation, -term.clip, term.clip)
    return total


def folds_of(groups: Array, seed: int = 0) -> Array:
    """Return the fold of each trace, shape (n,); all traces of a group are in one."""
    folds = np.zeros(len(groups), np.intp)
    splits = GroupKFold(min(FOLDS, int(groups.max()) + 1), shuffle=True, random_state=seed)
    for number, (_, at) in enumerate(splits.split(folds, None, groups)):
        folds[at] = number
    return folds


def by_fold(kept: Array, folds: Array, predict: Callable[[Array, Array], Array]) -> Array:
    """Return a value of each trace by what is learned from the other folds, shape (n,).

    A fold whose others are all of one kind has values of 0.

    Args:
        kept: whether each trace is worth keeping.
        folds: the fold of each trace.
        predict: returns the values of a fold, given the others and the fold as masks of shape (n,).
    """
    values = np.zeros(len(kept))
    for fold in np.unique(folds):
        others = folds != fold
        if 0 < kept[others].sum() < others.sum():
            values[~others] = predict(others, ~others)
    return values


def out_of_fold(values: dict[str, Array], kept: Array, folds: Array) -> Array:
    """Return the log odds of each trace by a regression on the other folds; see :func:`by_fold`."""

    def predict(others: Array, at: Array) -> Array:
        learned = learn({name: column[others] for name, column in values.items()}, kept[others], 1.0)
        return log_odds(learned, {name: column[at] for name, column in values.items()})

    return by_fold(kept, folds, predict)


def rates_out_of_fold(names: Sequence[str], kept: Array, folds: Array) -> Array:
    """Return the share kept of each trace's name alone, such as its agent's; see :func:`by_fold`."""
    column = np.array(names, object)[:, None]

    def predict(others: Array, at: Array) -> Array:
        encoder = TargetEncoder(target_type="binary", smooth=_SMOOTHING).fit(column[others], kept[others])
        rates: Array = encoder.transform(column[at])[:, 0]
        return rates

    return by_fold(kept, folds, predict)


def calibrated(learned: LearnedValue, odds: Array, kept: Array) -> tuple[LearnedValue, Array]:
    """Return a learned value with calibrated probabilities, and those of the traces (Platt's scaling).

    ``odds``: the log odds of the traces, by values that were not fitted to them.
    """
    model = LogisticRegression(C=1e6, max_iter=1000).fit(odds[:, None], kept)
    slope, offset = max(0.0, float(model.coef_[0, 0])), float(model.intercept_[0])
    terms = {
        name: term.model_copy(update={"weight": rounded(slope * term.weight)})
        for name, term in learned.terms.items()
    }
    words = None
    if learned.words is not None and slope:
        scaled = {name: rounded(slope * getattr(learned.words, name)) for name in ("unit", "mean")}
        words = learned.words.model_copy(update=scaled)
    intercept = rounded(slope * learned.intercept + offset)
    changed = learned.model_copy(update={"intercept": intercept, "terms": terms, "words": words})
    return changed, expit(slope * odds + offset)


def varies(column: Array) -> bool:
    """Return whether the values differ by more than the rounding of their mean; they may underflow, too."""
    return bool(column.std() > 10.0**-_DIGITS * np.abs(column).max())


def rounded(value: float) -> float:
    """Return a number as it is written to a policy."""
    return float(f"{value:.{_DIGITS}g}")
