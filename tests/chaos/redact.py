"""A slow redaction function, like a model that finds names."""

from __future__ import annotations

import time
from typing import Any

SECONDS = 0.03
"""Seconds per trace: what waits in full lanes takes several times as long as the row's `limits.drain`."""


def slowly(trace: dict[str, Any]) -> dict[str, Any]:
    time.sleep(SECONDS)
    return trace
