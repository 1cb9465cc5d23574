"""The records of a ledger: entries, the last scores of each domain, and the position.

Their keys in the changelog differ: those of entries are numbers.
"""

from __future__ import annotations

import sys
from typing import Literal

import msgspec
import numpy as np

from knowledgepulse_kafka.records import Position
from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.errors import InputError, LedgerError
from knowledgepulse_worker.policy import Decision
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.score_header import decode_score
from knowledgepulse_worker.scoring import LastScores, Score

POSITION_KEY = b"position"
"""The key of the changelog record with the partition's position."""

SCORES_PREFIX = b"scores/"
"""Begins the key of the last scores of a domain, which follows in UTF-8."""

ENTRY_VERSION = 5
"""The newest format version of entries."""

_VERSION_OF_WITHHELD = {"ending": ENTRY_VERSION, "score": 4}
"""The format version of the entry of a trace that is withheld for a reason that earlier releases do not know.

Other new entries have :data:`COMMITTED_VERSION`, so that workers of release 0.4.0 can read them.
"""

COMMITTED_VERSION = 3
"""The format version from which on an entry is written in the transaction that commits its record.

Entries of version 2 and earlier have their offset as key, and there are some without a vector. Version 1 had
neither ``version`` nor ``topic_id``.
"""


SCORES_VERSION = 2
"""The newest format version of last scores, that of those with agents, which release 0.4.0 would drop."""


class Failure(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Why a record is a dead letter."""

    reason: Reason
    exception: str
    message: str


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The outcome of one raw record.

    Later formats only append fields, and raise ``version`` if older readers must refuse the entry.

    Attributes:
        offset: the record's offset in its partition of the raw topic.
        timestamp_ms: the record's timestamp.
        fingerprint: a hash of the record in entries before version 3; empty since then.
        trace_id: None if the record could not be decoded.
        decision: None for a dead letter.
        score: the ``kp-score`` header's JSON; None for an unscored record.
        policy: the digest of the policy that scored the record.
        failure: None unless the record is a dead letter.
        vector: little-endian float32; None without an embedder or for an unscored record.
        model: the embedder's identity; only vectors of the same identity are compared.
        precision: the embedder's precision; recorded, not compared.
        window: how many offsets ahead of the group's position release 0.2.0 might write; no longer used.
        version: the entry's format version.
        topic_id: the id of the record's topic (KIP-516); empty if unknown.
    """

    offset: int
    timestamp_ms: int
    fingerprint: bytes = b""
    trace_id: str | None = None
    decision: Decision | None = None
    score: bytes | None = None
    policy: str = ""
    failure: Failure | None = None
    vector: bytes | None = None
    model: str = ""
    precision: str = ""
    window: int = 0
    version: int = 1
    topic_id: bytes = b""

    @property
    def outcome(self) -> Decision | Literal["dead_letter"]:
        """The kind of output that the record gets."""
        return self.decision or "dead_letter"


class DomainScores(msgspec.Struct, array_like=True, frozen=True):
    """The last scores of a domain, among which those under a share are ranked.

    Attributes:
        offset: the offset of the raw record with the last of them.
        topic_id: the id of its topic (KIP-516); empty if unknown.
        model: the identity of the embedder that gave the novelty in them; empty without one.
        last: the scores.
        version: the format version.
    """

    offset: int
    topic_id: bytes
    model: str
    last: LastScores
    version: int = 1


def scores_version(last: LastScores) -> int:
    """Return the format version of last scores."""
    return SCORES_VERSION if last.agents else 1


encode_scores = msgspec.msgpack.Encoder().encode
"""Encode the last scores of a domain."""

decode_scores = msgspec.msgpack.Decoder(DomainScores).decode
"""Decode the last scores of a domain; raises DECODE_ERRORS."""


def scores_key(domain: str) -> bytes:
    """Return the key of a domain's last scores."""
    return SCORES_PREFIX + domain.encode("utf-8", "surrogatepass")


def scores_domain(key: bytes) -> str:
    """Return the domain of a key that begins with :data:`SCORES_PREFIX`."""
    return key.removeprefix(SCORES_PREFIX).decode("utf-8", "surrogatepass")


def entry_version(score: Score) -> int:
    """Return the format version of the entry of a scored trace."""
    return _VERSION_OF_WITHHELD.get(score.withheld or "", COMMITTED_VERSION)


decode_entry = msgspec.msgpack.Decoder(Entry).decode
"""Decode an entry's bytes; raises DECODE_ERRORS."""

encode_entry = msgspec.msgpack.Encoder().encode
"""Encode an entry."""


def encode_position(position: Position) -> bytes:
    """Return a position's bytes in the changelog."""
    return msgspec.msgpack.encode(position)


decode_position = msgspec.msgpack.Decoder(Position).decode
"""Decode a position's bytes; raises DECODE_ERRORS."""


def encode_vector(vector: np.typing.NDArray[np.float32]) -> bytes:
    """Return the vector as little-endian float32 bytes."""
    return vector.astype("<f4", copy=False).tobytes()


def decode_vector(vector: bytes) -> np.typing.NDArray[np.float32]:
    """Return an entry's vector, shape (dimensions,), float32."""
    return np.frombuffer(vector, dtype="<f4")


def read_record(key: bytes, value: bytes | None) -> Entry | Position | DomainScores | None:
    """Return the content of a record of the changelog; None if it deletes an entry or last scores.

    An entry can be used without further checks: if a problem were found later, it could only be blamed on the
    raw record.

    Raises:
        InputError: no worker can have written the record. The message does not quote it.
        LedgerError: a newer worker has written it.
    """
    if key == POSITION_KEY:
        return _position(value)
    if key.startswith(SCORES_PREFIX):
        return None if value is None else _scores(key, value)
    if not key.isdigit():
        raise InputError("key is not that of a ledger entry")
    return None if value is None else _entry(value)


def _position(value: bytes | None) -> Position:
    try:
        position = decode_position(value or b"")
    except DECODE_ERRORS:
        raise InputError("value is not a position") from None
    if not 0 <= position.offset <= sys.maxsize:
        raise InputError("position has an impossible offset")
    return position


def _entry(value: bytes) -> Entry:
    try:
        entry = decode_entry(value)
    except DECODE_ERRORS:
        raise InputError("value is not a ledger entry") from None
    _require_known("entry", entry.version, ENTRY_VERSION)
    if not 0 <= entry.offset <= sys.maxsize:
        raise InputError("entry has an impossible offset")
    if entry.failure is None and (entry.decision is None or entry.score is None):
        raise InputError("entry has neither a score nor a failure")
    if entry.score is not None:
        try:
            decode_score(entry.score)
        except DECODE_ERRORS:
            raise InputError("entry has an invalid score") from None
    vector = entry.vector
    if vector is not None and (len(vector) % 4 or not np.isfinite(decode_vector(vector)).all()):
        raise InputError("entry has an invalid vector: not finite float32 numbers")
    return entry


def _scores(key: bytes, value: bytes) -> DomainScores:
    try:
        scores_domain(key)
        scores = decode_scores(value)
    except DECODE_ERRORS:
        raise InputError("value is not the last scores of a domain") from None
    _require_known("record of last scores", scores.version, SCORES_VERSION)
    last = scores.last
    if not (0 <= scores.offset <= sys.maxsize and len(last.scores) <= last.count):
        raise InputError("last scores have an impossible offset or number")
    if not all(0 <= score <= 1 for score in last.scores):
        raise InputError("last scores are not between 0 and 1")
    if last.agents and len(last.agents) != len(last.scores):
        raise InputError("last scores have another number of agents")
    return scores


def _require_known(what: str, version: int, known: int) -> None:
    if version > known:
        raise LedgerError(
            f"{what} has format version {version}, written by a newer worker; this one reads up to version "
            f"{known}. Start workers of the newer release, or delete the changelog to begin with an empty "
            "ledger"
        )
