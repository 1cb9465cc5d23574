"""Limit how often a line is logged."""

from __future__ import annotations

import time
from collections.abc import Callable

LOG_INTERVAL = 60.0
"""Seconds between two log lines for the same topic or quota."""


class LogInterval:
    """Lets a line pass at most once per :data:`LOG_INTERVAL` for each topic or quota.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._passed_at: dict[str, float] = {}

    def let_pass(self, name: str) -> bool:
        """Return whether a line for a topic or quota may be logged now; if so, the interval begins."""
        now = self._clock()
        if now - self._passed_at.get(name, -LOG_INTERVAL) < LOG_INTERVAL:
            return False
        self._passed_at[name] = now
        return True
