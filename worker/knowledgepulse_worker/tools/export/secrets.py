"""Secrets in traces: keys and tokens that the detectors of `detect-secrets` know by their form.

Nothing is sent anywhere: what is found is not verified. Its other detectors judge by entropy, or by the names
of variables: those by entropy find something in 134 of 154 real traces, these in none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from knowledgepulse_worker.extras import extra

_GUESSING = {"Base64HighEntropyString", "HexHighEntropyString", "IPPublicDetector", "KeywordDetector"}


@cache
def detectors() -> list[Any]:
    """Load the detectors; raise a MissingExtraError if `detect-secrets` is not installed."""
    with extra("secrets"):
        from detect_secrets.core.plugins.util import (  # noqa: PLC0415 - optional
            get_mapping_from_secret_type_to_class as known,
        )
    kinds: dict[str, Any] = known()
    return [kind() for kind in kinds.values() if kind.__name__ not in _GUESSING]


def has_secret(value: bytes) -> bool:
    """Return whether a detector finds something in a text of a trace's JSON."""
    return any(
        True
        for text in _texts(json.loads(value, object_pairs_hook=list))
        for line in text.splitlines()
        for detector in detectors()
        for _ in detector.analyze_string(line)
    )


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of JSON whose objects are lists of pairs: a member may stand in it twice."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
