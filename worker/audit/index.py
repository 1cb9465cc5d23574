"""What outputs and changelog tell of each source offset."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from math import inf
from types import TracebackType
from typing import Self

import msgspec

from schemas import DeadLetterHeaders
from worker.errors import LedgerError
from worker.lane.ledger import Entry, Failure, decode_entry
from worker.lane.outputs import with_original_timestamp
from worker.lane.records import OutputRecord
from worker.settings import TopicSettings

_SOURCE = re.compile(r"(.+)/(\d{1,10})/(\d{1,19})", re.ASCII)


class Output(msgspec.Struct, array_like=True, frozen=True):
    """A record of an output topic, cut down to what tells whether it is right.

    Attributes:
        topic: where it is.
        partition: where it is; None for one that is expected wherever its key leads.
        timestamp_ms: its record's own, also where the output could not have it.
        key, value, headers: digests.
        says: the ledger entry that it was published from, as far as its own headers tell.
        cut: whether it is a dead letter whose value was cut.
    """

    topic: str
    partition: int | None
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: bytes
    says: Entry
    cut: bool = False

    @classmethod
    def of(cls, record: OutputRecord, says: Entry, *, cut: bool) -> Self:
        """Cut a record down."""
        record = with_original_timestamp(record)
        return cls(
            topic=record.topic,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            key=digest(record.key),
            value=digest(record.value),
            headers=digest(
                msgspec.msgpack.encode([(_encoded(name), value) for name, value in record.headers])
            ),
            says=says,
            cut=cut,
        )

    def unlike(self, other: Output, *, has_time: bool) -> list[str]:
        """Name what repeats share and these two do not; their time only where their record has one."""
        names = ["topic", "key", "value", *(["timestamp_ms"] if has_time else []), "headers"]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a source offset.

    Attributes:
        offset: of the raw topic.
        outputs: in each topic's order.
        entries: every one that is still in the changelog, in its order, tombstoned or not.
    """

    offset: int
    outputs: list[Output] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


class SourceIndex:
    """Gathers outputs and ledger entries by source, in a temporary file, so memory stays flat.

    A context manager; the file goes when it is left.

    Args:
        topics: their names.
        partitions: the raw topic's count.
        window: how many offsets may be delivered again.

    Attributes:
        foreign: how many outputs name no source in the raw topic.
    """

    def __init__(self, topics: TopicSettings, partitions: int, window: int) -> None:
        self.foreign = 0
        self._topics = topics
        self._partitions = partitions
        self._window = window
        self._first: dict[tuple[str, int | None, int], int] = {}
        self._newest: dict[tuple[str, int | None, int], int] = {}
        self._went_back: dict[int, set[int]] = {}
        # An empty name makes a file that is private, and deleted when it is closed.
        self._db = sqlite3.connect("", check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("CREATE TABLE known (partition INT, source INT, is_output INT, value BLOB)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._db.close()

    def add_outputs(self, records: Iterable[OutputRecord]) -> None:
        """Take in records of an output topic's partition, in their order."""
        self._insert(map(self._row, records))

    def add_entries(self, partition: int, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take in keys and values of a partition of the changelog, in their order.

        Raises:
            LedgerError: a key is no source offset: something else writes to the topic.
        """
        # A tombstone only says that the ledger needs an entry no longer; it happened all the same.
        self._insert(
            (partition, _source_offset(key, partition), False, value)
            for key, value in records
            if value is not None
        )

    def complete(self) -> None:
        """Make it fast to read; call once everything is in."""
        self._db.execute("CREATE INDEX by_source ON known (partition, source)")

    def known(self, partition: int) -> Iterator[Known]:
        """Yield what is known of each source offset of a partition, in order.

        Raises:
            LedgerError: the changelog holds what is no entry.
        """
        rows = self._db.execute(
            "SELECT source, is_output, value FROM known WHERE partition = ? ORDER BY source, rowid",
            (partition,),
        )
        for offset, group in groupby(rows, key=lambda row: int(row[0])):
            known = Known(offset)
            for _, is_output, value in group:
                if is_output:
                    known.outputs.append(msgspec.msgpack.decode(value, type=Output))
                else:
                    known.entries.append(_entry(value, partition, offset))
            yield known

    def first_scored(self, partition: int) -> Entry | None:
        """Return the oldest entry of a scored record that is still there."""
        rows = self._db.execute(
            "SELECT source, value FROM known WHERE partition = ? AND NOT is_output ORDER BY source, rowid",
            (partition,),
        )
        entries = (_entry(value, partition, offset) for offset, value in rows)
        return next((entry for entry in entries if entry.score is not None), None)

    def rewinds(self, partition: int) -> list[range]:
        """Return where a partition was scored anew, after a rewind to further back than the window.

        There an output topic goes back that far, and every source of a stretch as long has been published
        more than once; a single record out of place is no rewind.
        """
        went_to = self._went_back.get(partition)
        if went_to is None:
            return []
        rows = self._db.execute(
            "SELECT source, COUNT(*) FROM known WHERE partition = ? AND is_output "
            "GROUP BY source ORDER BY source",
            (partition,),
        )
        rewinds = []
        for is_repeated, group in groupby(rows, key=lambda row: row[1] > 1):
            sources = [int(source) for source, _ in group]
            stretch = range(sources[0], sources[-1] + 1)
            if is_repeated and len(stretch) > self._window and any(source in stretch for source in went_to):
                rewinds.append(stretch)
        return rewinds

    def first_source(self, topic: str, output_partition: int, partition: int) -> float:
        """Return the first source of a raw partition in an output partition; infinity without any."""
        return self._first.get((topic, output_partition, partition), inf)

    def _insert(self, rows: Iterable[tuple[int, int, bool, bytes] | None]) -> None:
        self._db.executemany("INSERT INTO known VALUES (?, ?, ?, ?)", (row for row in rows if row))

    def _row(self, record: OutputRecord) -> tuple[int, int, bool, bytes] | None:
        read = self._read_dead_letter if record.topic == self._topics.dead_letter else self._read_scored
        found = read(with_original_timestamp(record))
        if found is None or found[1].says.offset > sys.maxsize:
            self.foreign += 1
            return None
        partition, output = found
        self._note(record, partition, output.says.offset)
        return partition, output.says.offset, True, msgspec.msgpack.encode(output)

    def _read_scored(self, record: OutputRecord) -> tuple[int, Output] | None:
        # Ours come last, whatever the producer's are called.
        ours = {name: (value or b"").decode("utf-8", "backslashreplace") for name, value in record.headers}
        source = _SOURCE.fullmatch(ours.get("kp-source", ""))
        if source is None or source[1] != self._topics.raw or int(source[2]) >= self._partitions:
            return None
        says = Entry(
            int(source[3]),
            record.timestamp_ms,
            fingerprint=b"",
            decision="contribute" if record.topic == self._topics.contribute else "rejected",
            score=ours.get("kp-score", "").encode(),
            policy=ours.get("kp-policy", ""),
        )
        return int(source[2]), Output.of(record, says, cut=False)

    def _read_dead_letter(self, record: OutputRecord) -> tuple[int, Output] | None:
        try:
            ours = DeadLetterHeaders.from_kafka(record.headers)
        except ValueError:
            return None
        if ours.topic != self._topics.raw or ours.partition >= self._partitions:
            return None
        failure = Failure(ours.reason, ours.exception, ours.message)
        says = Entry(ours.offset, record.timestamp_ms, fingerprint=b"", failure=failure)
        return ours.partition, Output.of(record, says, cut=ours.value_length is not None)

    def _note(self, record: OutputRecord, partition: int, source: int) -> None:
        """Follow where the sources in an output partition begin, and where they go back too far."""
        place = record.topic, record.partition, partition
        self._first.setdefault(place, source)
        newest = self._newest.get(place, source)
        if source <= newest - self._window:
            self._went_back.setdefault(partition, set()).add(source)
            newest = source
        self._newest[place] = max(newest, source)


def _source_offset(key: bytes | None, partition: int) -> int:
    try:
        return int(key or b"")
    except ValueError:
        raise LedgerError(f"the changelog's partition {partition} has a key that is no offset") from None


def _entry(value: bytes, partition: int, offset: int) -> Entry:
    try:
        return decode_entry(value)
    except msgspec.MsgspecError as error:
        raise LedgerError(f"the changelog's entry of {partition}/{offset} cannot be read: {error}") from None


def digest(value: bytes | None) -> bytes:
    """Return 8 bytes that identify a value; none for null."""
    return b"" if value is None else blake2b(value, digest_size=8).digest()


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
