"""Decide which route a scored trace takes.

Two rules decide, one after the other. :func:`withheld` needs only the trace and its score, and comes before
the rank: what is withheld takes no place in a share. :func:`decide` needs the rank. It reads nothing but the
score, so that whoever has a header ``kp-score`` can check the topic that the trace is in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from knowledgepulse_schemas.trace import PrivacyLevel, Visibility
from knowledgepulse_worker.policy import Policy, WithholdReason, places
from knowledgepulse_worker.policy.routes import CONTRIBUTE, REJECTED, Route

if TYPE_CHECKING:
    from knowledgepulse_worker.scoring.score import Score  # which asks for its decision


class RoutingMetadata(Protocol):
    """The members of a trace's metadata that a policy reads."""

    @property
    def task_domain(self) -> str: ...  # noqa: D102 - as the schema has them, like the next ones
    @property
    def visibility(self) -> Visibility: ...  # noqa: D102
    @property
    def privacy_level(self) -> PrivacyLevel: ...  # noqa: D102
    @property
    def ending(self) -> Any: ...  # noqa: D102 - with any other form, the trace does not tell it


def withheld(score: Score, metadata: RoutingMetadata, policy: Policy) -> WithholdReason | None:
    """Return why a trace is not contributed whatever its rank; None if nothing withholds it."""
    for guard, listed in policy.guards.items():
        if getattr(metadata, guard) not in listed:
            return guard
    if policy.withhold_endings and metadata.ending in policy.withhold_endings:
        return "ending"
    profile = policy.profile(metadata.task_domain)
    if profile.min_novelty > 0 and score.novelty < profile.min_novelty:  # the SDK's novelty may be below 0
        return "novelty"
    return "score" if score.quality_score < profile.min_score else None


def passes(score: Score) -> bool:
    """Return whether a score passes, whatever withholds the trace: by its rank, or else by the threshold."""
    if score.rank is None or score.of is None or score.share is None:
        return score.quality_score >= score.threshold
    return score.rank <= places(score.share, score.of)


def decide(score: Score) -> Route:
    """Return the route of a trace, once its score has its rank or needs none."""
    return CONTRIBUTE if score.withheld is None and passes(score) else REJECTED
