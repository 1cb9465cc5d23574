"""The effective values of a domain."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

from knowledgepulse_worker.policy.learned import LearnedValue, Reading
from knowledgepulse_worker.policy.weights import Weights


@dataclass(frozen=True)
class Profile:
    """The effective values of a domain.

    Attributes:
        domain: the profile's name.
        weights: the weights of the dimensions.
        threshold: the lowest score that passes; with a share, as long as there are too few scores for it.
        learned: the learned value; None without an effective one.
        share: the share of the best traces that passes; None if the threshold decides.
        share_window: the greatest number of last scores among which a trace is ranked.
        agent_cap: the greatest part of the share's places that the better scores of one agent take from
            another's; 1 caps nothing.
        min_novelty: the lowest novelty that is not withheld.
        min_score: the lowest score that is not withheld.
    """

    domain: str
    weights: Weights
    threshold: float
    learned: LearnedValue | None = None
    share: float | None = None
    share_window: int = 0
    agent_cap: float = 1.0
    min_novelty: float = 0.0
    min_score: float = 0.0

    @property
    def rule(self) -> dict[str, float]:
        """The share, or else the threshold, as a domain's own table has it."""
        return {"threshold": self.threshold} if self.share is None else {"share": self.share}

    def window(self, count: int) -> int:
        """Return the number of last scores among which a trace is ranked, when there have been ``count``.

        While the novelty cache fills, novelty falls, and a trace among older ones ranks low. So as long as
        the window is not full, only the newer half of the scores counts, but enough of them for one place.
        """
        return min(self.share_window, max(self._least, count // 2))

    def counted_of_agent(self, passing: int) -> int | None:
        """Return how many better scores of one agent count in another's rank; None if all do.

        ``passing``: the number of scores that pass.
        """
        return None if self.agent_cap == 1 else max(1, places(self.agent_cap, passing))

    @property
    def ranking(self) -> tuple[float, ...]:
        """What decides on ranks under a share, without what has no effect."""
        if self.share is None:
            return ()
        cap = () if self.agent_cap == 1 else (self.agent_cap,)
        return (self.share, self.share_window, *cap)

    @cached_property
    def _least(self) -> int:
        """The number of scores of which the share is one place."""
        return 0 if self.share is None else math.ceil(1 / self.share)

    @cached_property
    def scale(self) -> str:
        """A hash of everything that gives the score: only scores of equal scale are ranked together."""
        weights = [weight for _, weight in self.weights]
        learned = self.learned and (self.learned.share, self.learned.intercept, sorted(self.terms))
        given = (weights, learned) if self.words is None else (weights, learned, *self.words)
        return hashlib.sha256(repr(given).encode()).hexdigest()[:12]

    @cached_property
    def terms(self) -> tuple[tuple[str, float, float, float, float], ...]:
        """Name, mean, deviation, weight and clip of each term, which are read faster than models."""
        terms = self.learned.terms if self.learned else {}
        return tuple(
            (name, term.mean, term.deviation, term.weight, term.clip) for name, term in terms.items()
        )

    @property
    def reading(self) -> Reading:
        """What its learned value reads of a trace."""
        if self.learned is None:
            return Reading.NOTHING
        return Reading.COUNTS if self.learned.words is None else Reading.WORDS

    @cached_property
    def words(self) -> tuple[float, float, bytes] | None:
        """The unit, the mean and the weights of words; None without."""
        words = self.learned.words if self.learned else None
        return None if words is None else (words.unit, words.mean, words.table)


def places(share: float, scores: int) -> int:
    """Return how many of this number of scores a share lets pass, rounded."""
    return int(share * scores + 0.5)
