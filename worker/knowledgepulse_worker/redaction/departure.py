"""The guard that a trace passes before it leaves the organization."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Literal

from knowledgepulse_worker.policy import PRIVACY_LEVELS, Guard
from knowledgepulse_worker.redaction.sdk import clean

Held = Literal[Guard, "not_clean"]
"""Why a trace may not leave."""


def withholding_guard(
    visibility: str,
    privacy_level: str,
    visibilities: Collection[str],
    privacy_levels: Collection[str] = PRIVACY_LEVELS,
) -> Guard | None:
    """Return which of a trace's members keeps it from leaving, if one does.

    Args:
        visibility: its ``metadata.visibility``; ``private`` never leaves.
        privacy_level: its ``metadata.privacy_level``; likewise.
        visibilities: those that may leave.
        privacy_levels: likewise.
    """
    if visibility == "private" or visibility not in visibilities:
        return "visibility"
    return "privacy_level" if privacy_level == "private" or privacy_level not in privacy_levels else None


def held_back(trace: Mapping[str, Any], visibilities: Collection[str], *, require_clean: bool) -> Held | None:
    """Return why a trace may not leave, if it may not.

    Args:
        trace: what would leave, and nothing else.
        visibilities: see :func:`withholding_guard`.
        require_clean: whether the SDK's cleaning must find nothing in it.
    """
    metadata = trace["metadata"]
    held = withholding_guard(metadata["visibility"], metadata["privacy_level"], visibilities)
    return held or ("not_clean" if require_clean and clean(dict(trace)) != trace else None)


def is_clean_json(value: bytes) -> bool:
    """Return whether the SDK's cleaning finds nothing in a trace's JSON, in which no member stands twice."""
    try:
        trace = json.loads(value, object_pairs_hook=_members)  # reads lone surrogates, unlike msgspec
    except ValueError:
        return False
    return bool(clean(trace) == trace)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of members that stand twice, the cleaning would see only the last one."""
    if len(members := dict(pairs)) < len(pairs):
        raise ValueError
    return members
