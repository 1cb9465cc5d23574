"""Explain a trace's score in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import (
    Explanation,
    Rescorer,
    Score,
    ScoredRecord,
    decision_text,
    explain_score,
    override_effects,
    similarity_text,
)
from knowledgepulse_worker.terminal.printable import time_text


def explain(record: ScoredRecord, policy: Policy, *, otherwise: bool = False) -> Iterator[str]:
    """Yield the lines of an explanation; text from producers is escaped.

    ``policy``: the policy that the trace was presumably scored under. If that is wrong, weights are omitted
    or, with ``otherwise``, the score that this policy would give is explained.

    Raises:
        NoFactsError: the policy has a learned value for the trace, whose counts are unknown.
    """
    explanation, would = explain_score(record, policy), None
    if explanation is None and otherwise:
        would = replace(record, score=Rescorer(policy).score(record), policy=policy.digest)
        explanation = explain_score(would, policy)
    yield f"trace {printable(record.id)}"
    at = "" if record.timestamp_ms is None else f" at {time_text(record.timestamp_ms)}"
    yield f"from {printable(record.source)}{at}"
    if record.content is not None:
        yield f"objective: {printable(record.content.objective)}"
        yield from (f"  {printable(step)}" for step in record.content.steps)
        yield f"result: {printable(record.content.result)}"
        yield ""
    yield _decision(record)
    yield ""
    if would is not None:
        yield f"under policy {policy.digest}, which did not score it:"
        yield _decision(would)
        yield ""
    if explanation is None:
        yield from _without_weights(record, policy)
    else:
        yield f"policy {policy.digest}:"
        yield from _explained((would or record).score, explanation)


def _explained(score: Score, explanation: Explanation) -> Iterator[str]:
    """Yield the sum of a score, what a learned value and the novelty come from, and what decided."""
    for part in explanation.parts:
        product = f"{part.value:.4f} × {part.weight:<5g} = {part.points:.4f}"
        yield f"  {_name(part.dimension)} {product} of at most {part.weight:g}"
    yield f"  {_name('sum')} {'':16} {explanation.weighted:.4f}"
    yield from _overridden(score)
    if score.overrides:
        yield f"  {_name('score')} {'':16} {score.quality_score:.4f}"
    if explanation.learned:
        yield ""
        yield "the largest contributions to the learned value, in log odds; they are not causes:"
        yield from (f"  {part.words}: {part.points:+.2f}" for part in explanation.learned)
    yield ""
    yield _nearest(score)
    yield ""
    yield explanation.verdict
    yield from (f"  {remedy}" for remedy in explanation.remedies)
    if explanation.guard:
        yield explanation.guard


def _without_weights(record: ScoredRecord, policy: Policy) -> Iterator[str]:
    """Yield the dimensions of a trace that another policy scored."""
    score = record.score
    yield from (f"  {_name(name)} {value:.4f}" for name, value in asdict(score.dimensions).items())
    if score.learned is not None:
        yield f"  {_name('learned')} {score.learned:.4f}"
    yield from _overridden(score)
    yield ""
    yield _nearest(score)
    yield ""
    known = f"policy {printable(record.policy)}" if record.policy else "another policy"
    yield f"scored under {known}, not {policy.digest}; pass that policy with --policy to see the weights"


def _decision(record: ScoredRecord) -> str:
    score, domain, withheld = record.score, printable(record.score.domain), ""
    if record.task_domain != score.domain:
        domain += f" (no profile is named {printable(record.task_domain)})"
    if score.withheld == "novelty":
        withheld = f"; novelty {score.novelty:.4f} is withheld"
    elif score.withheld not in (None, "score"):
        withheld = f"; {score.withheld} {getattr(record, score.withheld)} is withheld"
    return f"{decision_text(score, domain)}{withheld}: {score.decision}"


def _overridden(score: Score) -> Iterator[str]:
    yield from (f"  override {name}: {effect}" for name, effect in override_effects(score).items())


def _nearest(score: Score) -> str:
    if score.nearest is None:
        return "no earlier trace to compare with, so novelty is 0.5"
    return f"nearest earlier trace: {printable(score.nearest)}, similarity {similarity_text(score)}"


def _name(name: str) -> str:
    return f"{'learned value' if name == 'learned' else name.replace('_', ' '):18}"
