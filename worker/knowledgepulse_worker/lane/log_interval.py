"""Limit how often a line is logged."""

from __future__ import annotations

import time

LOG_INTERVAL = 60.0
"""Seconds between two log lines for the same topic."""


class LogInterval:
    """Lets a line pass at most once per :data:`LOG_INTERVAL` for each topic."""

    def __init__(self) -> None:
        self._passed_at: dict[str, float] = {}

    def let_pass(self, topic: str) -> bool:
        """Return whether a line for a topic may be logged now; if so, the interval begins."""
        now = time.monotonic()
        if now - self._passed_at.get(topic, -LOG_INTERVAL) < LOG_INTERVAL:
            return False
        self._passed_at[topic] = now
        return True
