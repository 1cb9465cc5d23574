"""A learned value from the labels of a domain, and its figures for traces that it was not fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from knowledgepulse_curator.fitting import logistic, word_fit
from knowledgepulse_curator.fitting.labelled_traces import LabelledTraces
from knowledgepulse_curator.fitting.permutations import scaled
from knowledgepulse_curator.fitting.word_fit import TraceWords, WordFit, fit_words
from knowledgepulse_worker.policy import LearnedValue
from knowledgepulse_worker.tools.policies.estimates import Array


class Wanted(NamedTuple):
    """How to fit a domain.

    Attributes:
        today: the date of the fit.
        target: the share of the traces that should pass at most.
        share: the part of the learned value in the score.
        constant: the term that is not fitted, and held constant; None to fit all.
        words: whether to fit words, too.
    """

    today: str
    target: float
    share: float
    constant: str | None
    words: bool


@dataclass(frozen=True)
class Learned:
    """What is learned from the labels of a domain.

    Attributes:
        labelled: all traces with a label.
        judged: those whose labels count in the appraisal.
        value: the learned value.
        probabilities: the value of the judged traces, of which none was fitted to.
        values: the values of all traces, by term.
        folds: the folds of all traces.
        words: what words add; None if none are fitted.
        trace_words: the words of all traces; None if the learned value has none.
    """

    labelled: LabelledTraces
    judged: LabelledTraces
    value: LearnedValue
    probabilities: Array
    values: dict[str, Array]
    folds: Array
    words: WordFit | None
    trace_words: TraceWords | None

    @property
    def columns(self) -> Array:
        """All that the value is learned from, a column each."""
        columns = scaled(self.values)
        return columns if self.trace_words is None else np.hstack([columns, self.trace_words.beside_facts])


def learn(labelled: LabelledTraces, judged: LabelledTraces, wanted: Wanted) -> Learned:
    """Learn a value from all labels, and compute it for the judged traces out of fold."""
    values = logistic.values_of(labelled.records)
    if wanted.constant:
        del values[wanted.constant]
    folds = logistic.folds_of(labelled.groups)
    value = logistic.learn(values, labelled.kept, wanted.share)
    added, words = fit_words(labelled, judged, values, folds) if wanted.words else (None, None)
    if words is not None:
        value = word_fit.with_words(value, words, labelled.kept, labelled.groups)
    odds = odds_out_of_fold(values, words, labelled.kept, folds)[labelled.checked]
    value, probabilities = logistic.calibrated(value, odds, judged.kept)
    return Learned(labelled, judged, value, probabilities, values, folds, added, words)


def odds_out_of_fold(values: dict[str, Array], words: TraceWords | None, kept: Array, folds: Array) -> Array:
    """Return the log odds of all traces by their facts and words, fitted to the other folds."""
    odds = logistic.out_of_fold(values, kept, folds)
    return odds if words is None else odds + word_fit.out_of_fold(words.columns, kept, folds)
