"""Log outputs that are too large for their topic, whose limit an operator may have lowered."""

from __future__ import annotations

import logging
import time
from collections import Counter

from knowledgepulse_worker.records.record import OutputRecord

logger = logging.getLogger(__name__)

LOG_INTERVAL = 60.0
"""Seconds between two log lines for the same topic."""


class SizeLog:
    """Logs the outputs that become dead letters, at most once per :data:`LOG_INTERVAL` for each topic."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def note(self, output: OutputRecord, source: str) -> None:
        """Note an output that its topic does not accept, and the raw record that it belongs to."""
        topic, now = output.topic, time.monotonic()
        self._unlogged[topic] += 1
        if now - self._logged_at.get(topic, -LOG_INTERVAL) < LOG_INTERVAL:
            return
        logger.warning(
            "%s: outputs exceed its max.message.bytes and become dead letters (too_large): %d, the latest "
            "for %s with %s bytes; raise the limit, then `kp-worker dead-letters replay --reason too_large`",
            topic,
            self._unlogged.pop(topic),
            source,
            f"{output.size:,}",
        )
        self._logged_at[topic] = now
