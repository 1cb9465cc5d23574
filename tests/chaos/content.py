"""Digests of a producer's content, computed from the raw record and from its output.

This module follows the documents and does not use the worker's code: an output has the record's timestamp,
key, value and headers, followed by the worker's own headers.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from struct import pack

from aiokafka.structs import ConsumerRecord

Header = tuple[str, bytes | None]

_SCORED = ("kp-source", "kp-score", "kp-policy")
_SCORE = re.compile(rb'"quality_score":\s*-?[0-9.eE+-]+\s*,?')
_FIRST_OF_DEAD_LETTER = "__streams.errors.exception"
_TIMESTAMP = "kp-timestamp"


def produced(record: ConsumerRecord) -> set[bytes]:
    """Return a raw record's digests with and without its score, which the worker replaces."""
    key, headers = _sha256(record.key), _headers_sha256(record.headers)
    values = record.value or b"", _SCORE.sub(b"", record.value or b"")
    return {_digest(record, key, _sha256(value), headers) for value in values}


def claimed(record: ConsumerRecord) -> bytes:
    """Return an output's digest without the worker's additions; shortened parts count by their hashes."""
    record = with_own_time(record)
    names = [name for name, _ in record.headers]
    if tuple(names[-len(_SCORED) :]) == _SCORED:
        headers = record.headers[: -len(_SCORED)]
        value = _SCORE.sub(b"", record.value)
        return _digest(record, _sha256(record.key), _sha256(value), _headers_sha256(headers))
    first = len(names) - 1 - names[::-1].index(_FIRST_OF_DEAD_LETTER)
    ours = {name: (value or b"").decode() for name, value in record.headers[first:]}
    headers = record.headers[:first]
    if "kp-headers" in ours:
        headers = [
            (b64decode(name).decode("utf-8", "surrogateescape"), None if value is None else b64decode(value))
            for name, value in json.loads(ours["kp-headers"])
        ]
    return _digest(
        record,
        ours.get("kp-key-sha256") or _sha256(record.key),
        ours.get("kp-value-sha256") or _sha256(record.value),
        ours.get("kp-headers-sha256") or _headers_sha256(headers),
    )


def with_own_time(record: ConsumerRecord) -> ConsumerRecord:
    """Return the output with the record's timestamp, if a header contains it."""
    if not record.headers or record.headers[-1][0] != _TIMESTAMP:
        return record
    return replace(record, timestamp=int(record.headers[-1][1]), headers=record.headers[:-1])


def _digest(record: ConsumerRecord, key: str, value: str, headers: str) -> bytes:
    return sha256(f"{record.timestamp} {key} {value} {headers}".encode()).digest()[:8]


def _sha256(content: bytes | None) -> str:
    return sha256(content or b"").hexdigest()


def _headers_sha256(headers: Sequence[Header]) -> str:
    packed = bytearray()
    for name, value in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        packed += pack(">II", len(encoded), len(value or b"")) + encoded + (value or b"")
    return _sha256(bytes(packed))
