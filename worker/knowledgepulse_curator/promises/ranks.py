"""By which shares traces would pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from knowledgepulse_curator.promises.certificate import SHARES
from knowledgepulse_worker.policy import Policy, places
from knowledgepulse_worker.policy.routes import ROUTES
from knowledgepulse_worker.scoring import Score, ScoredRecord, scores_under
from knowledgepulse_worker.tools.policies.estimates import Array
from knowledgepulse_worker.tools.policies.tune import with_changes

NEVER = len(SHARES)
"""The width of a trace that a guard withholds, or that does not pass."""


def ranked(records: Sequence[ScoredRecord], policy: Policy) -> tuple[Array, Array]:
    """Return the width of each trace, and whether it passes under the policy, both of shape (records,).

    The width is the index of the narrowest of :data:`SHARES` by which it passes. A rank that was recorded
    under the policy counts; others are computed in the order of the stream, as if all might pass.
    """
    recorded = scores_under(records, policy)
    rescored = recorded
    if any(score.rank is None for score in recorded):
        every = with_changes(policy, {name: {"share": 1.0} for name in policy.profiles})
        rescored = scores_under(records, every)
    widths = [_width(*scores) for scores in zip(recorded, rescored, strict=True)]
    return np.array(widths, int), np.array([ROUTES[score.decision].kept for score in recorded], bool)


def _width(recorded: Score, rescored: Score) -> int:
    score = recorded if recorded.rank is not None else rescored
    if score.rank is None or score.of is None:
        return NEVER
    return next(at for at, share in enumerate(SHARES) if score.rank <= places(share, score.of))
