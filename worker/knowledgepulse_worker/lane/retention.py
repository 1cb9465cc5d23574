"""Detect outputs that will soon be deleted because they carry an old record's timestamp."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.topics import LOG_APPEND_TIME, Topic
from knowledgepulse_worker.observe.metrics import Metrics

logger = logging.getLogger(__name__)


class RetentionCheck:
    """Counts and logs committed outputs that are older than their topic's retention.

    Args:
        topics: the topics by name.
        metrics: counts the outputs.
    """

    def __init__(self, topics: Mapping[str, Topic], metrics: Metrics) -> None:
        self._topics = topics
        self._metrics = metrics
        self._interval = LogInterval()

    def check(self, output: OutputRecord) -> None:
        """Count an output past its topic's retention; log it unless the topic was logged lately."""
        topic = self._topics[output.topic]
        kept_ms = topic.kept_ms
        has_own_time = topic.timestamp_type != LOG_APPEND_TIME and output.timestamp_ms != NO_TIMESTAMP
        if kept_ms is None or not has_own_time:
            return
        age_ms = time.time_ns() // 1_000_000 - output.timestamp_ms
        if age_ms <= kept_ms:
            return
        self._metrics.traces.expired()
        if self._interval.let_pass(output.topic):
            logger.warning(
                "%s deletes records after %d s (retention.ms), but an output %d s old was published: outputs "
                "carry their record's timestamp, so it will soon be deleted (kp_expired_outputs_total)",
                output.topic,
                kept_ms // 1000,
                age_ms // 1000,
            )
