"""The learned value of a trace: a probability that it is worth keeping, from its dimensions and facts."""

from __future__ import annotations

import math
from typing import NamedTuple

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import DIMENSIONS, Profile, Term
from knowledgepulse_worker.scoring.counts import Counts
from knowledgepulse_worker.scoring.dimensions import Dimensions
from knowledgepulse_worker.scoring.facts import FACTS, LOGARITHM, SHARE

_HIGHEST_LOGARITHM = 40
"""A mean above it, which a policy may name, has no meaning as the logarithm of a number."""


class NoFactsError(InputError):
    """A policy has a learned value, but the facts of a trace are not known."""

    def __init__(self) -> None:
        super().__init__(
            "the policy has a learned value, which needs counts that these traces lack, since an earlier "
            "release scored them; score them again with `kp-worker score`"
        )


class Contribution(NamedTuple):
    """The part of one term in a learned value.

    Attributes:
        name: the name of the fact or dimension.
        words: the fact in words, about this trace and, unless it is yes or no, about the labelled traces.
        points: what it adds to the logarithm of the odds that the trace is worth keeping.
    """

    name: str
    words: str
    points: float


def learned_value(profile: Profile, dimensions: Dimensions, counts: Counts | None) -> float | None:
    """Return the probability that a trace is worth keeping; None if the profile has no learned value.

    The result is the same to the last bit wherever it is computed.

    Raises:
        NoFactsError: ``counts`` is None.
    """
    if profile.learned is None:
        return None
    return _logistic(profile.learned.intercept + math.fsum(_points(profile, dimensions, counts)))


def contributions(profile: Profile, dimensions: Dimensions, counts: Counts | None) -> list[Contribution]:
    """Return the contributions of the learned value's terms, the largest first."""
    terms = profile.learned.terms if profile.learned else {}
    found = [
        Contribution(name, _words(name, term, dimensions, counts), points)
        for (name, term), points in zip(terms.items(), _points(profile, dimensions, counts), strict=True)
    ]
    return sorted(found, key=lambda one: -abs(one.points))


def _points(profile: Profile, dimensions: Dimensions, counts: Counts | None) -> list[float]:
    found = []
    for name, mean, deviation, weight, clip in profile.terms:
        fact = FACTS.get(name)
        if fact is None:
            value = getattr(dimensions, name)
        elif counts is None:
            raise NoFactsError
        else:
            value = fact.of(counts)
        deviations = (value - mean) / deviation
        # Comparisons take a third of the time of min() and max(); this runs for every term of every trace.
        if deviations > clip:
            deviations = clip
        elif deviations < -clip:
            deviations = -clip
        found.append(weight * deviations)
    return found


def _words(name: str, term: Term, dimensions: Dimensions, counts: Counts | None) -> str:
    if name in DIMENSIONS or counts is None:
        told = f"its {name.replace('_', ' ')} is {getattr(dimensions, name):.2f}"
        return f"{told} (usually {term.mean:.2f})"
    fact = FACTS[name]
    usual = {
        LOGARITHM: f"{math.expm1(min(term.mean, _HIGHEST_LOGARITHM)):,.0f}",
        SHARE: f"{term.mean:.0%}",
    }.get(fact.unit)
    return f"{fact.tell(counts)} (usually {usual})" if usual else fact.tell(counts)


def _logistic(points: float) -> float:
    # Of the two equal forms, the one whose exponential cannot overflow.
    return 1 / (1 + math.exp(-points)) if points >= 0 else math.exp(points) / (1 + math.exp(points))
