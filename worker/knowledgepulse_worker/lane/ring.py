"""A partition's ledger: outcomes by source offset, and the vectors for novelty.

The ledger is stored in the changelog topic, one partition for each of the raw topic, keyed by source offset
in decimal. It makes scores replay-exact: a redelivered record is published according to its entry, and the
cache that a new record sees is rebuilt from the entries before it.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Literal

import msgspec
from msgspec.structs import replace

from knowledgepulse_worker.errors import LedgerError
from knowledgepulse_worker.records.entry import (
    ENTRY_VERSION,
    Entry,
    decode_entry,
    decode_vector,
    encode_entry,
    problem_of,
)
from knowledgepulse_worker.records.record import UNREAD_FINGERPRINT, RawRecord
from knowledgepulse_worker.scoring import VectorCache

# After a write by another process, confirmed records pile up until the next recovery.
_MAX_AHEAD = 1_000

CutReason = Literal["recreated", "rewind", "model"]
"""Why ledger entries became invalid."""


class Changelog:
    """One partition's entries, as bytes: the state of the changelog topic at a position.

    What a lane has put into its :class:`Ledger` is not here before the broker has confirmed it: if the
    partition is lost first, and then comes back, the next lane must not take it for written.

    Args:
        partition: the partition number, for error messages.
    """

    def __init__(self, partition: int) -> None:
        self.entries: dict[int, bytes] = {}
        self.position: int | None = None
        self._partition = partition
        self._ahead: dict[int, tuple[int, bytes | None]] = {}

    def apply(self, changelog_offset: int, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the changelog topic; a null value is a tombstone.

        Raises:
            LedgerError: the key is not a source offset, or the value not an entry that this version reads.
        """
        try:
            offset = int(key or b"")
        except ValueError:
            problem = f"key {(key or b'')[:40]!r} is not an offset"
            raise self._unreadable(changelog_offset, problem) from None
        if value is not None:
            self._require_readable(changelog_offset, offset, value)
        self._set(offset, value)
        self.position = changelog_offset

    def _require_readable(self, changelog_offset: int, offset: int, value: bytes) -> None:
        try:
            entry = decode_entry(value)
        except msgspec.MsgspecError:
            raise self._unreadable(changelog_offset, "value is not a ledger entry") from None
        if entry.version > ENTRY_VERSION:
            raise self._unreadable(
                changelog_offset,
                f"entry has format version {entry.version}, written by a newer worker; this one reads up to "
                f"version {ENTRY_VERSION}",
            )
        if entry.offset != offset:
            raise self._unreadable(
                changelog_offset, f"key is {offset}, but the entry is for offset {entry.offset}"
            )
        if problem := problem_of(entry):
            raise self._unreadable(changelog_offset, problem)

    def _unreadable(self, changelog_offset: int, problem: str) -> LedgerError:
        return LedgerError(f"changelog partition {self._partition}, offset {changelog_offset}: {problem}")

    def newest_before(self, offset: int) -> Entry | None:
        """Return the entry with the highest source offset below this one, if any."""
        known = max((known for known in self.entries if known < offset), default=None)
        return None if known is None else decode_entry(self.entries[known])

    def confirmed(self, changelog_offset: int, offset: int, value: bytes | None) -> None:
        """Take a record of ours that the broker has confirmed.

        Records are applied in the topic's order, whatever the order of the calls, and only up to a record of
        another process: the next recovery reads it, and those behind it.

        Args:
            changelog_offset: its offset in the changelog topic.
            offset: its key, a source offset.
            value: the entry; None for a tombstone.
        """
        position = -1 if self.position is None else self.position
        if changelog_offset > position and len(self._ahead) < _MAX_AHEAD:
            self._ahead[changelog_offset] = offset, value
        while position + 1 in self._ahead:
            position += 1
            self._set(*self._ahead.pop(position))
            self.position = position

    def _set(self, offset: int, value: bytes | None) -> None:
        if value is None:
            self.entries.pop(offset, None)
        else:
            self.entries[offset] = value


class Ledger:
    """The ring of a partition's entries: the window, and the last ``max_elements`` scored entries before it.

    The window covers all offsets that can be redelivered. So a redelivered record always finds its entry, and
    a new record always finds every vector that it must be compared with.

    It belongs to one lane, and runs ahead of the broker: a record's entry is here once the record is scored.

    Args:
        changelog: the partition's confirmed entries, which :meth:`open` starts from.
        max_elements: the number of scored records that novelty compares with.
        window: the number of most recent offsets that can be redelivered.
    """

    def __init__(self, changelog: Changelog, max_elements: int, window: int) -> None:
        self._changelog = changelog
        self._max_elements = max_elements
        self._window = window
        self._effective_window = window
        self._entries: dict[int, bytes] = {}
        self._recent: deque[tuple[int, bool]] = deque()
        self._older: deque[int] = deque()

    def open(
        self, next_offset: int, cache: VectorCache, model: str, topic_id: bytes = b""
    ) -> tuple[list[int], CutReason | None]:
        """Rebuild the ring from the changelog, and fill the cache with the vectors scored before an offset.

        Args:
            next_offset: the offset of the lane's first record.
            cache: an empty cache.
            model: the embedder's identity; vectors of another identity are cut.
            topic_id: the raw topic's id; entries of another topic are cut. Empty if unknown.

        Returns:
            the offsets of the evicted entries, to be tombstoned, and why entries were invalid:
            ``recreated`` (a new topic of the same name), ``rewind`` (the group was reset to before the
            window), ``model`` (another embedder), or None.
        """
        values = dict(self._changelog.entries)  # in one step: the event loop may go on beside this
        entries = {offset: decode_entry(value) for offset, value in sorted(values.items())}
        reason: CutReason | None = None
        if topic_id and any(entry.topic_id not in (b"", topic_id) for entry in entries.values()):
            entries = {offset: entry for offset, entry in entries.items() if entry.topic_id == topic_id}
            reason = "recreated"
        # The window in force when the entries were written bounds what can be redelivered now.
        written_window = entries[max(entries)].window if entries else 0
        self._effective_window = max(self._window, written_window)
        if entries and max(entries) >= next_offset + written_window:
            entries = {offset: entry for offset, entry in entries.items() if offset < next_offset}
            reason = "rewind"
        foreign = {
            o
            for o, entry in entries.items()
            if entry.vector
            and (len(entry.vector) != 4 * cache.dimensions if entry.model == model else o < next_offset)
        }
        if foreign:
            entries = {offset: entry for offset, entry in entries.items() if offset not in foreign}
            reason = "model"
        evicted = [offset for offset in values if offset not in entries]
        self._entries = {offset: values[offset] for offset in entries}
        for entry in entries.values():
            evicted += self._append(entry)
            if entry.offset < next_offset and entry.vector:
                add_to_cache(cache, entry)
        self._forget(evicted)
        return evicted, reason

    def find(self, record: RawRecord) -> Entry | None:
        """Return a redelivered record's entry; None for a new record, or another one at a known offset."""
        value = self._entries.get(record.offset)
        entry = None if value is None else decode_entry(value)
        if entry is None:
            return None
        # A record unreadable then or now is still the same record: limits.batch_bytes was changed.
        fingerprints = {entry.fingerprint, record.fingerprint}
        if len(fingerprints) > 1 and UNREAD_FINGERPRINT not in fingerprints:
            return None
        is_same_topic = not (entry.topic_id and record.topic_id) or entry.topic_id == record.topic_id
        return entry if is_same_topic else None

    def between(self, start: int, stop: int) -> list[Entry]:
        """Return the entries from one offset up to another, in the order of their offsets."""
        offsets, entries = range(start, stop), self._entries
        few = offsets if len(offsets) < len(entries) else sorted(entries)
        return [decode_entry(entries[one]) for one in few if one in offsets and one in entries]

    def put(self, entry: Entry) -> tuple[bytes, list[int]]:
        """Add an entry, or replace the one at its offset.

        Returns:
            the entry's bytes for the changelog, and the offsets of the evicted entries.
        """
        value = encode_entry(replace(entry, window=self._window, version=ENTRY_VERSION))
        known = entry.offset in self._entries
        self._entries[entry.offset] = value
        evicted = [] if known else self._append(entry)
        self._forget(evicted)
        return value, evicted

    def clear(self) -> list[int]:
        """Remove all entries; return the offsets to tombstone."""
        evicted = list(self._entries)
        self._recent.clear()
        self._older.clear()
        self._entries.clear()
        return evicted

    def __contains__(self, offset: int) -> bool:
        return offset in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def _append(self, entry: Entry) -> list[int]:
        evicted: list[int] = []
        insort(self._recent, (entry.offset, entry.vector is not None))
        while self._recent[0][0] <= self._recent[-1][0] - self._effective_window:
            offset, has_vector = self._recent.popleft()
            if has_vector:
                self._older.append(offset)
            else:
                evicted.append(offset)
        while len(self._older) > self._max_elements:
            evicted.append(self._older.popleft())
        return evicted

    def _forget(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._entries.pop(offset, None)


def add_to_cache(cache: VectorCache, entry: Entry) -> None:
    """Add a scored entry's vector to a novelty cache."""
    if entry.vector is not None:
        cache.add(decode_vector(entry.vector), id=entry.trace_id, at=entry.timestamp_ms / 1000)
