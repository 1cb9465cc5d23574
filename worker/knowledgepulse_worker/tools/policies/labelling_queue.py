"""The labelling queue: the most informative traces to label next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from typing import Any

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Score, ScoredRecord
from knowledgepulse_worker.tools.policies.advice import remarks
from knowledgepulse_worker.tools.policies.labelled_traces import Labelled, LabelledTrace
from knowledgepulse_worker.tools.policies.labels import Labels, label_of
from knowledgepulse_worker.tools.policies.policy_weights import expected_changes

COPY = 0.05
"""A trace with less novelty is a near copy of its nearest trace."""

FEW = 5
"""With fewer labels of a kind, weights cannot be fitted."""


@dataclass(frozen=True)
class QueuedTrace:
    """A trace to label."""

    record: ScoredRecord
    score: Score  # its score under the policy
    # how often weights fitted to resampled labels decide otherwise than those in force; None if there are too
    # few labels to fit
    change: float | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """The most likely to change first, and of these the closest to the threshold."""
        return -(self.change or 0), abs(self.score.quality_score - self.score.threshold)

    def as_dict(self, usual: Mapping[str, float]) -> dict[str, Any]:
        """Return as plain JSON what one needs to judge the trace; ``usual``: the usual lengths by domain."""
        content = self.record.content
        shown = content and {
            "objective": content.objective,
            "steps": content.steps,
            "result": content.result,
            "advice": remarks(content.features, usual[self.record.task_domain]),
        }
        return {
            "id": self.record.id,
            "source": self.record.source,
            "domain": self.score.domain,
            "score": self.score.quality_score,
            "threshold": self.score.threshold,
            "change": self.change,
            **(shown or {}),
        }


def labelling_queue(
    records: Iterable[ScoredRecord], labels: Labels, policy: Policy, count: int, min_reward: float = 0.5
) -> list[QueuedTrace]:
    """Return the traces with the most informative labels, most informative first.

    These are the traces on whose decision the weights in force and those fitted to the labels so far
    disagree, and then those close to the threshold, where a small change of it changes the route. Domains
    take turns, starting with the one with the fewest labels. Near copies of queued or labelled traces are
    left out.
    """
    waiting: defaultdict[str, list[QueuedTrace]] = defaultdict(list)
    labelled: defaultdict[str, list[LabelledTrace]] = defaultdict(list)
    for record in {record.id: record for record in records}.values():
        score, label = record.under(policy), label_of(record, labels)
        if label is None:
            waiting[score.domain].append(QueuedTrace(record, score))
        else:
            labelled[score.domain].append(LabelledTrace(record, label, label.is_kept(min_reward)))
    names = sorted(waiting, key=lambda name: (len(labelled[name]), name))
    ranked = (_ranked(waiting[name], labelled[name], policy) for name in names)
    in_turns = (one for one in chain.from_iterable(zip_longest(*ranked)) if one is not None)
    known = {one.record.id for each in labelled.values() for one in each}
    return list(islice(_without_copies(in_turns, known), count))


def _ranked(waiting: list[QueuedTrace], labelled: list[LabelledTrace], policy: Policy) -> list[QueuedTrace]:
    kept = sum(one.kept for one in labelled)
    if min(kept, len(labelled) - kept) >= FEW:
        changes = expected_changes(Labelled(labelled), [one.score for one in waiting], policy)
        waiting = [replace(one, change=change) for one, change in zip(waiting, changes, strict=True)]
    return sorted(waiting, key=lambda one: one.rank)


def _without_copies(ranked: Iterable[QueuedTrace], known: set[str]) -> Iterable[QueuedTrace]:
    """Skip near copies of known traces and of earlier ones."""
    copied: set[str] = set()
    for one in ranked:
        original = one.score.nearest if one.score.novelty < COPY else None
        if original not in known and one.record.id not in copied:
            known.add(one.record.id)
            if original is not None:
                copied.add(original)
            yield one
