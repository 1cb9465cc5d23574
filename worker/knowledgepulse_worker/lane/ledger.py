"""A partition's ledger: the vectors that its next records are compared with, and the last scores.

The ledger is stored in the changelog topic, one partition for each of the raw topic. It has at most
``cache.max_elements`` entries, and a new entry takes the key of the oldest. An entry is written in the
transaction that publishes its record and commits the record's offset, so the ledger always agrees with the
committed offset: a successor scores the next record as an undisturbed worker would. Each transaction also
writes the position to the changelog, where it outlives the group's own.

The last scores of a domain, among which a share ranks a trace, are one record, which each transaction with
more of them replaces. So they outlast the vectors, however rare a domain is, and cost little without an
embedder, when there are no entries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from knowledgepulse_kafka.records import Position
from knowledgepulse_worker.errors import LedgerError
from knowledgepulse_worker.records.ledger_records import (
    POSITION_KEY,
    SCORES_PREFIX,
    Entry,
    decode_entry,
    decode_position,
    decode_scores,
    encode_entry,
    read_record,
    scores_domain,
)
from knowledgepulse_worker.scoring import LastScores

CutReason = Literal["recreated", "rewind", "model"]
"""Why ledger entries became invalid."""


class Changelog:
    """The committed state of a changelog partition, as bytes.

    Args:
        partition: the partition number, for error messages.

    Attributes:
        entries: the entries by key.
        scores: the last scores of domains by key.
        position: that in the raw topic; None if no transaction has written it.
        begin: the first offset that the topic held at the last recovery.
        end: the offset behind the last record that was read or written; None before the first.
    """

    def __init__(self, partition: int) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.scores: dict[bytes, bytes] = {}
        self.position: Position | None = None
        self.begin = 0
        self.end: int | None = None
        self._partition = partition

    def has_lost(self, held: range) -> bool:
        """Return whether offsets that were read are gone, given those that the topic holds.

        The topic was created again, or an unclean leader election lost its end.
        """
        return self.end is not None and self.end > held.stop

    def lacks_entries(self, max_elements: int) -> bool:
        """Return whether brokers have deleted entries of a cache, as with ``cleanup.policy=delete``.

        Compaction never moves a topic's beginning, and new entries take the lowest numbers as their keys. A
        cache that is full lacks nothing, even if deleted entries or a smaller size have left gaps.
        """
        if not self.begin or len(self.entries) >= max_elements:
            return False
        return any(b"%d" % number not in self.entries for number in range(len(self.entries)))

    def unread(self, held: range) -> range:
        """Return the offsets to read on from, given those that the topic holds."""
        return held if self.end is None else range(max(self.end, held.start), held.stop)

    def apply(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a record that was read from the topic; a null value deletes the entry.

        Raises:
            InputError: no worker can have written the record, which changes nothing.
            LedgerError: a newer worker has written the record.
        """
        try:
            read_record(key or b"", value)
        except LedgerError as error:
            raise LedgerError(f"changelog partition {self._partition}, offset {offset}: {error}") from error
        self.committed(offset, key or b"", value)

    def committed(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Apply a record that a transaction of this worker has committed."""
        if key == POSITION_KEY:
            self.position = None if value is None else decode_position(value)
        else:
            records = self.scores if key.startswith(SCORES_PREFIX) else self.entries
            if value is None:
                records.pop(key, None)
            else:
                records[key] = value
        self.end = offset + 1

    def newest_before(self, offset: int) -> Entry | None:
        """Return the entry with the highest source offset below this one, if any."""
        entries = (decode_entry(value) for value in self.entries.values())
        earlier = (entry for entry in entries if entry.offset < offset)
        return max(earlier, key=lambda entry: entry.offset, default=None)


@dataclass(frozen=True, slots=True)
class LedgerContent:
    """The entries and last scores that are valid for a lane.

    Attributes:
        entries: the valid entries by key, in the order of their offsets.
        scores: the valid last scores by domain, in the order of their offsets.
        obsolete: the keys of all others, which the lane deletes.
        reason: why some were invalid; None if they all were valid.
    """

    entries: dict[bytes, Entry]
    scores: dict[str, LastScores]
    obsolete: list[bytes]
    reason: CutReason | None


def valid_content(
    values: Mapping[bytes, bytes],
    scores: Mapping[bytes, bytes],
    *,
    next_offset: int,
    topic_id: bytes,
    model: str,
    dimensions: int,
    max_elements: int,
) -> LedgerContent:
    """Return the entries that a lane's records are compared with, and the scores they are ranked with.

    - If the topic was recreated, the entries of the former topic are cut.
    - If the group was set back, the entries at its position and after it are cut, since their records follow.
    - If the embedder's identity changed, the entries with another identity are cut.
    - Last scores are cut for the same reasons, those of a domain together.
    - If ``max_elements`` was reduced, the newest entries remain. If it was raised, all of them do.

    Args:
        values: the changelog's entries by key.
        scores: the changelog's last scores by key.
        next_offset: the offset of the lane's first record.
        topic_id: the raw topic's id; entries of another topic are invalid. Empty if unknown.
        model: the embedder's identity; vectors of another identity are invalid.
        dimensions: the length of its vectors.
        max_elements: the number of entries; if there are more, the oldest are dropped.
    """
    entries, reason = _valid_entries(values, next_offset, topic_id, model, dimensions)
    for key in list(entries)[: max(0, len(entries) - max_elements)]:
        del entries[key]
    obsolete = [key for key in values if key not in entries]
    valid, cut_scores = _valid_scores(scores, next_offset, topic_id, model)
    reason = next(reversed(cut_scores.values()), reason)
    return LedgerContent(entries, valid, [*obsolete, *cut_scores], reason)


def _valid_entries(
    values: Mapping[bytes, bytes], next_offset: int, topic_id: bytes, model: str, dimensions: int
) -> tuple[dict[bytes, Entry], CutReason | None]:
    """Return the valid entries, oldest first, and why others are cut."""
    decoded = ((key, decode_entry(value)) for key, value in values.items())
    entries = dict(sorted(decoded, key=lambda item: item[1].offset))
    reason: CutReason | None = None

    def cut(why: CutReason | None, invalid: Callable[[Entry], bool]) -> None:
        nonlocal reason
        for key in [key for key, entry in entries.items() if invalid(entry)]:
            reason = why or reason
            del entries[key]

    if topic_id and any(entry.topic_id not in (b"", topic_id) for entry in entries.values()):
        cut("recreated", lambda entry: entry.topic_id != topic_id)
    cut("rewind", lambda entry: entry.offset >= next_offset)
    cut(None, lambda entry: entry.vector is None)  # of an earlier release
    cut("model", lambda entry: entry.model != model or len(entry.vector or b"") != 4 * dimensions)
    return entries, reason


def _valid_scores(
    scores: Mapping[bytes, bytes], next_offset: int, topic_id: bytes, model: str
) -> tuple[dict[str, LastScores], dict[bytes, CutReason]]:
    """Return the last scores by domain, oldest first, and why those of the other keys are cut."""
    valid: dict[str, LastScores] = {}
    cut: dict[bytes, CutReason] = {}
    kept = ((key, decode_scores(value)) for key, value in scores.items())
    for key, stored in sorted(kept, key=lambda item: item[1].offset):
        if topic_id and stored.topic_id not in (b"", topic_id):
            cut[key] = "recreated"
        elif stored.offset >= next_offset:
            cut[key] = "rewind"
        elif stored.model != model:
            cut[key] = "model"
        else:
            valid[scores_domain(key)] = stored.last
    return valid, cut


@dataclass
class EntryKeys:
    """Assigns the keys of a lane's entries: a new entry takes the key of the oldest.

    Args:
        max_elements: the number of entries.
        keys: the keys of the present entries, oldest first.
    """

    max_elements: int
    keys: deque[bytes] = field(default_factory=deque)

    def __post_init__(self) -> None:
        used = set(self.keys)
        self._unused = (key for number in count() if (key := b"%d" % number) not in used)

    def put(self, entry: Entry) -> tuple[bytes, bytes]:
        """Add an entry; return its key and its bytes for the changelog."""
        is_full = len(self.keys) >= self.max_elements
        key = self.keys.popleft() if is_full else next(self._unused)
        self.keys.append(key)
        return key, encode_entry(entry)
