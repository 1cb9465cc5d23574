"""Explain scores: the points that each dimension adds, and the changes that would make a trace pass."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import msgspec

from knowledgepulse_worker.policy import Guard, Policy, Profile
from knowledgepulse_worker.scoring.overrides import EFFECTS
from knowledgepulse_worker.scoring.records import ScoredRecord
from knowledgepulse_worker.scoring.score import Score, quality_score

_DECIMALS = 10_000


@dataclass(frozen=True, slots=True)
class Part:
    """The contribution of a dimension to a score.

    Attributes:
        dimension: the dimension's name.
        value: the dimension's value, 0 to 1.
        weight: the dimension's weight in the policy's profile.
        points: value × weight.
    """

    dimension: str
    value: float
    weight: float
    points: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a score under its policy. It quotes no text from producers.

    Attributes:
        parts: the contributions of the dimensions, in the formula's order.
        weighted: the sum of the points, before the overrides.
        verdict: a sentence that compares the score with the threshold.
        remedies: descriptions of the single changes that would have made the trace pass; empty if it passes.
        guard: a sentence about the guard that withholds the trace; None if none does.
    """

    parts: tuple[Part, ...]
    weighted: float
    verdict: str
    remedies: tuple[str, ...]
    guard: str | None


def explain_score(record: ScoredRecord, policy: Policy) -> Explanation | None:
    """Explain a trace's score; return None if this policy gives another score."""
    score = record.score
    if record.policy not in (None, policy.digest) or record.under(policy) != score:
        return None
    profile = policy.profile(record.task_domain)
    remedies = () if score.reaches_threshold else tuple(_remedies(record, profile))
    return Explanation(
        parts=tuple(
            Part(name, value, weight, value * weight)
            for (name, value), (_, weight) in zip(
                asdict(score.dimensions).items(), profile.weights, strict=True
            )
        ),
        weighted=quality_score(score.dimensions, (), profile.weights),
        verdict=_verdict(score, has_remedies=bool(remedies)),
        remedies=remedies,
        guard=_guard(score.withheld, policy) if score.withheld else None,
    )


def override_effects(score: Score) -> dict[str, str]:
    """Return a description of the effect of each override of a score, in order."""
    return {name: EFFECTS[name] for name in score.overrides}


def similarity_text(score: Score) -> str | None:
    """Format the similarity with the nearest earlier trace; None if there was no earlier trace."""
    if score.nearest is None:
        return None
    return f"{1 - score.novelty:.4f}" if score.novelty < 1 else "0 or less"


def _verdict(score: Score, *, has_remedies: bool) -> str:
    gap = score.threshold - score.quality_score
    if gap <= 0:
        return f"{'the score' if score.withheld else 'it'} passes by {-gap:.4f}"
    outlook = "any one of these would suffice:" if has_remedies else "no single change would suffice"
    return f"it falls short by {gap:.4f}; {outlook}"


def _guard(withheld: Guard, policy: Policy) -> str:
    return (
        f"whatever the score, the policy contributes only {withheld} {' or '.join(policy.guards[withheld])}"
    )


def _remedies(record: ScoredRecord, profile: Profile) -> Iterator[str]:
    """Yield the single changes that would make the trace pass."""
    score = record.score
    for name, value in asdict(score.dimensions).items():
        needed = _needed(score, name, profile)
        if needed is not None:
            yield f"{name.replace('_', ' ')} of {needed:.4f} instead of {value:.4f}"
    if not record.success and _passes(score, profile, outcome_confidence=record.confidence):
        yield f"success, with the same confidence of {record.confidence:g}"
    for name in score.overrides:
        fewer = tuple(other for other in score.overrides if other != name)
        if _passes(msgspec.structs.replace(score, overrides=fewer), profile):
            yield f"no override {name}"


def _passes(score: Score, profile: Profile, **dimensions: float) -> bool:
    changed = replace(score.dimensions, **dimensions)
    return quality_score(changed, score.overrides, profile.weights) >= score.threshold


def _needed(score: Score, name: str, profile: Profile) -> float | None:
    """Return the smallest value of a dimension, to four decimals, with which the trace passes.

    Return None if it does not pass even with 1. Bisection finds the value because the score is monotonic in
    every dimension, whatever the overrides.
    """
    if not _passes(score, profile, **{name: 1.0}):
        return None
    values = range(math.floor(getattr(score, name) * _DECIMALS), _DECIMALS + 1)
    index = bisect_left(values, True, key=lambda value: _passes(score, profile, **{name: value / _DECIMALS}))
    return values[index] / _DECIMALS
