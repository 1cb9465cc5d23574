"""Records as workers publish them, built in memory."""

from __future__ import annotations

import dataclasses
from base64 import b64encode

from aiokafka.structs import ConsumerRecord
from msgspec.structs import replace

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.lane.record_scorer import failed_entry
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.ledger_records import Entry, Failure
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.score_header import encode_score
from knowledgepulse_worker.scoring import Score, ScoredRecord, quality_score
from knowledgepulse_worker.settings import TopicSettings
from support import letters

TOPICS = TopicSettings()


def published(
    offset: int, line: bytes, score: Score, policy: Policy, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> ConsumerRecord:
    """Return a worker's output record for a scored trace."""
    raw = RawRecord(TOPICS.raw, 0, offset, 1_000 * offset, b"key", line, headers)
    entry = Entry(
        offset,
        raw.timestamp_ms,
        decision=score.decision,
        score=encode_score(score),
        policy=policy.digest,
    )
    return consumed(offset, raw, entry)


def scored_record(
    text: str = "kp:trace:1",
    domain: str = "code",
    policy: Policy | None = None,
    threshold: float | None = None,
) -> ScoredRecord:
    """Return a trace with the score 0.625 as a lane reports it; all its ids are the given text."""
    policy = policy or Policy()
    profile = policy.profile(domain)
    least = profile.threshold if threshold is None else threshold
    score = Score(0, 0.5, 0.25, 1.0, 0.75, (), profile.domain, least, text)
    score = replace(score, quality_score=quality_score(score.dimensions, (), profile))
    return ScoredRecord("raw/2/7", text, domain, "network", "aggregated", True, 0.75, score, policy.digest)


def dead_letter(offset: int) -> ConsumerRecord:
    """Return a worker's output record for an invalid trace."""
    raw = RawRecord(TOPICS.raw, 0, offset, 1_000 * offset, b"key", b"no trace", ())
    return consumed(offset, raw, failed_entry(raw, Failure("not_json", "InvalidRecordError", "no JSON")))


def copied_by_connect(record: ConsumerRecord) -> ConsumerRecord:
    """Return a record as Kafka Connect copies it by default, with its headers as base64."""
    headers = tuple((name, b64encode(value)) for name, value in record.headers)
    return dataclasses.replace(record, headers=headers)


def consumed(offset: int, raw: RawRecord, entry: Entry) -> ConsumerRecord:
    """Return an output record as a consumer receives it."""
    output = Outputs(TOPICS, dict.fromkeys(TOPICS.model_dump().values(), 1)).build(raw, entry)
    return letters.consumed(output, partition=0, offset=offset)
