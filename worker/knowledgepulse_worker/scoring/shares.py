"""Shares: a trace passes if its score is among the best of its partition's last ones in its domain.

A trace's rank among the last scores, its own included, is compared with the share of their number
(:meth:`Profile.window`). The share so passes whatever the scores, as long as their order is random. Equal
scores are ordered by a number that each trace gets in its turn, the fractional part of a multiple of the
golden ratio. These numbers are spread evenly (Knuth, The Art of Computer Programming, 6.4), so that of many
equal scores about the share passes, neither all nor none.

Only scores of the same scale are ranked together: other weights or another learned value begin anew. A trace
that is withheld gets no rank and takes no place.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from knowledgepulse_worker.policy import MAX_DOMAINS, Profile, places
from knowledgepulse_worker.scoring.score import Score

_GOLDEN, _TURNS = 2654435769, 1 << 32
"""2**32 divided by the golden ratio, and 2**32."""


class LastScores(msgspec.Struct, array_like=True):
    """The last scores of a domain in a partition, as a ledger keeps them.

    Attributes:
        scale: the scale of all scores, see :attr:`Profile.scale`.
        count: the number of scores since the scale began, of which the last are kept.
        scores: the last scores, the oldest first.
    """

    scale: str = ""
    count: int = 0
    scores: list[float] = msgspec.field(default_factory=list)

    def add(self, score: float, profile: Profile) -> None:
        """Add a score that was given under a profile; drop those beyond its window or of another scale."""
        if self.scale != profile.scale:
            self.scale, self.count = profile.scale, 0
            self.scores.clear()
        self.count += 1
        self.scores.append(score)
        del self.scores[: -profile.window(self.count)]

    def copy(self) -> LastScores:
        """Return a copy that does not change with this one."""
        return LastScores(self.scale, self.count, [*self.scores])


class _Ranking:
    """The last scores of a domain in the order of their ranks."""

    def __init__(self, last: LastScores) -> None:
        self.last = last
        self._sort()

    def _sort(self) -> None:
        """Order all scores, the lowest first, and equal ones by their turns."""
        scores, first = self.last.scores, self.last.count - len(self.last.scores) + 1
        self._ordered = sorted((score, _turn(number)) for number, score in enumerate(scores, first))

    def add(self, score: float, profile: Profile) -> int:
        """Add a score and return its rank, 1 for the best."""
        last, ordered = self.last, self._ordered
        kept = len(last.scores)
        oldest = (last.scores[0], _turn(last.count - kept + 1)) if kept else None
        continues = last.scale == profile.scale
        last.add(score, profile)
        own, dropped = (score, _turn(last.count)), kept + 1 - len(last.scores)
        if continues and dropped <= 1:
            if oldest is not None and dropped:
                del ordered[bisect_left(ordered, oldest)]
            insort(ordered, own)
        else:
            self._sort()
        return len(self._ordered) - bisect_left(self._ordered, own)

    def cut(self, share: float) -> float | None:
        """Return the lowest of the best scores; None if there are too few for one to pass."""
        best = places(share, len(self._ordered))
        return self._ordered[-best][0] if best else None


class RecentScores:
    """The last scores of a partition, by domain.

    There are at most :data:`MAX_DOMAINS`, as policies may name others: the domain that has gone longest
    without a score is forgotten.

    Args:
        domains: the last scores by domain, that with the newest score last.
    """

    def __init__(self, domains: Mapping[str, LastScores] | None = None) -> None:
        self._rankings = {name: _Ranking(last) for name, last in (domains or {}).items()}

    def decide(self, score: Score, profile: Profile) -> Score:
        """Rank a score under a profile with a share, add it to the last ones, and return it with its rank.

        A score under a profile without a share is returned as it is. A withheld one is not ranked or added,
        but gets the cut that it would have to reach.
        """
        share = profile.share
        if share is None:
            return score
        if score.withheld is not None:
            ranking = self._rankings.get(profile.domain)
            cut = None if ranking is None or ranking.last.scale != profile.scale else ranking.cut(share)
            return replace(score, share=share, threshold=score.threshold if cut is None else cut)
        ranking = self._rankings.pop(profile.domain, None) or _Ranking(LastScores())
        self._rankings[profile.domain] = ranking
        _forget(self._rankings)
        rank, number = ranking.add(score.quality_score, profile), len(ranking.last.scores)
        cut = ranking.cut(share)
        if cut is None:
            return replace(score, share=share, of=number)
        return replace(score, share=share, threshold=cut, rank=rank, of=number)

    def last(self) -> dict[str, LastScores]:
        """Return the last scores by domain, that with the newest score last."""
        return {name: ranking.last for name, ranking in self._rankings.items()}


def after(last: Mapping[str, LastScores], added: Iterable[tuple[float, Profile]]) -> dict[str, LastScores]:
    """Return the last scores by domain after more of them; those before do not change.

    ``last`` and the result have the domain with the newest score last. Domains without more scores have the
    same object in both.
    """
    result = dict(last)
    for score, profile in added:
        name = profile.domain
        one = result.pop(name, None)
        if one is None or one is last.get(name):
            one = LastScores() if one is None else one.copy()
        one.add(score, profile)
        result[name] = one
        _forget(result)
    return result


def _forget(domains: dict[str, Any]) -> None:
    if len(domains) > MAX_DOMAINS:
        del domains[next(iter(domains))]


def _turn(number: int) -> int:
    return number * _GOLDEN % _TURNS
