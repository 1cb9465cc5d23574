"""Scored traces from topics and from files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any, Protocol

import msgspec

from knowledgepulse_schemas.trace import Ending, PrivacyLevel, Visibility, trace_id_of
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.records.decode import decode_members
from knowledgepulse_worker.records.decode_content import content_and_counts_of
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.output_headers import KafkaRecord as OutputValue
from knowledgepulse_worker.records.output_headers import trace_of, worker_headers
from knowledgepulse_worker.records.score_header import decode_score
from knowledgepulse_worker.scoring import Content, Counts, Score, ScoredRecord, UnitInterval
from knowledgepulse_worker.tools.common.trace_summary import TraceSummary

JUDGED = "✓"
"""Marks a run that somebody judged, behind its ending."""

_TEXT_CHARACTERS = 80
"""Characters of an objective and of a result in a row."""


class KafkaRecord(OutputValue, Protocol):
    """The attributes of an output topic's record that are read, with the names that clients give them."""

    @property
    def timestamp(self) -> int: ...  # noqa: D102 - as the client has it


def is_named(record: ScoredRecord, name: str) -> bool:
    """Return whether a name is the trace's id, also that of its redacted copy, or its run's native id."""
    return name in (record.id, record.native_id) or name == trace_id_of(record.id)


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``kp-worker score`` output, without the parts of the score."""

    id: str
    quality_score: UnitInterval
    task_domain: str
    visibility: Visibility
    privacy_level: PrivacyLevel
    success: bool
    confidence: UnitInterval
    embedder: str | None = None
    content: Content | None = None
    counts: Counts | None = None
    agent_id: str | None = None
    partition: int = 0
    ending: Ending | None = None
    judged: bool | None = None
    assumed_confidence: bool = False


def read_line(source: str, line: bytes) -> ScoredRecord:
    """Parse a line of ``kp-worker score`` output.

    Raises:
        DECODE_ERRORS: the line is invalid.
    """
    members = msgspec.json.decode(line)
    fields = msgspec.convert(members, _Line)
    # A line says `quality_score` where the header says `score`.
    score = msgspec.convert(members | {"score": fields.quality_score}, Score)
    others = msgspec.structs.asdict(fields)
    del others["quality_score"]
    return ScoredRecord(source=source, score=score, **others)


def members_of(record: ScoredRecord) -> dict[str, Any]:
    """Return what a line says of a trace: its id, the score, and what policies and people need."""
    return {
        "id": record.id,
        **record.score.as_dict(),
        "decision": record.score.decision,
        "task_domain": record.task_domain,
        "visibility": record.visibility,
        "privacy_level": record.privacy_level,
        "success": record.success,
        "confidence": record.confidence,
        "embedder": record.embedder,
        "content": record.content and asdict(record.content),
        "counts": record.counts and msgspec.to_builtins(record.counts),
        "agent_id": record.agent_id,
        "ending": record.ending,
        "judged": record.judged,
        "assumed_confidence": record.assumed_confidence,
    }


def score_json(record: ScoredRecord, policy: str | None = None, value: bytes = b"") -> str:
    """Return a line of ``kp-worker score`` output, in ASCII.

    Args:
        record: the trace that was scored.
        policy: the digest of the policy; if given, the line ends with it and the trace.
        value: the trace's JSON.
    """
    line = members_of(record) | {"partition": record.partition}
    if policy is None:
        return json.dumps(line)
    return f'{json.dumps(line | {"policy": policy})[:-1]}, "trace": {value.decode()}}}'


def ending_text(ending: Ending | None, *, judged: bool | None = None) -> str:
    """Return how a run ended, for people, with a mark if somebody judged it."""
    told = "not told" if ending is None else ending.replace("_", " ")
    return f"{told} {JUDGED}" if judged else told


def excerpt(record: ScoredRecord) -> str:
    """Return the beginnings of a trace's objective and result for a row; text from producers is escaped."""
    if record.content is None:
        return "-"
    objective, result = record.content.objective, record.content.result
    return printable(f"{objective[:_TEXT_CHARACTERS]} → {result[:_TEXT_CHARACTERS]}")


def read_scored_record(record: KafkaRecord) -> ScoredRecord | None:
    """Parse a record of an output topic; return None if no worker wrote it.

    The worker's headers are the last ones; earlier ones with the same names are the producer's.
    """
    headers = worker_headers(record.headers)
    if headers is None:
        return None
    source, score, policy, *_ = headers
    try:
        parts = decode_score(score)
        trace = decode_members(trace_of(record), TraceSummary)
        source_text, policy_digest = source.decode(), policy.decode()
    except (*DECODE_ERRORS, InvalidRecordError):
        return None
    return ScoredRecord(
        source=source_text,
        id=trace.id,
        task_domain=trace.metadata.task_domain,
        visibility=trace.metadata.visibility,
        privacy_level=trace.metadata.privacy_level,
        success=trace.metadata.success,
        confidence=trace.outcome.confidence,
        score=parts,
        policy=policy_digest,
        timestamp_ms=record.timestamp,
        agent_id=trace.metadata.agent_id,
        ending=trace.metadata.ending,
        judged=trace.metadata.judged,
        assumed_confidence=trace.metadata.assumed_confidence,
    )


def read_counted(record: KafkaRecord) -> ScoredRecord | None:
    """Parse a record of an output topic with its texts, and the counts of learned values.

    Return None if no worker wrote it, or if its value is not a valid trace.
    """
    scored = read_scored_record(record)
    if scored is None:
        return None
    try:
        content, counts = content_and_counts_of(trace_of(record))
    except InvalidRecordError:
        return None
    return replace(scored, content=content, counts=counts)
