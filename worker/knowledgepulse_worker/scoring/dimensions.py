"""The four dimensions of a trace's quality, each from 0 to 1 (KnowledgePulse SDK 0.1.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from msgspec import Struct

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.scoring.routing import RoutingMetadata

NOVELTY_UNKNOWN = 0.5
"""Novelty if there is nothing to compare with, because the cache is empty or there is no embedder."""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A trace's quality in each dimension, each from 0 to 1."""

    complexity: float
    novelty: float
    tool_diversity: float
    outcome_confidence: float


class Shape(NamedTuple):
    """What the formula reads of a trace's steps.

    Attributes:
        steps: the number of steps.
        types: their distinct types.
        recoveries: the number of error recoveries.
        tools: the number of distinct names of tools.
    """

    steps: int
    types: frozenset[str]
    recoveries: int
    tools: int

    @property
    def complexity(self) -> float:
        """The variety and length of the reasoning; see :func:`complexity`."""
        recovered = 0.3 if self.recoveries else 0.0
        return min(1.0, len(self.types) / 4 * 0.5 + recovered + self.steps / 20 * 0.2)

    @property
    def tool_diversity(self) -> float:
        """The number of distinct tools per step; see :func:`tool_diversity`."""
        return min(1.0, self.tools / max(1, self.steps) * 3)


class ScorableMetadata(RoutingMetadata, Protocol):
    """The members of a trace's metadata that are read when it is scored and reported."""

    @property
    def success(self) -> bool: ...  # noqa: D102 - as the schema has them, like the next ones
    @property
    def agent_id(self) -> str | None: ...  # noqa: D102
    @property
    def framework(self) -> str | None: ...  # noqa: D102


class Scorable(Struct, gc=False):
    """What is read of a trace when it is scored and reported, whatever has decoded it.

    Attributes:
        id: its id.
        metadata: its metadata.
        objective: its objective.
        confidence: the agent's confidence in the outcome, from 0 to 1.
        shape: what the formula reads of its steps.
    """

    id: str
    metadata: ScorableMetadata
    objective: str
    confidence: float
    shape: Shape

    @property
    def outcome_confidence(self) -> float:
        """The confidence in the outcome, times 0.3 if the task failed."""
        return self.confidence * (1.0 if self.metadata.success else 0.3)


def scorable(trace: ReasoningTrace) -> Scorable:
    """Return what is read of a trace when it is scored and reported."""
    return Scorable(trace.id, trace.metadata, trace.task.objective, trace.outcome.confidence, shape_of(trace))


def shape_of(trace: ReasoningTrace) -> Shape:
    """Return what the formula reads of a trace's steps."""
    types = [step.type for step in trace.steps]
    tools = {step.tool.name for step in trace.steps if step.tool is not None}
    return Shape(len(types), frozenset(types), types.count("error_recovery"), len(tools))


def complexity(trace: ReasoningTrace) -> float:
    """Return the variety and length of the reasoning.

    It adds 0.5 times the share of the four step types that occur, 0.3 if the agent recovered from an error,
    and 0.2 for every 20 steps. Only the sum is capped at 1, not the last term.
    """
    return shape_of(trace).complexity


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
    return shape_of(trace).tool_diversity


def outcome_confidence(trace: ReasoningTrace) -> float:
    """Return the confidence in the outcome, times 0.3 if the task failed."""
    return scorable(trace).outcome_confidence
