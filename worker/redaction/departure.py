"""The guard that a trace passes before it leaves the organization."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from knowledgepulse_worker.redaction.sdk import clean

Held = Literal["visibility", "privacy_level", "not_clean"]
"""Why a trace may not leave."""


def held_back(trace: Mapping[str, Any], visibilities: Collection[str], *, require_clean: bool) -> Held | None:
    """Return why a trace may not leave, if it may not.

    Args:
        trace: what would leave, and nothing else.
        visibilities: the ``metadata.visibility`` that may leave; a ``private`` one never may.
        require_clean: whether the SDK's cleaning must find nothing in it.
    """
    metadata = trace["metadata"]
    if metadata["visibility"] == "private" or metadata["visibility"] not in visibilities:
        return "visibility"
    if metadata["privacy_level"] == "private":
        return "privacy_level"
    return "not_clean" if require_clean and clean(dict(trace)) != trace else None
