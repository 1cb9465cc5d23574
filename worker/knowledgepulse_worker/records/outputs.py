"""Build output records only from a raw record and its ledger entry, so that the audit can do it again."""

from __future__ import annotations

import json
from base64 import b64encode
from copy import copy
from hashlib import sha256
from struct import pack
from typing import Any, TypeVar

from msgspec.structs import replace

from knowledgepulse_kafka.records import NO_TIMESTAMP, Headers, OutputRecord, RawRecord, is_utf8
from knowledgepulse_schemas import DeadLetterHeaders
from knowledgepulse_schemas.headers import last_header
from knowledgepulse_worker.errors import LedgerError, RedactionReason
from knowledgepulse_worker.policy import ROUTES
from knowledgepulse_worker.records.decode import with_quality_score
from knowledgepulse_worker.records.ledger_records import Entry, Failure
from knowledgepulse_worker.records.output_headers import MILLISECONDS, ORIGINAL_TIMESTAMP, WRAPPING
from knowledgepulse_worker.records.score_header import (
    decode_quality_score,
    decode_score,
    encode_score,
    without_content,
)
from knowledgepulse_worker.records.wrapping import UNREAD, ValueRead, Wrapping, trace_in
from knowledgepulse_worker.settings import RecordSettings, TopicSettings

TRUNCATED_BYTES = 1024
"""Maximum bytes of the key, and of the value, of a dead letter that its topic rejected as too large."""

_CONTENT_TYPES = frozenset({"content-type", "contenttype"})
_JSON = b"application/json"
_Record = TypeVar("_Record", RawRecord, OutputRecord)


class Outputs:
    """Builds output records.

    Args:
        topics: the topics' names.
        partitions: the partition count of every topic. A record keeps its partition number if the output
            topic has as many partitions as the raw topic; otherwise, its key decides.
        records: how values are read, and what outputs hold.
    """

    def __init__(
        self, topics: TopicSettings, partitions: dict[str, int], records: RecordSettings | None = None
    ) -> None:
        self._topics = topics
        self.records = records or RecordSettings()
        self._keeps_partition = {name: partitions[name] == partitions[topics.raw] for name in partitions}

    def under(self, records: RecordSettings) -> Outputs:
        """Return a builder that differs only in how values are read and in what outputs hold."""
        other = copy(self)
        other.records = records
        return other

    def build(self, record: RawRecord, entry: Entry, read: ValueRead = UNREAD) -> OutputRecord:
        """Return the record's output according to its entry.

        Args:
            record: the record.
            entry: its entry.
            read: what reading the record's value found, if that is known.

        Raises:
            LedgerError: the entry is neither a decision nor a failure.
            InvalidRecordError: no trace is where the steps lead.
        """
        if entry.decision is not None and entry.score is not None and record.value is not None:
            return self._scored(record, entry, self._topics.of(ROUTES[entry.decision]), read)
        if entry.failure is not None:
            kept, packed = _publishable(record.headers)
            headers = kept + self._letter_headers(record, entry.failure, read, **packed)
            return self._record(record, self._topics.dead_letter, record.value, headers)
        raise LedgerError(f"the entry of {record.source} has neither a decision nor a failure")

    def build_truncated(self, record: RawRecord, entry: Entry, read: ValueRead = UNREAD) -> OutputRecord:
        """Return a dead letter small enough for any topic.

        The value and a long key are shortened, and large headers are left out. The letter's own headers give
        the length and hash of every part that is shortened or left out.

        Raises:
            LedgerError: the entry is not a failure.
        """
        if entry.failure is None:
            raise LedgerError(f"the entry of {record.source} is not a failure")
        value, key = record.value or b"", record.key or b""
        removed: dict[str, Any] = {"value_length": len(value), "value_sha256": sha256(value).hexdigest()}
        if len(key) > TRUNCATED_BYTES:
            removed |= {"key_length": len(key), "key_sha256": sha256(key).hexdigest()}
            key = key[:TRUNCATED_BYTES]
        packed = _packed(record.headers)
        kept: Headers = ()
        if len(packed) <= TRUNCATED_BYTES:
            kept, as_text = _publishable(record.headers)
            removed |= as_text
        else:
            removed |= {
                "headers_count": len(record.headers),
                "headers_length": len(packed) - 8 * len(record.headers),
                "headers_sha256": sha256(packed).hexdigest(),
            }
        small = replace(record, key=None if record.key is None else key)
        headers = kept + self._letter_headers(record, entry.failure, read, **removed)
        return self._record(small, self._topics.dead_letter, value[:TRUNCATED_BYTES], headers)

    def build_redacted(
        self, record: RawRecord, entry: Entry, topic: str, trace_id: str, value: bytes
    ) -> OutputRecord:
        """Return the redacted copy of a contributed trace.

        Its key is the redacted trace's id. It has only the worker's headers, since the producer's may hold
        content.
        """
        score = without_content(decode_score(entry.score or b""))
        headers = _score_headers(record, entry, encode_score(score))
        return self._record(replace(record, key=trace_id.encode()), topic, value, headers)

    def build_unredacted(
        self, record: RawRecord, entry: Entry, topic: str, reason: RedactionReason
    ) -> OutputRecord:
        """Return the record without key and value that replaces a redacted copy that could not be made."""
        headers = (
            ("kp-source", record.source.encode()),
            ("kp-policy", entry.policy.encode()),
            ("kp-redaction-error", reason.encode()),
        )
        return self._record(replace(record, key=None), topic, None, headers)

    def _scored(self, record: RawRecord, entry: Entry, topic: str, read: ValueRead) -> OutputRecord:
        headers, value, steps = record.headers, record.value or b"", read.steps
        ours = _score_headers(record, entry, entry.score or b"")
        if steps:
            ours += ((WRAPPING, Wrapping(self.records.output, steps).header()),)
        if steps and self.records.output == "bare":
            headers += _right_content_types(headers)
            value, steps = trace_in(value, steps), ()
        score = decode_quality_score(entry.score or b"")
        scored = with_quality_score(value, score, read.score_place, steps)
        return self._record(record, topic, scored, headers + ours)

    def _letter_headers(
        self, record: RawRecord, failure: Failure, read: ValueRead, **removed: Any
    ) -> Headers:
        headers = DeadLetterHeaders(
            exception=failure.exception,
            message=failure.message,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            reason=failure.reason,
            form=read.form,
            unwrap=" ".join(self.records.unwrap) or None,
            **removed,
        )
        return tuple(headers.to_kafka())

    def _record(self, record: RawRecord, topic: str, value: bytes | None, headers: Headers) -> OutputRecord:
        output = OutputRecord(
            topic=topic,
            partition=record.partition if self._keeps_partition[topic] else None,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=value,
            headers=headers,
        )
        # Clients reject every negative timestamp except NO_TIMESTAMP.
        return output if output.timestamp_ms >= NO_TIMESTAMP else with_current_timestamp(output)


def with_current_timestamp(output: OutputRecord) -> OutputRecord:
    """Return the output with the time of publishing, and its record's timestamp in a header."""
    if output.timestamp_ms == NO_TIMESTAMP:
        return output
    original = (ORIGINAL_TIMESTAMP, b"%d" % output.timestamp_ms)
    return replace(output, timestamp_ms=NO_TIMESTAMP, headers=(*output.headers, original))


def with_original_timestamp(record: _Record) -> _Record:
    """Undo :func:`with_current_timestamp`; return any other output unchanged."""
    name, value = record.headers[-1] if record.headers else ("", None)
    if name != ORIGINAL_TIMESTAMP or not MILLISECONDS.fullmatch(value or b""):
        return record
    return replace(record, timestamp_ms=int(value or b""), headers=record.headers[:-1])


def _right_content_types(headers: Headers) -> Headers:
    """Return the headers that follow those that name another content type than JSON."""
    return tuple(
        (name, _JSON)
        for name in dict.fromkeys(name for name, _ in headers if name.casefold() in _CONTENT_TYPES)
        if (last_header(headers, name) or b"").partition(b";")[0].strip().lower() != _JSON
    )


def _score_headers(record: RawRecord, entry: Entry, score: bytes) -> Headers:
    return (
        ("kp-source", record.source.encode()),
        ("kp-score", score),
        ("kp-policy", entry.policy.encode()),
    )


def _packed(headers: Headers) -> bytes:
    """Serialize each header as the lengths of name and value, followed by name and value."""
    packed = bytearray()
    for name, value in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        packed += pack(">II", len(encoded), len(value or b"")) + encoded + (value or b"")
    return bytes(packed)


def _publishable(headers: Headers) -> tuple[Headers, dict[str, str]]:
    """Return the headers that the client can publish and, if it cannot publish all, all of them as base64."""
    kept = tuple(header for header in headers if is_utf8(header[0]))
    if len(kept) == len(headers):
        return kept, {}
    pairs = [(_base64(name.encode("utf-8", "surrogateescape")), _base64(value)) for name, value in headers]
    return kept, {"headers": json.dumps(pairs)}


def _base64(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()
