"""Words beside facts: what they add to a learned value, and words that give the label away.

Two regressions, of facts and of words, are fitted to the same labels, and their log odds are added. A single
regression would need one penalty for both, and facts say too much to be held down like words.

Words know tasks. Therefore they are judged twice: on tasks that they were not fitted to, in folds of whole
groups, which alone decides; and on tasks that they have seen, in folds of traces, beside the rate at which a
task's other traces are kept, as most of that is knowing how often a task goes well.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from knowledgepulse_curator.fitting import logistic
from knowledgepulse_curator.fitting.labelled_traces import LabelledTraces, leaks_label
from knowledgepulse_curator.fitting.private_words import private_words
from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.policy import BUCKETS, LearnedValue, Words
from knowledgepulse_worker.scoring import NoFactsError, ScoredRecord
from knowledgepulse_worker.scoring.words import buckets_of, hashes_of
from knowledgepulse_worker.tools.policies.estimates import Array, Estimate, areas, estimates, percentiles

with extra("policy"):
    from scipy.sparse import csr_array
    from sklearn.linear_model import LogisticRegression

MIN_TRACES_OF_EACH_KIND = 50
"""Words need this many traces of each kind, since there are many more of them than facts."""

MIN_SHARE_OF_KNOWN_GROUPS = 0.9
"""The share of the traces whose group has to be given, or found by an equal objective.

Groups of similar words miss some runs of a task, and words recognise these: labels that depend on the task
alone would be proposed.
"""

REGULARISATION_OF_WORDS = 3.0
"""The regularisation ``C`` of the words, chosen on five corpora; see ``docs/curators/evidence.md``."""

STRONGEST_BUCKETS, WORDS_OF_A_BUCKET = 40, 3
"""Number of buckets whose words a policy keeps for people, and of words in each."""

MIN_GROUPS_OF_NAMES = 5
"""A word that is kept for people has to be in this many groups, or it may be a name or a secret."""

MAX_LEAKS = 10
"""Maximum words that give the label away, which are reported."""


@dataclass(frozen=True, kw_only=True)
class WordFit:
    """What words add to the facts of a domain.

    Attributes:
        left_out: why the learned value is without words; empty if it has them.
        leaks: AUCs of the words that predict the label on their own, the furthest from chance first.
        alone: the AUC of the words alone; None with too few labels, as `gain`.
        gain: the AUC of facts and words minus that of the facts alone.
        seen: by name, AUCs on tasks that were fitted to; empty if no two traces are of one task.
    """

    left_out: str = ""
    leaks: dict[str, Estimate] = field(default_factory=dict)
    alone: Estimate | None = None
    gain: Estimate | None = None
    seen: dict[str, Estimate] = field(default_factory=dict)


class TraceWords:
    """The distinct words of traces.

    Args:
        records: the traces.

    Attributes:
        columns: the words of each trace in each bucket, divided by the square root of their number, shape
            (traces, BUCKETS).

    Raises:
        NoFactsError: the words of a trace are unknown.
    """

    def __init__(self, records: Sequence[ScoredRecord]) -> None:
        vocabulary: dict[bytes, int] = {}
        at: list[int] = []
        ends = [0]
        for record in records:
            if record.counts is None or record.counts.words is None:
                raise NoFactsError("words")
            words = record.counts.words.encode("utf-8", "replace").split()
            at += [vocabulary.setdefault(word, len(vocabulary)) for word in words]
            ends.append(len(at))
        self._words = [*vocabulary]
        self._records = records
        counted = csr_array((np.ones(len(at)), at, ends), shape=(len(records), len(vocabulary)))
        self._has = (counted > 0).astype(float)  # a word may be in several parts of a text
        self._buckets = buckets_of(hashes_of(self._words, len(self._words)), BUCKETS)
        ones = np.ones(len(self._words))
        hashed = csr_array((ones, (np.arange(len(ones)), self._buckets)), shape=(len(ones), BUCKETS))
        numbers = np.maximum(np.diff(ends), 1)
        self.columns: Array = (counted @ hashed).toarray() / np.sqrt(numbers)[:, None]

    @property
    def beside_facts(self) -> Array:
        """The columns in units in which one penalty serves words and facts."""
        scaled: Array = self.columns * np.sqrt(REGULARISATION_OF_WORDS / logistic.REGULARISATION)
        return scaled

    def leaks(self, kept: Array, groups: Array) -> dict[str, Estimate]:
        """Return the words whose presence alone predicts the label, with their AUCs."""
        rates = [self._has[mask].sum(axis=0) / mask.sum() for mask in (kept, ~kept)]
        alone = 0.5 + (rates[0] - rates[1]) / 2
        furthest = np.argsort(-np.abs(alone - 0.5), kind="stable")[:MAX_LEAKS]
        leaking = [at for at in furthest if leaks_label(alone[at])]
        columns = [self._has[:, [at]].toarray()[:, 0] for at in leaking]
        names = [self._words[at].decode() for at in leaking]
        return dict(zip(names, estimates(kept, columns, groups), strict=True)) if leaking else {}

    def strongest(self, words: Words, groups: Array) -> Words:
        """Return words with the names of the strongest buckets, but for those of people and their folders."""
        weights = np.frombuffer(words.table, np.int8)
        of_group = csr_array((np.ones(len(groups)), (groups, np.arange(len(groups)))))
        numbers = ((of_group @ self._has) > 0).sum(axis=0)
        hidden = private_words(self._records)
        shown = np.array([word not in hidden for word in self._words], dtype=bool)
        named: dict[int, str] = {}
        for bucket in np.argsort(-np.abs(weights) * self.columns.std(axis=0), kind="stable").tolist():
            inside = np.flatnonzero((self._buckets == bucket) & (numbers >= MIN_GROUPS_OF_NAMES) & shown)
            frequent = inside[np.argsort(-numbers[inside], kind="stable")[:WORDS_OF_A_BUCKET]]
            if weights[bucket] and len(frequent):
                named[bucket] = b" ".join(self._words[at] for at in frequent).decode()
            if len(named) == STRONGEST_BUCKETS:
                break
        return words.model_copy(update={"strongest": named})


def fit_words(
    labelled: LabelledTraces, judged: LabelledTraces, values: dict[str, Array], folds: Array
) -> tuple[WordFit, TraceWords | None]:
    """Judge words beside facts; return what they add, and the words if the learned value should have them.

    ``labelled``, ``values`` and ``folds`` are of all labels, ``judged`` of those that are checked.
    """
    kept, checked = labelled.kept, labelled.checked
    rarer = int(min(kept.sum(), (~kept).sum()))
    if rarer < MIN_TRACES_OF_EACH_KIND:
        told = f"they need {MIN_TRACES_OF_EACH_KIND} traces of each kind, and of one there are {rarer}"
        return WordFit(left_out=told), None
    unknown = sum(trace.origin in {"similar words", "alone"} for trace in labelled.traces)
    if unknown > (1 - MIN_SHARE_OF_KNOWN_GROUPS) * len(kept):
        told = f"the task of {unknown:,} of {counted(len(kept), 'trace')} is not known"
        return WordFit(left_out=f"{told}, and words recognise tasks: give their labels a group"), None
    words = TraceWords(labelled.records)
    facts = logistic.out_of_fold(values, kept, folds)
    alone = out_of_fold(words.columns, kept, folds)
    orders = [facts[checked], alone[checked], (facts + alone)[checked]]
    aucs, drawn = areas(judged.kept, orders, judged.groups, folds[checked])
    result = WordFit(
        leaks=words.leaks(kept, labelled.groups),
        alone=percentiles(aucs[1], drawn[1]),
        gain=percentiles(aucs[2] - aucs[0], drawn[2] - drawn[0]),
        seen=_seen(labelled, judged, values, words.columns),
    )
    if result.leaks or leaks_label(aucs[1]):
        return replace(result, left_out="they give the label away"), None
    if result.gain is None or not result.gain.low > 0:
        return replace(
            result, left_out="they are not shown to order traces better than the facts alone"
        ), None
    return result, words


def _seen(
    labelled: LabelledTraces, judged: LabelledTraces, values: dict[str, Array], columns: Array
) -> dict[str, Estimate]:
    """Return AUCs on tasks that were fitted to, in folds of single traces."""
    kept, groups, checked = labelled.kept, labelled.groups, labelled.checked
    if groups.max() + 1 == len(groups):
        return {}
    folds = logistic.folds_of(np.arange(len(kept)))
    facts = logistic.out_of_fold(values, kept, folds)
    orders = {
        "facts alone": facts,
        "facts and words": facts + out_of_fold(columns, kept, folds),
        "the rate at which the task's other traces are kept": logistic.rates_out_of_fold(
            [*map(str, groups)], kept, folds
        ),
    }
    estimated = estimates(
        judged.kept, [order[checked] for order in orders.values()], judged.groups, folds[checked]
    )
    return dict(zip(orders, estimated, strict=True))


def out_of_fold(columns: Array, kept: Array, folds: Array) -> Array:
    """Return the log odds of each trace by its words, fitted to the other folds; see ``by_fold``."""

    def predict(others: Array, at: Array) -> Array:
        odds: Array = _regression(columns[others], kept[others]).decision_function(columns[at])
        return odds

    return logistic.by_fold(kept, folds, predict)


def with_words(learned: LearnedValue, words: TraceWords, kept: Array, groups: Array) -> LearnedValue:
    """Return a learned value of facts with a regression on words added, not yet calibrated."""
    model = _regression(words.columns, kept)
    weights, intercept = model.coef_[0], model.intercept_[0]
    unit = logistic.rounded(max(np.abs(weights).max(), 1e-9) / 127)
    table = np.clip(np.rint(weights / unit), -127, 127).astype(np.int8)
    mean = logistic.rounded((words.columns @ weights).mean())
    hashed = Words(unit=unit, mean=mean, weights=b64encode(table.tobytes()).decode())
    return learned.model_copy(
        update={
            "intercept": logistic.rounded(learned.intercept + intercept + mean),
            "words": words.strongest(hashed, groups),
        }
    )


def _regression(columns: Array, kept: Array) -> LogisticRegression:
    return LogisticRegression(C=REGULARISATION_OF_WORDS, max_iter=1000).fit(columns, kept)
