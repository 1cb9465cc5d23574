"""Policies of histories. Their windows are small, as histories have few records."""

from __future__ import annotations

from knowledgepulse_worker.policy import Policy

WINDOW = 5


def policy_of(value):
    """Return the policy of a random number from 0 to 1: half of them have a share, the others a threshold."""
    if value < 0.5:
        return Policy(threshold=round(0.3 + value / 2, 3))
    # Without validation, which asks for a window of 30.
    return Policy.model_construct(
        threshold=0.4,
        share=round(value - 0.3, 3),
        share_window=WINDOW,
        agent_cap=0.4 if value < 0.75 else 1.0,
        min_novelty=0.0,
        min_score=round(value / 2, 3),
        domains={},
        contribute_visibility=None,
        contribute_privacy_level=None,
        withhold_endings=("failed",) if value >= 0.9 else (),
    )
