"""The score of a trace, with its parts and the decision that follows from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from schemas import ReasoningTrace
from worker.policy import Policy
from worker.scoring.cache import Nearest
from worker.scoring.dimensions import complexity, novelty, outcome_confidence, tool_diversity
from worker.scoring.overrides import apply_overrides

Decision = Literal["contribute", "rejected"]


@dataclass(frozen=True, slots=True)
class Score:
    """A trace's quality, and how it came about.

    Attributes:
        quality_score: 0 to 1.
        complexity, novelty, tool_diversity, outcome_confidence: the dimensions, 0 to 1 each.
        overrides: the names of those that applied, in order.
        domain: the weight profile that was used.
        threshold: what the score was held against.
        nearest: the id of the most similar earlier trace; None when there was none.
    """

    quality_score: float
    complexity: float
    novelty: float
    tool_diversity: float
    outcome_confidence: float
    overrides: tuple[str, ...]
    domain: str
    threshold: float
    nearest: str | None

    @property
    def decision(self) -> Decision:
        """``contribute`` when the score reaches the threshold, else ``rejected``."""
        return "contribute" if self.quality_score >= self.threshold else "rejected"

    def as_dict(self) -> dict[str, Any]:
        """Return the members as a plain dict, in order."""
        return asdict(self)


def score_trace(trace: ReasoningTrace, nearest: Nearest | None, policy: Policy) -> Score:
    """Score one trace.

    Args:
        trace: what is scored.
        nearest: the most similar earlier trace; None when there is none, or no embedder.
        policy: weights and thresholds.
    """
    profile = policy.profile(trace.metadata.task_domain)
    weights = profile.weights
    c = complexity(trace)
    n = novelty(None if nearest is None else nearest.similarity)
    d = tool_diversity(trace)
    o = outcome_confidence(trace)
    weighted = (
        c * weights.complexity
        + n * weights.novelty
        + d * weights.tool_diversity
        + o * weights.outcome_confidence
    )
    score, overrides = apply_overrides(weighted, trace)
    return Score(
        # Weights that sum to 1 can still add up to a last digit above it.
        quality_score=min(1.0, score),
        complexity=c,
        novelty=n,
        tool_diversity=d,
        outcome_confidence=o,
        overrides=overrides,
        domain=profile.domain,
        threshold=profile.threshold,
        nearest=None if nearest is None else nearest.id,
    )
