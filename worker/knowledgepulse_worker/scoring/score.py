"""A trace's score, with its parts and the resulting decision."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import Decision, Policy, Profile, WithholdReason
from knowledgepulse_worker.scoring.cache import Nearest
from knowledgepulse_worker.scoring.counts import Counts
from knowledgepulse_worker.scoring.dimensions import (
    Dimensions,
    Scorable,
    Shape,
    novelty,
    scorable,
)
from knowledgepulse_worker.scoring.learned import learned_value
from knowledgepulse_worker.scoring.overrides import Override, apply_overrides, overrides_of
from knowledgepulse_worker.scoring.routing import RoutingMetadata, decide, passes, withheld

UnitInterval: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
"""A number from 0 to 1, checked when it is decoded."""

TraceCount: TypeAlias = Annotated[int, Meta(ge=1)]
"""A number of traces, checked when it is decoded."""


class Score(Struct, frozen=True, omit_defaults=True, gc=False):
    """A trace's quality score and its parts, in the order of the ``kp-score`` header.

    A field that only some scores have gets a default and is then left out of their headers.

    Attributes:
        quality_score: the score, from 0 to 1.
        complexity, novelty, tool_diversity, outcome_confidence: the dimensions, each from 0 to 1.
        overrides: the names of the applied overrides, in order.
        domain: the name of the applied profile.
        threshold: the threshold for ``contribute``; with a rank, the lowest score that passes now.
        nearest: the id of the most similar earlier trace, if any.
        withheld: why the trace is not contributed whatever its rank, if it is not.
        learned: the learned value, from 0 to 1; None if it has no share in the score.
        share: the share of the best traces that passes; None if the domain has none.
        rank: the rank among the last scores of the partition and domain that count, 1 for the best; None if
            the threshold decides, or the trace is withheld.
        of: the number of these last scores, with this one.
    """

    quality_score: UnitInterval = field(name="score")
    complexity: UnitInterval
    novelty: UnitInterval
    tool_diversity: UnitInterval
    outcome_confidence: UnitInterval
    overrides: tuple[Override, ...]
    domain: str
    threshold: UnitInterval
    nearest: str | None
    withheld: WithholdReason | None = None
    learned: UnitInterval | None = None
    share: UnitInterval | None = None
    rank: TraceCount | None = None
    of: TraceCount | None = None

    @property
    def decision(self) -> Decision:
        """``contribute`` if the score passes and nothing withholds the trace, or ``rejected``."""
        return decide(self).name

    @property
    def passes(self) -> bool:
        """Whether the score passes: by its rank, or if it has none, by the threshold."""
        return passes(self)

    @property
    def dimensions(self) -> Dimensions:
        """The dimensions."""
        return Dimensions(self.complexity, self.novelty, self.tool_diversity, self.outcome_confidence)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, in order."""
        return asdict(self)


def quality_score(
    dimensions: Dimensions, overrides: Collection[str], profile: Profile, learned: float | None = None
) -> float:
    """Return the weighted sum of the dimensions and the learned value after the overrides, from 0 to 1.

    Args:
        dimensions: the dimensions.
        overrides: the names of the overrides that apply.
        profile: the domain's weights, and the share of the learned value.
        learned: the learned value; None without one.
    """
    told = dimensions.complexity, dimensions.novelty, dimensions.tool_diversity, dimensions.outcome_confidence
    return _weighted(told, overrides, profile, learned)


def _weighted(
    dimensions: tuple[float, float, float, float],
    overrides: Collection[str],
    profile: Profile,
    learned: float | None,
) -> float:
    complexity, novelty, tool_diversity, confidence = dimensions
    weights = profile.weights
    weighted = (
        complexity * weights.complexity
        + novelty * weights.novelty
        + tool_diversity * weights.tool_diversity
        + confidence * weights.outcome_confidence
    )
    if profile.learned is not None and learned is not None:
        share = profile.learned.share
        weighted = (1 - share) * weighted + share * learned
    # Because of rounding, weights that sum to 1 can give a score slightly above 1.
    return min(1.0, apply_overrides(weighted, overrides) if overrides else weighted)


def score_trace(
    trace: ReasoningTrace | Scorable, nearest: Nearest | None, policy: Policy, counts: Counts | None = None
) -> Score:
    """Score a trace; a share of the policy still has to decide on it.

    Args:
        trace: the trace.
        nearest: the most similar earlier trace; None if there is none or no embedder.
        policy: weights, thresholds, learned values and guards.
        counts: the trace's counts, which only a policy with learned values needs.

    Raises:
        NoFactsError: the counts are needed and None.
    """
    read = trace if isinstance(trace, Scorable) else scorable(trace)
    metadata = read.metadata
    profile = policy.profile(metadata.task_domain)
    complexity, tool_diversity, overrides = _of_steps(read.shape, metadata.success)
    dimensions = (
        complexity,
        novelty(None if nearest is None else nearest.similarity),
        tool_diversity,
        read.outcome_confidence,
    )
    learned = None if profile.learned is None else learned_value(profile, Dimensions(*dimensions), counts)
    score = Score(
        _weighted(dimensions, overrides, profile, learned),
        *dimensions,
        overrides,
        profile.domain,
        profile.threshold,
        None if nearest is None else nearest.id,
        learned=learned,
    )
    return _guarded(score, metadata, policy)


@lru_cache(4096)
def _of_steps(shape: Shape, success: bool) -> tuple[float, float, tuple[Override, ...]]:
    """Return complexity, tool diversity and overrides; most traces have the shape of an earlier one."""
    return shape.complexity, shape.tool_diversity, overrides_of(shape, success=success)


def _guarded(score: Score, metadata: RoutingMetadata, policy: Policy) -> Score:
    """Return a score with the reason that withholds its trace, if there is one."""
    reason = withheld(score, metadata, policy)
    return score if reason is None else replace(score, withheld=reason)


def rescore(score: Score, metadata: RoutingMetadata, policy: Policy, counts: Counts | None = None) -> Score:
    """Rescore a trace from its dimensions under another policy, without embedding it.

    The dimensions, overrides and counts do not depend on the policy. Therefore the result under the original
    policy equals ``score`` to the last bit, except for what a share of the policy decides, which depends on
    the traces before; see :class:`Rescorer`.

    Args:
        score: the trace's score.
        metadata: the trace's metadata, since a score names only the profile that was applied.
        policy: weights, thresholds, learned values and guards.
        counts: the trace's counts, which only a policy with learned values needs.

    Raises:
        NoFactsError: the counts are needed and None.
    """
    profile = policy.profile(metadata.task_domain)
    learned = learned_value(profile, score.dimensions, counts)
    rescored = replace(
        score,
        quality_score=quality_score(score.dimensions, score.overrides, profile, learned),
        domain=profile.domain,
        threshold=profile.threshold,
        withheld=None,
        learned=learned,
        share=None,
        rank=None,
        of=None,
    )
    return _guarded(rescored, metadata, policy)
