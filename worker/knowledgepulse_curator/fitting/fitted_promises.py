"""What labels promise of a policy that was fitted to them, by ranks out of fold.

Each labelled trace is ranked among all traces by a value that was fitted to the labels of other tasks, so it
is not judged by itself. The value that is proposed is fitted to all labels, however, so no theorem stands
behind such a promise; ``docs/curators/evidence.md`` tells how often it was broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from knowledgepulse_curator.fitting import logistic
from knowledgepulse_curator.fitting.labelled_traces import LabelledTraces, matched
from knowledgepulse_curator.fitting.learning import Wanted, learn
from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_curator.promises.promise import Asked, Promise, promise, promises
from knowledgepulse_curator.promises.ranks import ranked
from knowledgepulse_curator.promises.sample import Stream, of_one_kind, sample_of
from knowledgepulse_worker.policy import LearnedValue, Policy
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import Array
from knowledgepulse_worker.tools.policies.tune import with_changes


def fitted_promises(
    records: Sequence[ScoredRecord],
    labels: Sequence[Label],
    policy: Policy,
    values: Mapping[str, LearnedValue],
    wanted: Wanted,
    asked: Asked,
) -> dict[str, Promise]:
    """Return what labels promise of each domain that has any.

    ``values``: the fitted values by domain; of other domains, the score in force is promised of.
    """
    found = promises(records, labels, policy, asked)
    chosen = (label for label in labels if label.sampling != "step")
    people_last = sorted(chosen, key=lambda label: not label.is_judges)
    labelled = matched(records, {label.id: label for label in people_last}, asked.min_reward)
    counting = {label.id: label for label in of_one_kind(labels)}
    for name, part in labelled.by_domain(policy).items():
        if name in values:
            own = [record for record in records if policy.profile(record.task_domain).domain == name]
            stream = Stream(own, _with_value(policy, name, values[name], wanted))
            found[name] = _promise(name, part, counting, stream, policy, wanted, asked)
    return found


def _promise(
    name: str,
    labelled: LabelledTraces,
    counting: Mapping[str, Label],
    stream: Stream,
    policy: Policy,
    wanted: Wanted,
    asked: Asked,
) -> Promise:
    """Return what the labels of a domain that were chosen at random promise of a fitted value."""
    width, now = ranked_out_of_fold(name, labelled, stream, policy, wanted)
    rows = [at for at, trace in enumerate(labelled.traces) if counting.get(trace.label.id) == trace.label]
    every = asked.whole and len(rows) == len(stream.records)
    pairs = [(labelled.records[at], labelled.traces[at].label) for at in rows]
    if every:
        pairs = [(record, replace(label, sampling="random")) for record, label in pairs]
    random = [at for at, (_, label) in enumerate(pairs) if label.sampling == "random"]
    taken = np.array(rows, int)[random]
    sample = sample_of([pairs[at] for at in random], width[taken], now[taken], stream.policy, None)
    return promise(name, sample, stream, asked, every=every, out_of_fold=True)


def ranked_out_of_fold(
    name: str, labelled: LabelledTraces, stream: Stream, policy: Policy, wanted: Wanted
) -> tuple[Array, Array]:
    """Return the width of each labelled trace, and whether it passes, by values fitted to other tasks.

    Where the labels of all others are of one kind, and tell no order, they are by the value of all.
    """
    places = {id(record): at for at, record in enumerate(stream.records)}
    at = np.array([places[id(record)] for record in labelled.records])
    width, now = stream.width[at], stream.now[at]
    judged = np.array([not trace.label.skipped for trace in labelled.traces])
    folds = logistic.folds_of(labelled.groups) if labelled.groups.max() else np.zeros(len(at), int)
    for fold in np.unique(folds):
        inside, others = folds == fold, labelled.only((folds != fold) & judged)
        checked = others and (others.only(others.checked) or others)
        if others and checked and checked.has(1, 1):
            changed = _with_value(policy, name, learn(others, checked, wanted).value, wanted)
            width[inside], now[inside] = (told[at[inside]] for told in ranked(stream.records, changed))
    return width, now


def _with_value(policy: Policy, name: str, value: LearnedValue, wanted: Wanted) -> Policy:
    return with_changes(policy, {name: {"learned": value, "share": wanted.target}})
