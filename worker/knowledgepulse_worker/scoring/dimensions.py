"""The four dimensions of a trace's quality, each from 0 to 1 (KnowledgePulse SDK 0.1.1)."""

from __future__ import annotations

from dataclasses import dataclass

from knowledgepulse_schemas import ReasoningTrace

NOVELTY_UNKNOWN = 0.5
"""Novelty if there is nothing to compare with, because the cache is empty or there is no embedder."""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A trace's quality in each dimension, each from 0 to 1."""

    complexity: float
    novelty: float
    tool_diversity: float
    outcome_confidence: float


def tool_names(trace: ReasoningTrace) -> set[str]:
    """Return the distinct names of the tools in the trace's steps."""
    return {step.tool.name for step in trace.steps if step.tool is not None}


def complexity(trace: ReasoningTrace) -> float:
    """Return the variety and length of the reasoning.

    It adds 0.5 times the share of the four step types that occur, 0.3 if the agent recovered from an error,
    and 0.2 for every 20 steps. Only the sum is capped at 1, not the last term.
    """
    types = {step.type for step in trace.steps}
    recovered = 0.3 if "error_recovery" in types else 0.0
    return min(1.0, len(types) / 4 * 0.5 + recovered + len(trace.steps) / 20 * 0.2)


def novelty(similarity: float | None) -> float:
    """Return the distance of the trace from the nearest earlier one.

    Args:
        similarity: the largest cosine similarity with the cache; None if there is nothing to compare with.

    Returns:
        ``1 - similarity`` clamped to 0..1 (the SDK documents that range but does not clamp), or 0.5.
    """
    if similarity is None:
        return NOVELTY_UNKNOWN
    return min(1.0, max(0.0, 1.0 - similarity))


def tool_diversity(trace: ReasoningTrace) -> float:
    """Return the number of distinct tools per step, scaled so that a new tool in every third step gives 1."""
    return min(1.0, len(tool_names(trace)) / max(1, len(trace.steps)) * 3)


def outcome_confidence(trace: ReasoningTrace) -> float:
    """Return the confidence in the outcome, times 0.3 if the task failed."""
    return trace.outcome.confidence * (1.0 if trace.metadata.success else 0.3)
