"""The labelling queue: the most informative traces to label next."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any

from worker.policy import Policy
from worker.scoring import Score, ScoredRecord
from worker.tools.policies.labels import Labels

COPY = 0.05
"""A trace with less novelty is a near copy of its nearest trace."""


@dataclass(frozen=True)
class Candidate:
    """A trace to label."""

    record: ScoredRecord
    score: Score

    @property
    def distance(self) -> float:
        """Distance of the score from the threshold."""
        return abs(self.score.quality_score - self.score.threshold)

    def as_dict(self) -> dict[str, Any]:
        """Return the trace's source and score as plain JSON."""
        return {
            "id": self.record.id,
            "source": self.record.source,
            "domain": self.score.domain,
            "score": self.score.quality_score,
            "threshold": self.score.threshold,
        }


def labelling_queue(
    records: Iterable[ScoredRecord], labels: Labels, policy: Policy, count: int
) -> list[Candidate]:
    """Return the traces with the most informative labels, most informative first.

    A label is most informative close to the threshold, where a small change of it changes the route. Domains
    take turns, starting with the one with the fewest labels. Near copies of queued or labelled traces are
    left out.

    Args:
        records: scored under any policy.
        labels: by trace id.
        policy: the policy to label for.
        count: maximum number of traces.
    """
    labelled: Counter[str] = Counter()
    by_domain: defaultdict[str, list[Candidate]] = defaultdict(list)
    for record in {record.id: record for record in records}.values():
        score = record.under(policy)
        if record.id in labels:
            labelled[score.domain] += 1
        else:
            by_domain[score.domain].append(Candidate(record, score))
    domains = sorted(by_domain, key=lambda name: (labelled[name], name))
    nearest = (sorted(by_domain[name], key=lambda one: one.distance) for name in domains)
    in_turns = (one for one in chain.from_iterable(zip_longest(*nearest)) if one is not None)
    return list(islice(_without_copies(in_turns, set(labels)), count))


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
