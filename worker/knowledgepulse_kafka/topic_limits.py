"""Tell whether a topic accepts a record, by the topic's settings (KIP-98's record format, KIP-937)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from knowledgepulse_kafka.errors import DeliveryError, TimestampError, TooLargeError, UnacceptableError
from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.topics import CLEANUP_POLICY, LOG_APPEND_TIME, Topic

_FRAME_BYTES, _LENGTH_BYTES = 128, 20
"""More than what a batch and its record take besides key, value and headers, and the lengths of a header."""


class TopicLimits:
    """The limits of topics on a record's key, size and timestamp.

    The settings may change, and clocks differ, so a broker may still refuse a record.

    Args:
        topics: the topics by name.
    """

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics

    def problem_of(self, record: OutputRecord) -> DeliveryError | None:
        """Return why a record's topic does not accept it; None if it does."""
        topic = self._topics[record.topic]
        if record.key is None and topic.is_compacted:
            return UnacceptableError(f"{topic.name}: no key, but {CLEANUP_POLICY}={topic.cleanup_policy}")
        limit = topic.max_message_bytes
        if _most_bytes(record) > limit and (size := exact_bytes(record)) > limit:
            return TooLargeError(f"{topic.name}: {size} bytes exceed max.message.bytes={limit}")
        before, after = topic.timestamp_before_max_ms, topic.timestamp_after_max_ms
        is_limited = before is not None or after is not None
        if is_limited and record.timestamp_ms >= 0 and topic.timestamp_type != LOG_APPEND_TIME:
            age_ms = time.time_ns() // 1_000_000 - record.timestamp_ms
            if (before is not None and age_ms > before) or (after is not None and -age_ms > after):
                return TimestampError(f"{topic.name}: the timestamp is {abs(age_ms) // 1000} s off")
        return None


def _most_bytes(record: OutputRecord) -> int:
    """Return more than the uncompressed size of a batch with only this record; told soonest."""
    most = _FRAME_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        most += _LENGTH_BYTES + 4 * len(name) + len(value or b"")
    return most


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return an upper bound of the uncompressed size of a batch with only this record."""
    return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, list(headers)))


def exact_bytes(record: OutputRecord) -> int:
    """Return the uncompressed size of a batch with only this record."""
    batch = DefaultRecordBatchBuilder(2, 0, 1, -1, -1, 0, 0)
    timestamp = max(record.timestamp_ms, 0)
    batch.append(0, timestamp, record.key, record.value, list(record.headers))
    return int(batch.size())
