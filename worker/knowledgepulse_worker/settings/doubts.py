"""Settings that are valid, but may not be what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from knowledgepulse_worker.policy import REFERENCE_WEIGHTS
from knowledgepulse_worker.settings.models import Settings


def doubts_about(settings: Settings) -> Iterator[str]:
    """Yield a line for each domain whose name is nearly that of one with weights of its own."""
    for section, policy in (("policy", settings.policy), ("shadow", settings.shadow)):
        for name in () if policy is None else policy.domains:
            close = difflib.get_close_matches(name, REFERENCE_WEIGHTS, n=1)
            if close and name not in REFERENCE_WEIGHTS:
                yield f"{section}.domains.{name}: a domain of your own; did you mean {close[0]}?"
