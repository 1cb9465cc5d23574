"""Decide whether a trace may leave the organization, by one rule for all exits.

What is private stays inside. Inside are the organization's topics, and the datasets that ``kp-worker export``
makes for its own use, which take all traces of ``contribute``. A trace does not leave for the first of these
reasons that applies:

1. ``visibility``: its ``metadata.visibility`` is ``private``, or this exit does not permit the value;
2. ``privacy_level``: its ``metadata.privacy_level`` is ``private``, or this exit does not permit the value;
3. ``not_clean``: this exit requires clean traces, and the SDK's cleaner finds something in the trace.

The owner of each exit configures the permitted values:

- *Scoring*: the policy's guards withhold a trace from ``contribute``, and therefore from the redacted copies,
  by the same two members. They may permit ``private``, since the topic belongs to the organization. See
  ``scoring``.
- *The registry*: ``registry.visibilities`` and ``registry.require_clean``.
- *A dataset for others* (``kp-worker export --for network``): only the visibility ``network``, of the values
  that the policy's guards permit, and ``--not-cleaned``. ``--scan-secrets`` searches for keys afterwards.

``kp-worker policy label --judge`` does not apply this rule: the user who names the model decides to send it
the traces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from knowledgepulse_worker.policy import PRIVACY_LEVELS, Guard
from knowledgepulse_worker.redaction.sdk import clean

HoldReason = Literal[Guard, "not_clean"]
"""Why a trace may not leave."""


@dataclass(frozen=True, slots=True)
class EgressRule:
    """The traces that an exit permits to leave.

    Attributes:
        visibilities: values of ``metadata.visibility`` that may leave; ``private`` never does.
        privacy_levels: values of ``metadata.privacy_level`` that may leave; ``private`` never does.
        require_clean: whether the SDK's cleaner must find nothing.
    """

    visibilities: Collection[str]
    privacy_levels: Collection[str] = PRIVACY_LEVELS
    require_clean: bool = True

    def withholding_guard(self, visibility: str, privacy_level: str) -> Guard | None:
        """Return the member that keeps a trace from leaving, or None if neither does."""
        if visibility == "private" or visibility not in self.visibilities:
            return "visibility"
        if privacy_level == "private" or privacy_level not in self.privacy_levels:
            return "privacy_level"
        return None

    def held_by_content(self, is_clean: Callable[[], bool]) -> Literal["not_clean"] | None:
        """Return ``not_clean`` if a trace's content keeps it from leaving; this is slow, so call it last."""
        return "not_clean" if self.require_clean and not is_clean() else None


def is_clean(trace: dict[str, Any]) -> bool:
    """Return whether the SDK's cleaner finds nothing in a trace."""
    return bool(clean(trace) == trace)


def is_clean_json(value: bytes) -> bool:
    """Return whether the SDK's cleaner finds nothing in a trace's JSON; duplicate members are never clean."""
    try:
        trace = json.loads(value, object_pairs_hook=_members)  # reads lone surrogates, unlike msgspec
    except ValueError:
        return False
    return is_clean(trace)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; reject duplicate members, of which the cleaner would see only the last."""
    if len(members := dict(pairs)) < len(pairs):
        raise ValueError
    return members
