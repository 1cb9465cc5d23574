"""Log outputs that are too large for their topic, whose limit an operator may have lowered."""

from __future__ import annotations

import logging
from collections import Counter

from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_kafka.records import OutputRecord

logger = logging.getLogger(__name__)


class SizeLog:
    """Logs the outputs that become dead letters, those of a topic together if there are many."""

    def __init__(self) -> None:
        self._interval = LogInterval()
        self._unlogged: Counter[str] = Counter()

    def note(self, output: OutputRecord, source: str) -> None:
        """Note an output that its topic does not accept, and the raw record that it belongs to."""
        topic = output.topic
        self._unlogged[topic] += 1
        if not self._interval.let_pass(topic):
            return
        logger.warning(
            "%s: outputs exceed its max.message.bytes and become dead letters (too_large): %d, the latest "
            "for %s with %s bytes; raise the limit, then `kp-worker dead-letters replay --reason too_large`",
            topic,
            self._unlogged.pop(topic),
            source,
            f"{output.size:,}",
        )
