"""A trace as the labelling page shows it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.content import texts_of
from knowledgepulse_worker.scoring import (
    Content,
    ScoredRecord,
    StepText,
    explain_score,
    override_effects,
    similarity_text,
)


def text_view(value: bytes | None, content: Content | None) -> dict[str, Any]:
    """Return objective, steps and result.

    Args:
        value: a valid trace.
        content: what is shown if there is no trace: the first and the last steps, each cut.
    """
    if value is not None:
        objective, steps, result, _ = texts_of(value)
        return {"objective": objective, "steps": [_step(one) for one in steps], "result": result}
    if content is None:
        return {"objective": "", "steps": [], "result": ""}
    cut = (step.partition(":") for step in content.steps)
    steps = [StepText(kind, "", said.strip(), "", "") for kind, _, said in cut]
    return {"objective": content.objective, "steps": [_step(one) for one in steps], "result": content.result}


def _step(step: StepText) -> dict[str, Any]:
    shown = {name: getattr(step, name) for name in ("type", "tool", "content", "output")}
    return {**shown, "arguments": _arguments(step.input.encode())}


def _arguments(text: bytes) -> list[tuple[str, str]]:
    """Return the names and values of a call's input; other JSON than an object has no name."""
    if text in (b"", b"null"):
        return []
    if not text.startswith(b"{"):
        return [("", _readable(text))]
    members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return [(name, _readable(bytes(value))) for name, value in members.items()]


def _readable(text: bytes) -> str:
    """Return a string as its text, and other JSON on lines of its own, with its own numbers and escapes."""
    if text.startswith(b'"'):
        return msgspec.json.decode(text, type=str)
    return msgspec.json.format(text, indent=2).decode()


def score_view(record: ScoredRecord, policy: Policy) -> dict[str, Any]:
    """Return a trace's score under a policy, and why it has it.

    ``record``: the trace, with its score under this policy.
    """
    score, explanation = record.score, explain_score(record, policy)
    return {
        **score.as_dict(),
        "decision": score.decision,
        "policy": policy.digest,
        "success": record.success,
        "confidence": record.confidence,
        "similarity": similarity_text(score),
        "effects": override_effects(score),
        "why": explanation and asdict(explanation),
    }
