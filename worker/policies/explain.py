"""Explain a trace's score in words."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, replace

from worker.policy import Policy, Profile
from worker.scoring import Score, ScoredRecord, quality_score
from worker.terminal import printable, time_text

_DECIMALS = 10_000

_OVERRIDES = {
    "single_thought": "the trace is a single thought, so the score is 0.1",
    "recovered": "more than two error recoveries and success: 0.1 more, at most 1",
    "single_tool": "one tool only: 0.1 less, at least 0",
}


def explain(record: ScoredRecord, policy: Policy) -> Iterator[str]:
    """Yield the lines of an explanation; text from producers is escaped.

    Args:
        record: the trace.
        policy: the policy that the trace was presumably scored under; if that is wrong, weights are omitted.
    """
    score = record.score
    reached = "reaches" if score.reaches_threshold else "is below"
    withheld = f"; visibility {record.visibility} is withheld" if score.withheld else ""
    yield f"trace {printable(record.id)}"
    at = "" if record.timestamp_ms is None else f" at {time_text(record.timestamp_ms)}"
    yield f"from {printable(record.source)}{at}"
    yield (
        f"score {score.quality_score:.4f} {reached} the threshold {score.threshold!r} of {_domain(record)}"
        f"{withheld}: {score.decision}"
    )
    yield ""
    if record.under(policy) == score and record.policy in (None, policy.digest):
        yield f"policy {policy.digest}:"
        yield from _sum(score, policy.profile(record.task_domain))
        yield ""
        yield _nearest(score)
        yield ""
        yield from _what_it_takes(record, policy.profile(record.task_domain))
        if score.withheld:
            contributed = " or ".join(policy.visibilities)
            yield f"whatever the score, the policy contributes only visibility {contributed}"
    else:
        yield from (f"  {_name(name)} {value:.4f}" for name, value in asdict(score.dimensions).items())
        yield from _overridden(score)
        yield ""
        yield _nearest(score)
        yield ""
        known = f"policy {printable(record.policy)}" if record.policy else "another policy"
        yield f"scored under {known}, not {policy.digest}; pass that policy with --policy to see the weights"


def _domain(record: ScoredRecord) -> str:
    if record.task_domain == record.score.domain:
        return printable(record.score.domain)
    return f"{printable(record.score.domain)} (no profile is named {printable(record.task_domain)})"


def _sum(score: Score, profile: Profile) -> Iterator[str]:
    for (name, value), (_, weight) in zip(asdict(score.dimensions).items(), profile.weights, strict=True):
        yield f"  {_name(name)} {value:.4f} × {weight:<5g} = {value * weight:.4f} of at most {weight:g}"
    weighted = quality_score(score.dimensions, (), profile.weights)
    yield f"  {_name('sum')} {'':16} {weighted:.4f}"
    yield from _overridden(score)
    if score.overrides:
        yield f"  {_name('score')} {'':16} {score.quality_score:.4f}"


def _overridden(score: Score) -> Iterator[str]:
    yield from (f"  override {name}: {_OVERRIDES[name]}" for name in score.overrides)


def _nearest(score: Score) -> str:
    if score.nearest is None:
        return "no earlier trace to compare with, so novelty is 0.5"
    similarity = 1 - score.novelty
    how = f"{similarity:.4f}" if similarity > 0 else "0 or less"
    return f"nearest earlier trace: {printable(score.nearest)}, similarity {how}"


def _what_it_takes(record: ScoredRecord, profile: Profile) -> Iterator[str]:
    score = record.score
    gap = score.threshold - score.quality_score
    if gap <= 0:
        yield f"{'the score' if score.withheld else 'it'} passes by {-gap:.4f}"
        return
    ways = [*_ways(record, profile)]
    head = "any one of these would suffice:" if ways else "no single change would suffice"
    yield f"it falls short by {gap:.4f}; {head}"
    yield from (f"  {way}" for way in ways)


def _ways(record: ScoredRecord, profile: Profile) -> Iterator[str]:
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
        if _passes(replace(score, overrides=fewer), profile):
            yield f"no override {name}"


def _passes(score: Score, profile: Profile, **dimensions: float) -> bool:
    changed = replace(score.dimensions, **dimensions)
    return quality_score(changed, score.overrides, profile.weights) >= score.threshold


def _needed(score: Score, name: str, profile: Profile) -> float | None:
    """Return the smallest value of a dimension that passes, to four decimals; None if even 1 does not.

    The score is monotonic in every dimension, whatever the overrides, so bisection finds the value.
    """
    values = range(math.floor(getattr(score, name) * _DECIMALS), _DECIMALS + 1)
    index = bisect_left(values, True, key=lambda value: _passes(score, profile, **{name: value / _DECIMALS}))
    return values[index] / _DECIMALS if index < len(values) else None


def _name(name: str) -> str:
    return f"{name.replace('_', ' '):18}"
