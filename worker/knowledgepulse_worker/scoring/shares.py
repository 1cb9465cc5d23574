"""Shares: a trace passes if its score is among the best of its partition's last ones in its domain.

A trace's rank among the last scores, its own included, is compared with the share of their number
(:meth:`Profile.window`). The share so passes whatever the scores, as long as their order is random. Equal
scores are ordered by a number that each trace gets in its turn, the fractional part of a multiple of the
golden ratio. These numbers are spread evenly (Knuth, The Art of Computer Programming, 6.4), so that of many
equal scores about the share passes, neither all nor none.

A cap for agents limits how many better scores of one agent count in another's rank
(:func:`scores_that_count`), so that one that floods a partition leaves places to the others.

Only scores of the same scale are ranked together: other weights or another learned value begin anew. A trace
that is withheld gets no rank and takes no place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Annotated, TypeAlias

import msgspec
from msgspec.structs import replace

from knowledgepulse_worker.policy import MAX_DOMAINS, SHARE_WINDOWS, Profile, places
from knowledgepulse_worker.scoring.score import Score

_GOLDEN, _TURNS = 2654435769, 1 << 32
"""2**32 divided by the golden ratio, and 2**32."""

AGENT_BYTES = 8
"""The length of the digest of an agent's id."""

UNKNOWN_AGENT = b""
"""In place of the digest, of a score from before there was a cap."""

RankedScore: TypeAlias = tuple[float, int, bytes]
"""A score, the number of its turn, and the digest of its agent's id."""


class LastScores(msgspec.Struct, array_like=True, frozen=True):
    """The last scores of a domain in a partition, as a ledger keeps them.

    Attributes:
        scale: the scale of all scores, see :attr:`Profile.scale`.
        count: the number of scores since the scale began, of which the last are kept.
        scores: the last scores, the oldest first.
        agents: the digests of their agents' ids; empty if all are unknown, as they are without a cap.
    """

    scale: str
    count: int
    scores: list[float]
    agents: list[Annotated[bytes, msgspec.Meta(max_length=AGENT_BYTES)]] = msgspec.field(default_factory=list)


class AddedScore(msgspec.Struct, frozen=True):
    """A score that was added to the last ones of its domain.

    Attributes:
        domain: the domain.
        forgotten: the domain that was forgotten for it, if any.
        scale: the scale of the scores.
        count: the number of scores since the scale began.
        log: scores of the domain, the oldest first, to which later ones are appended.
        agents: the digests of their agents' ids.
        first: the index of the first of the last scores.
        end: the index after this one.
    """

    domain: str
    forgotten: str | None
    scale: str
    count: int
    log: list[float]
    agents: list[bytes]
    first: int
    end: int

    def last_scores(self) -> LastScores:
        """Return the last scores, of which this is the newest."""
        agents = self.agents[self.first : self.end]
        scores = self.log[self.first : self.end]
        return LastScores(self.scale, self.count, scores, agents if any(agents) else [])


class _Capped:
    """Scores of which a limited number of each agent counts, in the order of their ranks.

    A rank and a cut are found by bisection, whatever the number of scores; :func:`scores_that_count` says
    which scores count.

    Args:
        scores: the scores, the worst first.
        limit: the number of scores that count of each agent; those of unknown agents all do.

    Attributes:
        limit: see the arguments.
    """

    def __init__(self, scores: Iterable[RankedScore], limit: int) -> None:
        self.limit = limit
        self._counted: list[RankedScore] = []
        self._of_agents: dict[bytes, list[RankedScore]] = {}
        for score in scores:
            self.add(score)

    def add(self, score: RankedScore) -> None:
        """Add a score, which may take the place of the agent's worst one that has counted."""
        if (agent := score[2]) == UNKNOWN_AGENT:
            insort(self._counted, score)
            return
        own = self._of_agents.setdefault(agent, [])
        place = bisect_left(own, score)
        own.insert(place, score)
        if len(own) - place <= self.limit:
            insort(self._counted, score)
            if len(own) > self.limit:
                _remove(self._counted, own[-self.limit - 1])

    def remove(self, score: RankedScore) -> None:
        """Remove a score, whose place goes to the agent's best one that has not counted."""
        if (agent := score[2]) == UNKNOWN_AGENT:
            _remove(self._counted, score)
            return
        own = self._of_agents[agent]
        place = _remove(own, score)
        if len(own) - place < self.limit:
            _remove(self._counted, score)
            if len(own) >= self.limit:
                insort(self._counted, own[-self.limit])
        if not own:
            del self._of_agents[agent]

    def rank(self, score: RankedScore) -> int:
        """Return the rank of a score among those that count, and all of its agent's; 1 is the best."""
        own = self._of_agents.get(score[2], ())
        better_of_own = len(own) - bisect_right(own, score)
        beyond = max(0, better_of_own - self.limit)
        return len(self._counted) - bisect_right(self._counted, score) + beyond + 1

    def best(self, number: int, agent: bytes) -> float:
        """Return the worst of so many best scores among those that count, and all of an agent's.

        It is 0 if there are fewer. What counts for the agent only are its worst scores, and of the two
        ordered lists, the smallest part of these is sought that leaves no better one out.
        """
        counted, own = self._counted, self._of_agents.get(agent, ())
        beyond = max(0, len(own) - self.limit)
        if number > len(counted) + beyond:
            return 0.0

        def is_enough(part: int) -> bool:
            rest = number - part
            return part == beyond or not rest or counted[-rest] > own[beyond - 1 - part]

        part = bisect_left(
            range(beyond), True, max(0, number - len(counted)), min(beyond, number), key=is_enough
        )
        rest = number - part
        worst = [*([counted[-rest]] if rest else []), *([own[beyond - part]] if part else [])]
        return min(worst)[0]


def _remove(scores: list[RankedScore], score: RankedScore) -> int:
    """Remove a score from an ordered list; return where it was."""
    place = bisect_left(scores, score)
    del scores[place]
    return place


class _Ranking:
    """The last scores of a domain, in the order of their ranks too.

    Attributes:
        scale: the scale of all scores.
        count: the number of scores since the scale began.
        log: the scores in their order; nothing in it changes, so that :class:`AddedScore` can refer to it.
        agents: the digests of their agents' ids, likewise.
        first: the index of the first of the last scores.
    """

    def __init__(self, last: LastScores) -> None:
        self.scale, self.count, self.log, self.first = last.scale, last.count, [*last.scores], 0
        self.agents = [*last.agents] or [UNKNOWN_AGENT] * len(self.log)
        turns = map(_turn, range(self.count - len(self.log) + 1, self.count + 1))
        self._ordered = sorted(zip(self.log, turns, self.agents, strict=True))
        self._capped: _Capped | None = None

    def add(self, score: float, agent: bytes, window: int) -> int:
        """Add a score, keep no more than a window of them, and return how many are ranked after it."""
        ordered = self._ordered
        self.count += 1
        while len(ordered) >= window:
            turn = _turn(self.count - len(ordered))
            oldest = (self.log[self.first], turn, self.agents[self.first])
            _remove(ordered, oldest)
            if self._capped is not None:
                self._capped.remove(oldest)
            self.first += 1
        if self.first >= SHARE_WINDOWS.stop:
            self.log, self.agents, self.first = self.log[self.first :], self.agents[self.first :], 0
        self.log.append(score)
        self.agents.append(agent)
        own = (score, _turn(self.count), agent)
        place = bisect_left(ordered, own)
        ordered.insert(place, own)
        if self._capped is not None:
            self._capped.add(own)
        return place

    def _capped_to(self, limit: int) -> _Capped:
        """Return the scores with a limit for each agent, which grows until the window is full."""
        if self._capped is None or self._capped.limit != limit:
            self._capped = _Capped(self._ordered, limit)
        return self._capped

    def added(self, domain: str, forgotten: str | None) -> AddedScore:
        """Return the newest score."""
        first, end = self.first, len(self.log)
        return AddedScore(domain, forgotten, self.scale, self.count, self.log, self.agents, first, end)

    def standing(self, place: int, passing: int, limit: int | None) -> tuple[int, float]:
        """Return the rank of a score that was added, 1 for the best, and the lowest that passes of its agent.

        Args:
            place: the number of scores that are ranked after it.
            passing: the number of scores that pass, more than 0.
            limit: the number of scores that count of each other agent; None if all do.
        """
        ordered = self._ordered
        if limit is None:
            return len(ordered) - place, ordered[-passing][0]
        own, capped = ordered[place], self._capped_to(limit)
        return capped.rank(own), capped.best(passing, own[2])

    def cut(self, profile: Profile, agent: bytes | None = None) -> float | None:
        """Return the lowest score with which an agent passes; None if there are too few for one to pass.

        Without an agent, it is the lowest that passes if nothing is capped.
        """
        if not (passing := places(profile.share or 0, len(self._ordered))):
            return None
        limit = None if agent is None else profile.counted_of_agent(passing)
        if agent is None or limit is None:
            return self._ordered[-passing][0]
        return self._capped_to(limit).best(passing, agent)


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

    def decide(self, score: Score, profile: Profile, agent_id: str | None = None) -> Score:
        """Rank a score under a profile with a share, add it to the last ones, and return it with its rank.

        A score under a profile without a share is returned as it is. A withheld one is not ranked or added,
        but gets the cut that it would have to reach. Traces without an agent's id are taken for one agent's.
        """
        self.added = None
        domain, share = profile.domain, profile.share
        if share is None:
            return score
        agent = UNKNOWN_AGENT if profile.agent_cap == 1 else agent_digest(agent_id)
        ranking = self._rankings.get(domain)
        if ranking is not None and ranking.scale != profile.scale:
            ranking = None
        if score.withheld is not None:
            cut = None if ranking is None else ranking.cut(profile, agent)
            return replace(score, share=share, threshold=score.threshold if cut is None else cut)
        if ranking is None:
            ranking = _Ranking(LastScores(profile.scale, 0, []))
        place = ranking.add(score.quality_score, agent, profile.window(ranking.count + 1))
        self.added = ranking.added(domain, self._set_newest(domain, ranking))
        number = self.added.end - self.added.first
        if not (passing := places(share, number)):
            return replace(score, share=share, of=number)
        rank, cut = ranking.standing(place, passing, profile.counted_of_agent(passing))
        return replace(score, share=share, threshold=cut, rank=rank, of=number)

    def cuts(self, profiles: Mapping[str, Profile]) -> dict[str, float]:
        """Return the lowest scores that pass by the shares of profiles, without their caps."""
        found = {
            domain: ranking.cut(profiles[domain])
            for domain, ranking in self._rankings.items()
            if domain in profiles and ranking.scale == profiles[domain].scale
        }
        return {domain: cut for domain, cut in found.items() if cut is not None}

    def last_scores(self) -> dict[str, LastScores]:
        """Return the last scores by domain, that with the newest score last."""
        return {
            domain: ranking.added(domain, None).last_scores() for domain, ranking in self._rankings.items()
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


def agent_digest(agent_id: str | None) -> bytes:
    """Return a digest of an agent's id, which bounds what is kept of it."""
    return blake2b((agent_id or "").encode("utf-8", "surrogatepass"), digest_size=AGENT_BYTES).digest()


def scores_that_count(scores: Iterable[RankedScore], agent: bytes, limit: int) -> Iterator[RankedScore]:
    """Yield the scores that count in the rank of an agent's: all its own, and a limited number of each other.

    Args:
        scores: the scores, the best first.
        agent: the digest of the agent's id.
        limit: the number of scores that count of each other agent; those of unknown agents all do.
    """
    numbers: Counter[bytes] = Counter()
    for score in scores:
        if (other := score[2]) not in (agent, UNKNOWN_AGENT):
            numbers[other] += 1
        if numbers[other] <= limit:
            yield score


def _turn(number: int) -> int:
    return number * _GOLDEN % _TURNS
