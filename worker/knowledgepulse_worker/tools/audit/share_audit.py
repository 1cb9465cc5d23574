"""Recompute what shares decided from the scores before each record."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import repeat
from operator import eq, gt
from typing import Literal

from msgspec.structs import replace

from knowledgepulse_worker.policy import Profile, places
from knowledgepulse_worker.scoring import UNKNOWN_AGENT, LastScores, RecentScores, Score, scores_that_count
from knowledgepulse_worker.tools.audit.output_checks import ROUNDING

ShareVerdict = Literal["exact", "begun", "unaudited"]
"""Whether a decision could be recomputed, or its last scores begin with it for a reason outside the log."""


@dataclass
class _Domain:
    """The last scores of a domain, rebuilt record by record.

    Attributes:
        recent: the last scores.
        scale: the scale of the last score.
        is_known: whether they and their number since the scale began are those that the worker had.
            Otherwise they are so once they have filled the window, but for the order of equal scores.
    """

    recent: RecentScores = field(default_factory=RecentScores)
    scale: str | None = None
    is_known: bool = False


class ShareAudit:
    """The last scores of a partition.

    Those of a domain are known from the partition's beginning on, and otherwise from the record on that says
    it is the first of them. They begin with the first record under a share, with other weights, and when the
    worker cuts its ledger.

    Args:
        is_whole: whether the partition's first record is there, before which there are no last scores.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self._domains = defaultdict[str, _Domain](lambda: _Domain(is_known=self._is_whole))

    def doubt(self) -> None:
        """Forget all last scores, since a score is not known."""
        self._is_whole = False
        self._domains.clear()

    def add(self, score: Score, profile: Profile, agent_id: str | None) -> tuple[ShareVerdict, list[str]]:
        """Add the next record's published score; return whether it was audited, and what is wrong.

        ``agent_id``: the id of its trace's agent; None if it names none.
        """
        if profile.share is None:
            return "exact", []
        domain = self._domains[profile.domain]
        begins = score.of == 1 and domain.scale == profile.scale
        if score.of == 1:
            domain = self._domains[profile.domain] = _Domain(is_known=True)
        if score.withheld is None:
            domain.scale = profile.scale
        undecided = replace(score, threshold=profile.threshold, share=None, rank=None, of=None)
        expected = domain.recent.decide(undecided, profile, agent_id)
        if not domain.is_known:
            if expected.of is None or expected.of < profile.share_window:
                return "unaudited", []
            if score.rank in _ranks(domain.recent.last_scores()[profile.domain], profile):
                expected = replace(expected, rank=score.rank)
        wrong = [
            f"{name} is {getattr(score, name)}, recomputed {getattr(expected, name)}"
            for name in ("share", "rank", "of")
            if getattr(score, name) != getattr(expected, name)
        ]
        if not abs(score.threshold - expected.threshold) <= ROUNDING:
            wrong.append(f"threshold is {score.threshold:.9g}, recomputed {expected.threshold:.9g}")
        return ("begun" if begins else "exact"), wrong


def _ranks(last: LastScores, profile: Profile) -> range:
    """Return the ranks that the newest of the last scores may have, whatever the order of equal ones."""
    own, number = last.scores[-1], len(last.scores)
    agents = last.agents or [UNKNOWN_AGENT] * number
    limit = profile.counted_of_agent(places(profile.share or 0, number)) or number
    best = scores_that_count(sorted(zip(last.scores, repeat(0), agents), reverse=True), agents[-1], limit)
    scores = [score for score, _, _ in best]
    better, equal = (sum(compare(score, own) for score in scores) for compare in (gt, eq))
    return range(better + 1, better + equal + 1)
