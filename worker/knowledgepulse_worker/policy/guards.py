"""What withholds a trace from contribution, whatever its rank."""

from __future__ import annotations

from typing import Literal, get_args

from knowledgepulse_schemas.trace import PrivacyLevel, Visibility

Guard = Literal["visibility", "privacy_level"]
"""The member of a trace's metadata that a guard checks."""

WithholdReason = Literal[Guard, "ending", "novelty", "score"]
"""Why a trace is not contributed whatever its rank: a guard, its run's end, or what is below its minimum."""

Minimum = Literal["min_novelty", "min_score"]
MINIMUMS: tuple[Minimum, ...] = get_args(Minimum)
"""What a trace must reach whatever its rank; with 0, any does."""

VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)
PRIVACY_LEVELS: tuple[PrivacyLevel, ...] = get_args(PrivacyLevel)
