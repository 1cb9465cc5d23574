"""A trace as the labelling page shows it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.decode import decode_members
from knowledgepulse_worker.scoring import ScoredRecord, explain_score, override_effects, similarity_text


class _Tool(msgspec.Struct):
    name: str


class _Step(msgspec.Struct):
    type: str
    content: str | None = None
    tool: _Tool | None = None
    input: msgspec.Raw = msgspec.Raw()
    output_summary: str | None = None


class _Task(msgspec.Struct):
    objective: str


class _Outcome(msgspec.Struct):
    result_summary: str


class _Trace(msgspec.Struct):
    task: _Task
    steps: list[_Step]
    outcome: _Outcome


def content_view(value: bytes) -> dict[str, Any]:
    """Return what a person reads of a valid trace: objective, steps and result.

    Raises:
        RejectedRecord: the trace is not valid.
    """
    trace = decode_members(value, _Trace)
    return {
        "objective": trace.task.objective,
        "result": trace.outcome.result_summary,
        "steps": [
            {
                "type": step.type,
                "tool": step.tool and step.tool.name,
                "arguments": _arguments(bytes(step.input)),
                "content": step.content or "",
                "output": step.output_summary or "",
            }
            for step in trace.steps
        ],
    }


def shortened_view(record: ScoredRecord) -> dict[str, Any]:
    """Return the same of the content that a scored line keeps: the first and the last steps, each cut."""
    content = record.content
    if content is None:
        return {"objective": "", "result": "", "steps": []}
    absent: dict[str, Any] = {"tool": None, "arguments": [], "output": ""}
    return {
        "objective": content.objective,
        "result": content.result,
        "steps": [
            {"type": kind, "content": said, **absent}
            for kind, _, said in (step.partition(": ") for step in content.steps)
        ],
    }


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

    Args:
        record: the trace, with its score under this policy.
        policy: the policy to label for.
    """
    score, explanation = record.score, explain_score(record, policy)
    return {
        "score": score.quality_score,
        "threshold": score.threshold,
        "decision": score.decision,
        "policy": policy.digest,
        "profile": score.domain,
        "success": record.success,
        "confidence": record.confidence,
        "nearest": score.nearest,
        "similarity": similarity_text(score),
        "overrides": override_effects(score),
        "why": explanation and asdict(explanation),
    }
