"""A partition's ledger: outcomes by source offset, and the vectors that novelty compares with.

The ledger lives in the changelog topic, one partition for each of the raw topic, keyed by source offset in
decimal. It makes scores replay-exact: a redelivered record is published as its entry says, and the cache that
a new record sees is rebuilt from the entries before it.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from worker.errors import LedgerError, Reason
from worker.lane.records import UNREAD_FINGERPRINT, RawRecord
from worker.scoring import Decision, Score, VectorCache

ENTRY_VERSION = 2
"""The format of the entries written here; version 1 had neither ``version`` nor ``topic_id``."""


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """Why a record is a dead letter."""

    reason: Reason
    exception: str
    message: str


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """The outcome of one raw record.

    A later format only appends fields, and moves ``version`` up when an older reader must not go on.

    Attributes:
        offset: the record's offset in its partition of the raw topic.
        timestamp_ms: the record's timestamp.
        fingerprint: identifies the record among others at the same offset (a recreated topic).
        trace_id: None when the record could not be decoded.
        decision: None for a dead letter.
        score: the ``kp-score`` header's JSON; None for a record that was not scored.
        policy: the digest of the policy that scored it.
        failure: None unless it is a dead letter.
        vector: little-endian float32; None without an embedder, or when it was not scored.
        model: the embedder's identity; only vectors of one identity are compared.
        precision: of the embedder; recorded, not compared.
        window: how many offsets behind this one could still be redelivered when it was written.
        version: of this format.
        topic_id: of the topic that held the record (KIP-516); empty when unknown.
    """

    offset: int
    timestamp_ms: int
    fingerprint: bytes
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
    def outcome(self) -> Literal["contribute", "rejected", "dead_letter"]:
        """The output that the record belongs to."""
        return self.decision or "dead_letter"

    @property
    def header(self) -> ScoreHeader | None:
        """The score and its parts; None for a record that was not scored."""
        return None if self.score is None else ScoreHeader.decode(self.score)


class ScoreHeader(msgspec.Struct, frozen=True):
    """The ``kp-score`` header: the score and its parts."""

    score: float
    complexity: float
    novelty: float
    tool_diversity: float
    outcome_confidence: float
    overrides: tuple[str, ...]
    domain: str
    threshold: float
    nearest: str | None

    @classmethod
    def of(cls, score: Score) -> ScoreHeader:
        """Take the parts of a score."""
        return cls(
            score=score.quality_score,
            complexity=score.complexity,
            novelty=score.novelty,
            tool_diversity=score.tool_diversity,
            outcome_confidence=score.outcome_confidence,
            overrides=score.overrides,
            domain=score.domain,
            threshold=score.threshold,
            nearest=score.nearest,
        )

    @classmethod
    def decode(cls, value: bytes) -> ScoreHeader:
        """Decode the header's value."""
        return _decode_header(value)


# After a foreign write, confirmations pile up until the next recovery.
_MAX_AHEAD = 10_000

decode_entry = msgspec.msgpack.Decoder(Entry).decode
"""Decode an entry's bytes; raises msgspec.MsgspecError."""

_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.json.Decoder(ScoreHeader).decode


def encode_vector(vector: np.typing.NDArray[np.float32]) -> bytes:
    """Return the vector as an entry holds it."""
    return vector.astype("<f4", copy=False).tobytes()


def decode_vector(vector: bytes) -> np.typing.NDArray[np.float32]:
    """Return an entry's vector, shape (dimensions,), float32."""
    return np.frombuffer(vector, dtype="<f4")


CutReason = Literal["recreated", "rewind", "model"]
"""Why entries of a ledger are no longer valid."""


class Changelog:
    """One partition's live entries, as bytes, and how far its changelog was read.

    Args:
        partition: its number, for error messages.
    """

    def __init__(self, partition: int) -> None:
        self.entries: dict[int, bytes] = {}
        self.position: int | None = None
        self._partition = partition
        self._ahead: set[int] = set()

    def apply(self, changelog_offset: int, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the changelog topic; no value is a tombstone.

        Raises:
            LedgerError: the key is no source offset, or the value no entry that this version reads.
        """
        try:
            offset = int(key or b"")
        except ValueError:
            raise self._unreadable(changelog_offset, f"its key {(key or b'')[:40]!r} is no offset") from None
        if value is None:
            self.entries.pop(offset, None)
        else:
            self._require_readable(changelog_offset, offset, value)
            self.entries[offset] = value
        self.position = changelog_offset

    def _require_readable(self, changelog_offset: int, offset: int, value: bytes) -> None:
        try:
            entry = decode_entry(value)
        except msgspec.MsgspecError:
            raise self._unreadable(changelog_offset, "its value is no ledger entry") from None
        if entry.version > ENTRY_VERSION:
            raise self._unreadable(
                changelog_offset,
                f"its entry has format version {entry.version}, this worker reads up to {ENTRY_VERSION}: "
                "a newer worker wrote it",
            )
        if entry.offset != offset:
            raise self._unreadable(changelog_offset, f"its key is {offset}, its entry is of {entry.offset}")
        if problem := _problem(entry):
            raise self._unreadable(changelog_offset, problem)

    def _unreadable(self, changelog_offset: int, why: str) -> LedgerError:
        return LedgerError(f"changelog partition {self._partition}, offset {changelog_offset}: {why}")

    def newest_before(self, offset: int) -> Entry | None:
        """Return the entry with the highest source offset below this one, if any."""
        known = max((known for known in self.entries if known < offset), default=None)
        return None if known is None else decode_entry(self.entries[known])

    def confirmed(self, changelog_offset: int) -> None:
        """Note that the broker has confirmed a record of ours.

        The position follows only while every offset in between is ours too; otherwise the next recovery reads
        what another process wrote. Confirmations may be noticed out of order.
        """
        place = -1 if self.position is None else self.position
        if changelog_offset > place and len(self._ahead) < _MAX_AHEAD:
            self._ahead.add(changelog_offset)
        while place + 1 in self._ahead:
            place += 1
            self._ahead.remove(place)
            self.position = place


def _problem(entry: Entry) -> str | None:
    """Return what keeps an entry from being used; later, only the raw record could be named."""
    if entry.failure is None and (entry.decision is None or entry.score is None):
        return "its entry has neither a score nor a failure"
    if entry.score is not None:
        try:
            ScoreHeader.decode(entry.score)
        except msgspec.MsgspecError:
            return "its entry's score cannot be read"
    if entry.vector is not None and (
        len(entry.vector) % 4 or not np.isfinite(decode_vector(entry.vector)).all()
    ):
        return "its entry's vector is no vector of finite numbers"
    return None


class Ledger:
    """The ring of a partition's entries: the window, and the last ``max_elements`` scored entries before it.

    The window holds as many offsets as can be redelivered. So a redelivered record always finds its entry,
    and a new record always finds every vector that it must be compared with.

    Args:
        changelog: the partition's entries; the ring keeps it up to date.
        max_elements: how many scored records novelty compares with.
        window: how many offsets behind the newest may be redelivered.
    """

    def __init__(self, changelog: Changelog, max_elements: int, window: int) -> None:
        self._changelog = changelog
        self._max_elements = max_elements
        self._window = window
        self._kept = window
        self._recent: deque[tuple[int, bool]] = deque()
        self._older: deque[int] = deque()

    def open(
        self, next_offset: int, cache: VectorCache, model: str, topic_id: bytes = b""
    ) -> tuple[list[int], CutReason | None]:
        """Fill the cache with the vectors scored before an offset, and order the ring.

        Args:
            next_offset: the offset of the lane's first record.
            cache: empty.
            model: the embedder's identity; vectors of another one are never compared with its own.
            topic_id: of the raw topic; entries of another one are cut. Empty when unknown.

        Returns:
            the offsets of the entries that fell out, to be tombstoned, and why entries were invalid:
            ``recreated`` (another topic of this name), ``rewind`` (the group was set back beyond the window),
            ``model``, or None.
        """
        entries = {offset: decode_entry(value) for offset, value in sorted(self._changelog.entries.items())}
        reason: CutReason | None = None
        if topic_id and any(entry.topic_id not in (b"", topic_id) for entry in entries.values()):
            entries = {offset: entry for offset, entry in entries.items() if entry.topic_id == topic_id}
            reason = "recreated"
        # What can be redelivered now depends on the setting under which the entries were written.
        window_then = entries[max(entries)].window if entries else 0
        self._kept = max(self._window, window_then)
        if entries and max(entries) >= next_offset + window_then:
            entries = {offset: entry for offset, entry in entries.items() if offset < next_offset}
            reason = "rewind"
        foreign = [
            o
            for o, entry in entries.items()
            if entry.vector
            and (len(entry.vector) != 4 * cache.dimensions if entry.model == model else o < next_offset)
        ]
        if foreign:
            entries = {offset: entry for offset, entry in entries.items() if offset not in foreign}
            reason = "model"
        fallen = [offset for offset in self._changelog.entries if offset not in entries]
        for entry in entries.values():
            fallen += self._keep(entry)
            if entry.offset < next_offset and entry.vector:
                remember(cache, entry)
        self._forget(fallen)
        return fallen, reason

    def find(self, record: RawRecord) -> Entry | None:
        """Return a redelivered record's entry; None for a new record, or for another one at its offset."""
        value = self._changelog.entries.get(record.offset)
        entry = None if value is None else decode_entry(value)
        if entry is None:
            return None
        # One that could not be read, then or now, is the same record: limits.batch_bytes was changed.
        fingerprints = {entry.fingerprint, record.fingerprint}
        if len(fingerprints) > 1 and UNREAD_FINGERPRINT not in fingerprints:
            return None
        is_same_topic = not (entry.topic_id and record.topic_id) or entry.topic_id == record.topic_id
        return entry if is_same_topic else None

    def put(self, entry: Entry) -> tuple[bytes, list[int]]:
        """Add an entry, or replace the one of its offset.

        Returns:
            the entry's bytes for the changelog, and the offsets of the entries that fell out of the ring.
        """
        value = _encode(replace(entry, window=self._window, version=ENTRY_VERSION))
        known = entry.offset in self._changelog.entries
        self._changelog.entries[entry.offset] = value
        fallen = [] if known else self._keep(entry)
        self._forget(fallen)
        return value, fallen

    def clear(self) -> list[int]:
        """Forget everything; return the offsets to tombstone."""
        fallen = list(self._changelog.entries)
        self._recent.clear()
        self._older.clear()
        self._forget(fallen)
        return fallen

    def __contains__(self, offset: int) -> bool:
        return offset in self._changelog.entries

    def __len__(self) -> int:
        return len(self._changelog.entries)

    def _keep(self, entry: Entry) -> list[int]:
        fallen: list[int] = []
        insort(self._recent, (entry.offset, entry.vector is not None))
        while self._recent[0][0] <= self._recent[-1][0] - self._kept:
            offset, has_vector = self._recent.popleft()
            if has_vector:
                self._older.append(offset)
            else:
                fallen.append(offset)
        while len(self._older) > self._max_elements:
            fallen.append(self._older.popleft())
        return fallen

    def _forget(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._changelog.entries.pop(offset, None)


def remember(cache: VectorCache, entry: Entry) -> None:
    """Add a scored entry's vector to a novelty cache."""
    if entry.vector is not None:
        cache.add(decode_vector(entry.vector), id=entry.trace_id, at=entry.timestamp_ms / 1000)
