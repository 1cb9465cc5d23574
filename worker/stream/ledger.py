"""What a partition remembers: outcomes by source offset, and the vectors that novelty compares with.

The ledger is kept in the changelog topic, one partition of it for each of the raw topic, keyed by the
source offset in decimal. It makes scores replay-exact: a record that is delivered again is published as
its entry says, and the cache that a new record sees is rebuilt from the entries before it.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from worker.errors import LedgerError, Reason
from worker.scoring import Decision, Score, VectorCache


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """Why a record is a dead letter."""

    reason: Reason
    exception: str
    message: str


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """What became of one raw record.

    Attributes:
        offset: the record's offset in its partition of the raw topic.
        timestamp_ms: the record's timestamp.
        fingerprint: tells the record from another at the same offset (a recreated topic).
        trace_id: None when the record could not be decoded.
        decision: None for a dead letter.
        score: the ``kp-score`` header's JSON; None for a record that was not scored.
        policy: the hash of the policy that it was scored with.
        failure: None unless it is a dead letter.
        vector: little-endian float32; None without an embedder, or when it was not scored.
        model: the embedder's identity; only vectors of one identity are compared.
        precision: of the embedder; told, not compared.
        window: how many offsets behind this one could be delivered again when it was written.
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

    @property
    def outcome(self) -> Literal["contribute", "rejected", "dead_letter"]:
        """Where the record goes."""
        return self.decision or "dead_letter"

    @property
    def header(self) -> ScoreHeader | None:
        """The score and how it came about; None for a record that was not scored."""
        return None if self.score is None else ScoreHeader.decode(self.score)


class ScoreHeader(msgspec.Struct, frozen=True):
    """The ``kp-score`` header: the score and how it came about."""

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
        """Read the header's value."""
        return _decode_header(value)


# Once somebody else wrote in between, confirmations pile up until the next recovery.
_MAX_AHEAD = 10_000

decode_entry = msgspec.msgpack.Decoder(Entry).decode
"""Reads an entry's bytes; raises msgspec.MsgspecError."""

_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.json.Decoder(ScoreHeader).decode


def encode_vector(vector: np.typing.NDArray[np.float32]) -> bytes:
    """Return the vector as an entry holds it."""
    return vector.astype("<f4", copy=False).tobytes()


def decode_vector(vector: bytes) -> np.typing.NDArray[np.float32]:
    """Return an entry's vector, shape (dimensions,), float32."""
    return np.frombuffer(vector, dtype="<f4")


class Changelog:
    """A changelog partition's live entries, as bytes, and how far it was read."""

    def __init__(self) -> None:
        self.entries: dict[int, bytes] = {}
        self.position: int | None = None
        self._ahead: set[int] = set()

    def apply(self, changelog_offset: int, key: bytes | None, value: bytes | None) -> None:
        """Take over one record of the changelog topic; no value is a tombstone.

        Raises:
            LedgerError: the key is not a source offset: something else writes to the topic.
        """
        try:
            offset = int(key or b"")
        except ValueError:
            raise LedgerError(
                f"the changelog's record {changelog_offset} has the key {key!r}, no offset"
            ) from None
        if value is None:
            self.entries.pop(offset, None)
        else:
            self.entries[offset] = value
        self.position = changelog_offset

    def newest_before(self, offset: int) -> Entry | None:
        """Return the entry of the last record before a source offset that there is an entry of."""
        known = max((known for known in self.entries if known < offset), default=None)
        return None if known is None else decode_entry(self.entries[known])

    def confirmed(self, changelog_offset: int) -> None:
        """Note that the broker has a record of ours.

        The position follows only while nobody else wrote in between; else the next recovery reads what
        they wrote. Confirmations may be noticed out of order.
        """
        place = -1 if self.position is None else self.position
        if changelog_offset > place and len(self._ahead) < _MAX_AHEAD:
            self._ahead.add(changelog_offset)
        while place + 1 in self._ahead:
            place += 1
            self._ahead.remove(place)
            self.position = place


class Ledger:
    """The ring of a partition's entries: the ``max_elements`` scored last before the window, and the window.

    The window is as many offsets as can be delivered again, so a redelivered record always finds its entry,
    and a record without one always finds every vector that it must be compared with.

    Args:
        changelog: the partition's entries; kept up to date by the ring.
        max_elements: how many scored records novelty compares with.
        window: how many offsets behind the newest may be delivered again.
    """

    def __init__(self, changelog: Changelog, max_elements: int, window: int) -> None:
        self._changelog = changelog
        self._max_elements = max_elements
        self._window = window
        self._kept = window
        self._recent: deque[tuple[int, bool]] = deque()
        self._older: deque[int] = deque()

    def open(self, next_offset: int, cache: VectorCache, model: str) -> tuple[list[int], str | None]:
        """Fill the cache with what was scored before an offset, and order the ring.

        Args:
            next_offset: the record that the lane starts with.
            cache: empty.
            model: the identity of the embedder; vectors of another one are never compared with its own.

        Returns:
            the offsets of the entries that fell out, to be tombstoned, and why some were no longer valid:
            ``rewind`` (the raw topic was read far beyond here before), ``model``, or None.
        """
        entries = {offset: decode_entry(value) for offset, value in sorted(self._changelog.entries.items())}
        reason = None
        # What can be delivered again now is what could be when it was written, by another setting perhaps.
        window_then = entries[max(entries)].window if entries else 0
        self._kept = max(self._window, window_then)
        if entries and max(entries) >= next_offset + window_then:
            entries = {offset: entry for offset, entry in entries.items() if offset < next_offset}
            reason = "rewind"
        foreign = [
            o for o, entry in entries.items() if o < next_offset and entry.vector and entry.model != model
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

    def get(self, offset: int) -> Entry | None:
        """Return the entry of a source offset, if there is one."""
        value = self._changelog.entries.get(offset)
        return None if value is None else decode_entry(value)

    def put(self, entry: Entry) -> tuple[bytes, list[int]]:
        """Add an entry, or replace the one of its offset.

        Returns:
            the entry's bytes for the changelog, and the offsets of the entries that fell out of the ring.
        """
        value = _encode(replace(entry, window=self._window))
        known = entry.offset in self._changelog.entries
        self._changelog.entries[entry.offset] = value
        fallen = [] if known else self._keep(entry)
        self._forget(fallen)
        return value, fallen

    def clear(self) -> list[int]:
        """Forget everything; returns the offsets to be tombstoned."""
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
