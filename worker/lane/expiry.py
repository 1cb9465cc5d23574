"""Outputs that their topic deletes at once, since they have the time of an old record."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from worker.lane.records import NO_TIMESTAMP, OutputRecord
from worker.observe.metrics import Metrics

logger = logging.getLogger(__name__)

LOG_INTERVAL = 60.0
"""Seconds between two log lines about one topic."""


class Expiry:
    """Counts and logs confirmed outputs that are older than their topic keeps records.

    Args:
        kept_ms: the age in milliseconds at which a topic deletes records, by its name; one that deletes none
            by age is not in it.
        metrics: counts them.
    """

    def __init__(self, kept_ms: Mapping[str, int], metrics: Metrics) -> None:
        self._kept_ms = kept_ms
        self._metrics = metrics
        self._logged_at: dict[str, float] = {}

    def check(self, output: OutputRecord) -> None:
        """Count an output if its topic deletes it for its age; log it if that was not logged just now."""
        kept_ms = self._kept_ms.get(output.topic)
        if kept_ms is None or output.timestamp_ms == NO_TIMESTAMP:
            return
        age_ms = time.time_ns() // 1_000_000 - output.timestamp_ms
        if age_ms <= kept_ms:
            return
        self._metrics.expired()
        now = time.monotonic()
        if now - self._logged_at.get(output.topic, -LOG_INTERVAL) >= LOG_INTERVAL:
            self._logged_at[output.topic] = now
            logger.warning(
                "%s deletes records after %d s (retention.ms) and got an output of %d s: it has the time of "
                "its record, and is deleted soon; kp_expired_outputs_total counts them",
                output.topic,
                kept_ms // 1000,
                age_ms // 1000,
            )
