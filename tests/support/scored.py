"""Records as workers publish them, built in memory."""

from __future__ import annotations

import msgspec
from aiokafka.structs import ConsumerRecord

from worker.lane.scorer import failed_entry
from worker.policy import Policy
from worker.records.entry import Entry, Failure, ScoreHeader
from worker.records.outputs import Outputs
from worker.records.record import RawRecord
from worker.scoring import Score
from worker.settings import TopicSettings

TOPICS = TopicSettings()


def published(
    offset: int, line: bytes, score: Score, policy: Policy, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> ConsumerRecord:
    """Return a worker's output record for a scored trace."""
    raw = RawRecord(TOPICS.raw, 0, offset, 1_000 * offset, b"key", line, headers)
    entry = Entry(
        offset,
        raw.timestamp_ms,
        raw.fingerprint,
        decision=score.decision,
        score=msgspec.json.encode(ScoreHeader.of(score)),
        policy=policy.digest,
    )
    return consumed(offset, raw, entry)


def dead_letter(offset: int) -> ConsumerRecord:
    """Return a worker's output record for an invalid trace."""
    raw = RawRecord(TOPICS.raw, 0, offset, 1_000 * offset, b"key", b"no trace", ())
    return consumed(offset, raw, failed_entry(raw, Failure("not_json", "RejectedRecord", "no JSON")))


def consumed(offset: int, raw: RawRecord, entry: Entry) -> ConsumerRecord:
    """Return an output record as a consumer receives it."""
    output = Outputs(TOPICS, dict.fromkeys(TOPICS.model_dump().values(), 1)).build(raw, entry)
    return ConsumerRecord(
        topic=output.topic,
        partition=0,
        offset=offset,
        timestamp=output.timestamp_ms,
        timestamp_type=0,
        key=output.key,
        value=output.value,
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=0,
        headers=output.headers,
    )
