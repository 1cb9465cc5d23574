"""From a record and its ledger entry to what is published: pure, so a repeat is equal to the first time."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from schemas import DeadLetterHeaders
from worker.errors import LedgerError
from worker.settings import TopicSettings
from worker.stream.decode import with_quality_score
from worker.stream.ledger import Entry, Failure, ScoreHeader
from worker.stream.records import Headers, OutputRecord, RawRecord

CUT_BYTES = 1024
"""What is left of the value of a dead letter that its topic refused."""


class Outputs:
    """Builds output records.

    Args:
        topics: their names.
        partitions: the partition count of every topic; the record keeps its partition number where the
            output topic has as many as raw, else its key decides.
    """

    def __init__(self, topics: TopicSettings, partitions: dict[str, int]) -> None:
        self._topics = topics
        self._keeps_partition = {name: partitions[name] == partitions[topics.raw] for name in partitions}

    def build(self, record: RawRecord, entry: Entry) -> OutputRecord:
        """Return what the entry says is to be published for the record.

        Raises:
            LedgerError: the entry is neither a decision nor a failure.
        """
        if entry.decision is not None and entry.score is not None and record.value is not None:
            topic = self._topics.contribute if entry.decision == "contribute" else self._topics.rejected
            score = ScoreHeader.decode(entry.score).score
            return self._record(
                record,
                topic,
                with_quality_score(record.value, score),
                _score_headers(record, entry, entry.score),
            )
        if entry.failure is not None:
            headers = _dead_letter_headers(record, entry.failure)
            return self._record(record, self._topics.dead_letter, record.value, headers)
        raise LedgerError(f"the entry of {record.source} has neither a decision nor a failure")

    def build_cut(self, record: RawRecord, entry: Entry) -> OutputRecord:
        """Return the dead letter with its value cut, for a topic that does not take the whole of it.

        Raises:
            LedgerError: the entry is no failure.
        """
        if entry.failure is None:
            raise LedgerError(f"the entry of {record.source} is no failure")
        value = record.value or b""
        headers = _dead_letter_headers(
            record, entry.failure, value_length=len(value), value_sha256=sha256(value).hexdigest()
        )
        return self._record(record, self._topics.dead_letter, value[:CUT_BYTES], headers)

    def _record(self, record: RawRecord, topic: str, value: bytes | None, ours: Headers) -> OutputRecord:
        return OutputRecord(
            topic=topic,
            partition=record.partition if self._keeps_partition[topic] else None,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=value,
            headers=record.headers + ours,
        )


def _score_headers(record: RawRecord, entry: Entry, score: bytes) -> Headers:
    return (
        ("kp-source", record.source.encode()),
        ("kp-score", score),
        ("kp-policy", entry.policy.encode()),
    )


def _dead_letter_headers(record: RawRecord, failure: Failure, **cut: Any) -> Headers:
    headers = DeadLetterHeaders(
        exception=failure.exception,
        message=failure.message,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        reason=failure.reason,
        **cut,
    )
    return tuple(headers.to_kafka())
