"""Traces with their labels, and what gives a label away."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from knowledgepulse_curator.labels.fitted_traces import fitted_to
from knowledgepulse_curator.labels.groups import GROUP_ORIGINS, GroupOrigin, groups_of
from knowledgepulse_curator.labels.labels import MIN_SUPPORT, OUTCOME, Label, Labels, drawn_place, label_of
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Score, ScoredRecord, learned_value, quality_score, scores_under
from knowledgepulse_worker.tools.policies.estimates import Array

with extra("policy"):
    from sklearn.metrics import roc_auc_score

LEAK_AUC = 0.95
"""A dimension with this AUC or more, or one minus it or less, contains the label."""

LEAK_AGREEMENT = 0.99
"""Labels that equal ``metadata.success`` in this share of the traces are assumed to be derived from it."""

OUTCOME_DIMENSION = "outcome_confidence"
"""The dimension that is computed from ``metadata.success``, as many labels are."""

_STATED = re.compile(
    r"\b(reward|score|grade|resolved|passed|solved|success|correct|is_correct)\b"
    r"[\"']?\s*[:=]\s*[\"']?(true|false|\d{1,6}(?:\.\d{1,6})?)\b"
)
_BOOLEANS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, kw_only=True)
class LabelCounts:
    """The labelled traces of a domain.

    Attributes:
        domain: the profile's name, or that of all domains.
        kept: number of traces worth keeping.
        groups: number of independent groups.
        grouped: number of traces by how their group was found.
        agreement: share of the labels that equal `metadata.success`.
        of_outcomes: number of labels that are the traces' own outcomes.
    """

    domain: str
    traces: int
    kept: int
    groups: int
    grouped: Mapping[GroupOrigin, int]
    agreement: float
    of_outcomes: int = 0

    def too_few(self, of_each: int, groups: int) -> str:
        """Return a sentence on what is missing for a verdict."""
        return (
            f"too few labels: {self.kept:,} of {counted(self.traces, 'trace')} are worth keeping, in "
            f"{counted(self.groups, 'group')}; at least {of_each} of each kind and {groups} groups are needed"
        )

    @property
    def how_grouped(self) -> str:
        """A sentence part on how the groups were found."""
        return ", ".join(f"{count:,} {origin}" for origin, count in self.grouped.items() if count)


@dataclass(frozen=True)
class LabelledTrace:
    """A trace with its label and its group, the unit of resampling."""

    record: ScoredRecord
    label: Label
    kept: bool
    group: str
    origin: GroupOrigin


class LabelledTraces:
    """Labelled traces, with their labels as columns of shape (traces,).

    Args:
        traces: the labelled traces.
        records: all traces, among which a share is counted.
    """

    def __init__(self, traces: Sequence[LabelledTrace], records: Sequence[ScoredRecord]) -> None:
        self.traces = traces
        self._all = records
        self.kept = np.array([trace.kept for trace in traces])
        self.groups = np.unique([trace.group for trace in traces], return_inverse=True)[1]  # indices, from 0
        self.agreement = float(np.mean([trace.kept == trace.record.success for trace in traces]))
        self.records = [trace.record for trace in traces]

    def only(self, wanted: Array) -> LabelledTraces | None:
        """Return those that are wanted, by a mask of shape (traces,); None if there are none."""
        traces = [trace for trace, is_wanted in zip(self.traces, wanted, strict=True) if is_wanted]
        return LabelledTraces(traces, self._all) if traces else None

    def fitted_to(self, policy: Policy) -> Array:
        """Return whether a learned value of a policy was fitted to each trace, shape (traces,)."""
        return fitted_to(policy, self.records)

    def has(self, of_each: int, groups: int) -> bool:
        """Return whether there are enough traces of each kind, and enough groups to resample."""
        rarer = min(self.kept.sum(), (~self.kept).sum())
        return bool(rarer >= of_each and self.groups.max() + 1 >= groups)

    @property
    def checked(self) -> Array:
        """Whether each label is one that fits are judged by, shape (traces,).

        Where there are labels of people and of judges, people's are; otherwise all are.
        """
        of_people = np.array([not trace.label.is_judges for trace in self.traces])
        return of_people if of_people.any() else ~of_people

    @property
    def equals_success(self) -> bool:
        """Whether labels are the traces' own outcomes, or presumably derived from ``metadata.success``."""
        return self.agreement >= LEAK_AGREEMENT or self.of_outcomes > 0

    @property
    def of_outcomes(self) -> int:
        """The number of labels that are the traces' own outcomes."""
        return sum(trace.label.source == OUTCOME for trace in self.traces)

    @property
    def counts(self) -> dict[str, Any]:
        """The members of :class:`LabelCounts` but for the domain."""
        kept, groups = int(self.kept.sum()), int(self.groups.max()) + 1
        origins = Counter(trace.origin for trace in self.traces)
        grouped = {origin: origins[origin] for origin in GROUP_ORIGINS}
        return {
            "traces": len(self.kept),
            "kept": kept,
            "groups": groups,
            "grouped": grouped,
            "agreement": self.agreement,
            "of_outcomes": self.of_outcomes,
        }

    def scores(self, policy: Policy) -> list[Score]:
        """Return the traces' scores under a policy."""
        scores = scores_under(self._all, policy)
        by_record = {id(record): score for record, score in zip(self._all, scores, strict=True)}
        return [by_record[id(record)] for record in self.records]

    @property
    def labels(self) -> Labels:
        """The traces' labels; traces of one run may share one."""
        return {trace.label.id: trace.label for trace in self.traces}

    def by_domain(self, policy: Policy) -> dict[str, LabelledTraces]:
        """Return the labelled traces by the policy's profiles, in these names' order."""
        traces: defaultdict[str, list[LabelledTrace]] = defaultdict(list)
        records: defaultdict[str, list[ScoredRecord]] = defaultdict(list)
        for trace in self.traces:
            traces[policy.profile(trace.record.task_domain).domain].append(trace)
        for record in self._all:
            records[policy.profile(record.task_domain).domain].append(record)
        return {name: LabelledTraces(traces[name], records[name]) for name in sorted(traces)}


NO_LABEL = "no label"
"""The source of labels that :func:`with_rest` gives."""

MAX_UNLABELLED = 2_000
"""Number of traces without a label with which those worth keeping are compared."""


def with_rest(records: Sequence[ScoredRecord], labels: Labels, min_reward: float) -> Labels:
    """Return labels that say `keep` with those of other traces, which say `drop`.

    Otherwise, and if each trace has a label, return the labels as they are. Some of the other traces would be
    worth keeping as well, so that figures are lower than against traces that somebody dropped. Of more than
    :data:`MAX_UNLABELLED`, a sample is taken, in which a trace's place depends on its id alone.
    """
    given = {record.id: label_of(record, labels) for record in records}
    used = [label for label in given.values() if label is not None]
    if not used or not all(label.is_kept(min_reward) for label in used):
        return labels
    rest = sorted((name for name, label in given.items() if label is None), key=drawn_place)
    return labels | {name: Label(name, keep=False, source=NO_LABEL) for name in rest[:MAX_UNLABELLED]}


def matched(records: Sequence[ScoredRecord], labels: Labels, min_reward: float) -> LabelledTraces:
    """Return the labelled traces; raise an InputError if there are none."""
    pairs = [(record, label) for record in records if (label := label_of(record, labels)) is not None]
    groups = groups_of([record for record, _ in pairs], [label for _, label in pairs])
    traces = [
        LabelledTrace(record, label, label.is_kept(min_reward), *group)
        for (record, label), group in zip(pairs, groups, strict=True)
    ]
    if not traces:
        raise InputError(_no_match(records, labels))
    return LabelledTraces(traces, records)


def _no_match(records: Sequence[ScoredRecord], labels: Labels) -> str:
    """Say that no label matches a trace, and which id is meant."""
    first, given = records[0], next(iter(labels))
    native_id = first.native_id
    named = f"native_id {printable(native_id)}" if native_id else "native_id, which the first one lacks"
    numbers = f"{counted(len(labels), 'label')}, {counted(len(records), 'trace')}"
    return (
        f"no label matches a trace ({numbers}): a label's id is that of the trace, such as "
        f"{printable(first.id)}, or its metadata's {named}; not {printable(given)}"
    )


def leaks_label(area: float) -> bool:
    """Return whether a dimension of this AUC contains the label."""
    return not 1 - LEAK_AUC < area < LEAK_AUC


def outcomes_in_text(labelled: LabelledTraces) -> dict[str, int]:
    """Return the outcomes in the texts that predict the label, with the number of traces that state them.

    Only the shortened texts are searched, which include the ends of a trace. An outcome counts if enough
    traces of both kinds state it.
    """
    stated: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for number, trace in enumerate(labelled.traces):
        if (content := trace.record.content) is None:
            continue
        text = "\n".join((content.objective, *content.steps, content.result)).lower()
        for name, value in _STATED.findall(text):
            stated[name][number] = _BOOLEANS[value] if value in _BOOLEANS else float(value)
    stated_values = {}
    for name, values in stated.items():
        kept = labelled.kept[[*values]]
        if min(kept.sum(), (~kept).sum()) < MIN_SUPPORT:
            continue
        if leaks_label(roc_auc_score(kept, [*values.values()])):
            stated_values[name] = len(values)
    return stated_values


def held_scores(
    labelled: LabelledTraces, policy: Policy, constant: str | None, probabilities: Array | None = None
) -> Array:
    """Return the traces' scores under a policy.

    ``constant``: the dimension in which all have the mean. ``probabilities``: what the policy's learned
    values would be; by default, these are computed.
    """
    scores = labelled.scores(policy)
    held = {constant: float(np.mean([getattr(score, constant) for score in scores]))} if constant else {}
    values = [None] * len(scores) if probabilities is None else probabilities.tolist()
    rescored = []
    for trace, score, value in zip(labelled.traces, scores, values, strict=True):
        profile, dimensions = policy.profile(score.domain), replace(score.dimensions, **held)
        learned = learned_value(profile, dimensions, trace.record.counts) if value is None else value
        rescored.append(quality_score(dimensions, score.overrides, profile, learned))
    return np.array(rescored)
