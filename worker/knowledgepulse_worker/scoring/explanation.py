"""Explain scores: the points that each dimension adds, and the changes that would make a trace pass."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from knowledgepulse_worker.policy import DIMENSIONS, Policy, Profile, WithholdReason, is_digest_of
from knowledgepulse_worker.scoring.counts import reading_of
from knowledgepulse_worker.scoring.learned import Contribution, contributions
from knowledgepulse_worker.scoring.overrides import EFFECTS
from knowledgepulse_worker.scoring.score import Score, quality_score
from knowledgepulse_worker.scoring.scored_record import ScoredRecord

NAMED_CONTRIBUTIONS = 3
"""Number of contributions to the learned value that an explanation names."""

_DECIMALS = 10_000


@dataclass(frozen=True, slots=True)
class ScorePart:
    """The contribution of a dimension, or of the learned value, to a score.

    Attributes:
        dimension: the dimension's name; ``learned`` for the learned value.
        value: the dimension's value, 0 to 1.
        weight: its weight in the score; those of the dimensions are smaller with a learned value.
        points: value × weight.
    """

    dimension: str
    value: float
    weight: float
    points: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a score under its policy. Of the texts of producers, it quotes single words.

    Attributes:
        parts: the contributions of the dimensions, in the formula's order, and of the learned value. The
            dimensions are left out where the learned value is the whole score.
        weighted: the sum of the points, before the overrides.
        verdict: a sentence that compares the score with the threshold, or with the best ones of the share.
        remedies: descriptions of the single changes that would have made the trace pass; empty if it passes.
        guard: a sentence about what withholds the trace; None if nothing does.
        learned: the largest contributions to the learned value, and that of its words, if it has any; empty
            without a learned value.
    """

    parts: tuple[ScorePart, ...]
    weighted: float
    verdict: str
    remedies: tuple[str, ...]
    guard: str | None
    learned: tuple[Contribution, ...] = ()


def explain_score(record: ScoredRecord, policy: Policy) -> Explanation | None:
    """Explain a trace's score; return None if this policy gives another score, or needs unknown counts."""
    score, profile = record.score, policy.profile(record.task_domain)
    if record.policy is not None and not is_digest_of(policy, record.policy):
        return None
    if profile.reading > reading_of(record.counts):
        return None
    expected = record.under(policy)
    if profile.share is not None:  # which the score says itself, as it depends on the traces before
        ranked = {name: getattr(score, name) for name in ("threshold", "rank", "of")}
        expected = msgspec.structs.replace(expected, share=profile.share, **ranked)
    if expected != score:
        return None
    is_high = score.passes and score.withheld != "score"
    remedies = () if is_high else tuple(_remedies(record, profile))
    return Explanation(
        parts=tuple(_parts(score, profile)),
        weighted=quality_score(score.dimensions, (), profile, score.learned),
        verdict=_verdict(score, profile, remedies, is_high=is_high),
        remedies=remedies,
        guard=_guard(score.withheld, policy, profile) if score.withheld else None,
        learned=_largest(record, profile),
    )


def decision_text(score: Score, domain: str) -> str:
    """Say by which rule a score passes or fails.

    ``domain``: the name of the domain, for people.
    """
    if score.withheld == "score":
        rule = f" is below min_score of {domain}"
    elif score.rank is not None and score.share is not None:
        verb = "passes" if score.passes else "fails"
        rule = f": rank {score.rank:,} of {score.of:,} {verb} at share {score.share:g} of {domain}"
    else:
        verb = "reaches" if score.passes else "is below"
        rule = f" {verb} the threshold {score.threshold!r} of {domain}"
        if score.share is not None and score.withheld is None:
            rule += f", which decides until there are enough scores for the share {score.share:g}"
    return f"score {score.quality_score:.4f}{rule}"


def override_effects(score: Score) -> dict[str, str]:
    """Return a description of the effect of each override of a score, in order."""
    return {name: EFFECTS[name] for name in score.overrides}


def similarity_text(score: Score) -> str | None:
    """Format the similarity with the nearest earlier trace; None if there was no earlier trace."""
    if score.nearest is None:
        return None
    return f"{1 - score.novelty:.4f}" if score.novelty < 1 else "0 or less"


def _parts(score: Score, profile: Profile) -> Iterator[ScorePart]:
    share = profile.learned.share if profile.learned else 0.0
    if share < 1:
        for (name, value), (_, weight) in zip(asdict(score.dimensions).items(), profile.weights, strict=True):
            part = (1 - share) * weight
            yield ScorePart(name, value, part, value * part)
    if score.learned is not None:
        yield ScorePart("learned", score.learned, share, score.learned * share)


def _largest(record: ScoredRecord, profile: Profile) -> tuple[Contribution, ...]:
    ordered = contributions(profile, record.score.dimensions, record.counts)
    return tuple(
        contribution
        for at, contribution in enumerate(ordered)
        if at < NAMED_CONTRIBUTIONS or contribution.name == "words"
    )


def _verdict(score: Score, profile: Profile, remedies: Collection[str], *, is_high: bool) -> str:
    gap = _lowest(score, profile) - score.quality_score
    if is_high:
        return f"{'the score' if score.withheld else 'it'} passes by {abs(gap):.4f}"
    if not remedies:
        return f"it falls short by {gap:.4f}; no single change would suffice"
    return (
        f"it falls short by {gap:.4f}; {'any one of these' if len(remedies) > 1 else 'this'} would suffice:"
    )


def _guard(withheld: WithholdReason, policy: Policy, profile: Profile) -> str:
    if withheld == "score":
        return f"whatever its rank, the policy contributes only a score of {profile.min_score!r} or more"
    if withheld == "ending":
        endings = " or ".join(policy.withhold_endings)
        return f"whatever the score, the policy contributes no trace whose ending is {endings}"
    if withheld == "novelty":
        return f"whatever the score, the policy contributes only a novelty of {profile.min_novelty!r} or more"
    return (
        f"whatever the score, the policy contributes only {withheld} {' or '.join(policy.guards[withheld])}"
    )


def _remedies(record: ScoredRecord, profile: Profile) -> Iterator[str]:
    """Yield the single changes that would make the trace pass.

    With a learned value, these are not changes of a dimension, on which it may depend in either direction.
    Nobody can be surer where no agent told the confidence.
    """
    score = record.score
    names = DIMENSIONS if score.learned is None else ("learned",)
    if record.assumed_confidence:
        names = tuple(name for name in names if name != "outcome_confidence")
    for name in names:
        needed = _needed(score, name, profile)
        if needed is not None:
            title = "learned value" if name == "learned" else name.replace("_", " ")
            yield f"{title} of {needed:.4f} instead of {getattr(score, name):.4f}"
    if (
        score.learned is None
        and not record.success
        and _passes(score, profile, outcome_confidence=record.confidence)
    ):
        yield f"success, with the same confidence of {record.confidence:g}"
    for name in score.overrides:
        fewer = tuple(other for other in score.overrides if other != name)
        if _passes(score, profile, overrides=fewer):
            yield f"no override {name}"


def _passes(score: Score, profile: Profile, **changes: Any) -> bool:
    changed = msgspec.structs.replace(score, **changes)
    quality = quality_score(changed.dimensions, changed.overrides, profile, changed.learned)
    return quality >= _lowest(score, profile)


def _lowest(score: Score, profile: Profile) -> float:
    """Return the lowest score with which the trace would have passed."""
    return max(score.threshold, profile.min_score)


def _needed(score: Score, name: str, profile: Profile) -> float | None:
    """Return the smallest value, to four decimals, with which the trace passes.

    Return None if it does not pass even with 1. Bisection finds the value because the score is monotonic in
    every dimension and in the learned value, whatever the overrides.
    """
    if not _passes(score, profile, **{name: 1.0}):
        return None
    values = range(math.floor(getattr(score, name) * _DECIMALS), _DECIMALS + 1)
    index = bisect_left(values, True, key=lambda value: _passes(score, profile, **{name: value / _DECIMALS}))
    return values[index] / _DECIMALS
