"""The learned value of a trace: a probability that it is worth keeping.

It is computed from the trace's dimensions and facts, and from its words if the policy has weights for them.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.policy import BUCKETS, DIMENSIONS, Profile, Term
from knowledgepulse_worker.scoring.counts import Counts
from knowledgepulse_worker.scoring.dimensions import Dimensions
from knowledgepulse_worker.scoring.facts import FACTS, LOGARITHM, SHARE
from knowledgepulse_worker.scoring.words import buckets_of, hashes_of

_HIGHEST_LOGARITHM = 40
"""A mean above it, which a policy may name, has no meaning as the logarithm of a number."""


NAMED_WORDS = 5
"""Number of words that a contribution names."""


class NoFactsError(InputError):
    """A policy has a learned value, but the facts or the words of a trace are not known."""

    def __init__(self, lacking: str = "counts") -> None:
        super().__init__(
            f"the policy has a learned value, which needs {lacking} that these traces lack, since an earlier "
            "release scored them; score them again with `kp-worker score`"
        )


class Contribution(NamedTuple):
    """The part of one term, or of all words, in a learned value.

    Attributes:
        name: the name of the fact or dimension; ``words`` for the words.
        words: the fact in words, about this trace and, unless it is yes or no, about the labelled traces; or
            the trace's words with the largest parts, escaped.
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
    points = _points(profile, dimensions, counts)
    if profile.words is not None:
        points.append(_word_points(profile.words, _buckets_in(counts)))
    odds = profile.learned.intercept + math.fsum(points)
    # Of the two equal forms, the one whose exponential cannot overflow.
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))


def contributions(profile: Profile, dimensions: Dimensions, counts: Counts | None) -> list[Contribution]:
    """Return the contributions of the learned value's terms and of all words, the largest first."""
    terms = profile.learned.terms if profile.learned else {}
    told = [
        Contribution(name, _told(name, term, dimensions, counts), points)
        for (name, term), points in zip(terms.items(), _points(profile, dimensions, counts), strict=True)
    ]
    if profile.words is not None:
        points = _word_points(profile.words, _buckets_in(counts))
        told.append(Contribution("words", _told_words(profile, counts), points))
    return sorted(told, key=lambda contribution: -abs(contribution.points))


def _points(profile: Profile, dimensions: Dimensions, counts: Counts | None) -> list[float]:
    points = []
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
        points.append(weight * deviations)
    return points


def _words_in(counts: Counts | None) -> list[bytes]:
    if counts is None or counts.words is None:
        raise NoFactsError("words")
    return counts.words.encode("utf-8", "replace").split()


def _buckets_in(counts: Counts | None) -> NDArray[Any]:
    """Return the bucket of each word, shape (words,)."""
    if counts is not None and counts.buckets is not None:
        return np.frombuffer(counts.buckets, np.uint16)
    words = _words_in(counts)
    return buckets_of(hashes_of(words, len(words)), BUCKETS)


def _word_points(weights: tuple[float, float, bytes], buckets: NDArray[Any]) -> float:
    unit, mean, table = weights
    # A sum of whole numbers is exact in any order.
    total = int(np.frombuffer(table, np.int8)[buckets].sum(dtype=np.int64))
    return unit * total / math.sqrt(len(buckets) or 1) - mean


def _told_words(profile: Profile, counts: Counts | None) -> str:
    """Name the words in the strongest buckets that add or subtract most, over all parts of the text.

    Other words may have larger weights, but nearly all traces have them, or hardly any.
    """
    if counts is not None and counts.words is None:  # the stream only hashes them
        return "its words, which `kp-worker traces show` names"
    words = _words_in(counts)
    if profile.learned is None or profile.learned.words is None or not words:
        return "it has no words"
    hashed, points = profile.learned.words, Counter[bytes]()
    table, unit = np.frombuffer(hashed.table, np.int8), hashed.unit / math.sqrt(len(words))
    for word, bucket in zip(words, buckets_of(hashes_of(words, len(words)), BUCKETS).tolist(), strict=True):
        if bucket in hashed.strongest:
            points[word] += int(table[bucket])
    largest = sorted(points.items(), key=lambda item: (-abs(item[1]), item[0]))[:NAMED_WORDS]
    told = ", ".join(f"{printable(word.decode())} {weight * unit:+.2f}" for word, weight in largest)
    return f"its words, such as {told}" if told else "its words, none of which is among the strongest"


def _told(name: str, term: Term, dimensions: Dimensions, counts: Counts | None) -> str:
    if name in DIMENSIONS or counts is None:
        told = f"its {name.replace('_', ' ')} is {getattr(dimensions, name):.2f}"
        return f"{told} (usually {term.mean:.2f})"
    fact = FACTS[name]
    usual = {
        LOGARITHM: f"{math.expm1(min(term.mean, _HIGHEST_LOGARITHM)):,.0f}",
        SHARE: f"{term.mean:.0%}",
    }.get(fact.unit)
    return f"{fact.tell(counts)} (usually {usual})" if usual else fact.tell(counts)
