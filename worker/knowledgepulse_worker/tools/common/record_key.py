"""The record key of a trace."""

from __future__ import annotations

import json
from typing import Literal

KeyBy = Literal["id", "agent_id", "task_domain"]


def key_of(value: bytes, key_by: KeyBy) -> bytes | None:
    """Return the record key of a trace's JSON; None if the field is missing or the JSON is invalid."""
    try:
        trace = json.loads(value)
        key = trace["id"] if key_by == "id" else trace["metadata"][key_by]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return key.encode("utf-8", "replace") if isinstance(key, str) else None
