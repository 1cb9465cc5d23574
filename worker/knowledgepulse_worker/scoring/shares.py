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

from bisect import bisect_left
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from knowledgepulse_worker.policy import MAX_DOMAINS, SHARE_WINDOWS, Profile, places
from knowledgepulse_worker.scoring.score import Score

_GOLDEN, _TURNS = 2654435769, 1 << 32
"""2**32 divided by the golden ratio, and 2**32."""


class LastScores(msgspec.Struct, array_like=True, frozen=True):
    """The last scores of a domain in a partition, as a ledger keeps them.

    Attributes:
        scale: the scale of all scores, see :attr:`Profile.scale`.
        count: the number of scores since the scale began, of which the last are kept.
        scores: the last scores, the oldest first.
    """

    scale: str
    count: int
    scores: list[float]


class AddedScore(msgspec.Struct, frozen=True):
    """A score that was added to the last ones of its domain.

    Attributes:
        domain: the domain.
        forgotten: the domain that was forgotten for it, if any.
        scale: the scale of the scores.
        count: the number of scores since the scale began.
        log: scores of the domain, the oldest first, to which later ones are appended.
        first: the index of the first of the last scores.
        end: the index after this one.
    """

    domain: str
    forgotten: str | None
    scale: str
    count: int
    log: list[float]
    first: int
    end: int

    def last_scores(self) -> LastScores:
        """Return the last scores, of which this is the newest."""
        return LastScores(self.scale, self.count, self.log[self.first : self.end])


class _Ranking:
    """The last scores of a domain, in the order of their ranks too.

    Attributes:
        scale: the scale of all scores.
        count: the number of scores since the scale began.
        log: the scores in their order; nothing in it changes, so that :class:`AddedScore` can refer to it.
        first: the index of the first of the last scores.
    """

    def __init__(self, last: LastScores) -> None:
        self.scale, self.count, self.log, self.first = last.scale, last.count, [*last.scores], 0
        numbers = range(self.count - len(self.log) + 1, self.count + 1)
        self._ordered = sorted(zip(self.log, map(_turn, numbers), strict=True))

    def add(self, score: float, window: int) -> int:
        """Add a score, keep no more than a window of them, and return its rank, 1 for the best."""
        ordered = self._ordered
        self.count += 1
        while len(ordered) >= window:
            oldest = (self.log[self.first], _turn(self.count - len(ordered)))
            del ordered[bisect_left(ordered, oldest)]
            self.first += 1
        if self.first >= SHARE_WINDOWS.stop:
            self.log, self.first = self.log[self.first :], 0
        self.log.append(score)
        own = (score, _turn(self.count))
        place = bisect_left(ordered, own)
        ordered.insert(place, own)
        return len(ordered) - place

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

    Attributes:
        added: what the latest decision added; None if it added nothing.
    """

    def __init__(self, domains: Mapping[str, LastScores] | None = None) -> None:
        self.added: AddedScore | None = None
        self._rankings = {name: _Ranking(last) for name, last in (domains or {}).items()}

    def decide(self, score: Score, profile: Profile) -> Score:
        """Rank a score under a profile with a share, add it to the last ones, and return it with its rank.

        A score under a profile without a share is returned as it is. A withheld one is not ranked or added,
        but gets the cut that it would have to reach.
        """
        self.added = None
        domain, share = profile.domain, profile.share
        if share is None:
            return score
        ranking = self._rankings.get(domain)
        if ranking is not None and ranking.scale != profile.scale:
            ranking = None
        if score.withheld is not None:
            cut = None if ranking is None else ranking.cut(share)
            return replace(score, share=share, threshold=score.threshold if cut is None else cut)
        if ranking is None:
            ranking = _Ranking(LastScores(profile.scale, 0, []))
        rank = ranking.add(score.quality_score, profile.window(ranking.count + 1))
        first, end, cut = ranking.first, len(ranking.log), ranking.cut(share)
        forgotten = self._set_newest(domain, ranking)
        self.added = AddedScore(domain, forgotten, ranking.scale, ranking.count, ranking.log, first, end)
        number = end - first
        if cut is None:
            return replace(score, share=share, of=number)
        return replace(score, share=share, threshold=cut, rank=rank, of=number)

    def last_scores(self) -> dict[str, LastScores]:
        """Return the last scores by domain, that with the newest score last."""
        return {
            domain: LastScores(ranking.scale, ranking.count, ranking.log[ranking.first :])
            for domain, ranking in self._rankings.items()
        }

    def _set_newest(self, domain: str, ranking: _Ranking) -> str | None:
        """Keep the scores of the domain with the newest score; return the domain that is forgotten for it."""
        rankings = self._rankings
        rankings.pop(domain, None)
        rankings[domain] = ranking
        if len(rankings) <= MAX_DOMAINS:
            return None
        forgotten = next(iter(rankings))
        del rankings[forgotten]
        return forgotten


def _turn(number: int) -> int:
    return number * _GOLDEN % _TURNS
