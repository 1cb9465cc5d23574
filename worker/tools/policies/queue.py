"""The labelling queue: the most informative traces to label next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from typing import Any

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Score, ScoredRecord
from knowledgepulse_worker.tools.policies.labelled import Labelled
from knowledgepulse_worker.tools.policies.labels import Labels, label_of

COPY = 0.05
"""A trace with less novelty is a near copy of its nearest trace."""

FEW = 5
"""With fewer labels of a kind, weights cannot be fitted."""


@dataclass(frozen=True)
class Candidate:
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
        """Return as plain JSON what one needs to judge the trace.

        Args:
            usual: the usual lengths by task domain.
        """
        from knowledgepulse_worker.tools.policies.advice import remarks  # noqa: PLC0415 - needs the extra

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


@dataclass
class _Domain:
    labelled: list[Labelled] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    open: list[tuple[ScoredRecord, Score]] = field(default_factory=list)


def labelling_queue(
    records: Iterable[ScoredRecord], labels: Labels, policy: Policy, count: int, min_reward: float = 0.5
) -> list[Candidate]:
    """Return the traces with the most informative labels, most informative first.

    These are the traces on whose decision the weights in force and those fitted to the labels so far
    disagree, and then those close to the threshold, where a small change of it changes the route. Domains
    take turns, starting with the one with the fewest labels. Near copies of queued or labelled traces are
    left out.
    """
    by_domain: defaultdict[str, _Domain] = defaultdict(_Domain)
    known = set()
    for record in {record.id: record for record in records}.values():
        score, label = record.under(policy), label_of(record, labels)
        domain = by_domain[score.domain]
        if label is None:
            domain.open.append((record, score))
        else:
            known.add(record.id)
            domain.labelled.append(Labelled(record, label, label.is_kept(min_reward)))
            domain.scores.append(score)
    names = sorted(by_domain, key=lambda name: (len(by_domain[name].labelled), name))
    ranked = (sorted(_candidates(by_domain[name], policy), key=lambda one: one.rank) for name in names)
    in_turns = (one for one in chain.from_iterable(zip_longest(*ranked)) if one is not None)
    return list(islice(_without_copies(in_turns, known), count))


def _candidates(domain: _Domain, policy: Policy) -> list[Candidate]:
    kept = sum(one.kept for one in domain.labelled)
    changes: Sequence[float | None] = [None] * len(domain.open)
    if domain.open and min(kept, len(domain.labelled) - kept) >= FEW:
        from knowledgepulse_worker.tools.policies.expected_change import expected_changes  # noqa: PLC0415 - needs the extra

        changes = expected_changes(
            domain.labelled, domain.scores, [score for _, score in domain.open], policy
        )
    return [Candidate(*one, change) for one, change in zip(domain.open, changes, strict=True)]


def _without_copies(candidates: Iterable[Candidate], known: set[str]) -> Iterable[Candidate]:
    """Skip near copies of known traces and of earlier candidates."""
    copied: set[str] = set()
    for one in candidates:
        original = one.score.nearest if one.score.novelty < COPY else None
        if original not in known and one.record.id not in copied:
            known.add(one.record.id)
            if original is not None:
                copied.add(original)
            yield one
