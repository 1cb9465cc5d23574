"""An index of outputs and ledger entries by source offset."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby, islice, repeat
from math import inf
from types import TracebackType
from typing import Literal, Self

import msgspec

from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_schemas import DeadLetterHeaders
from knowledgepulse_schemas.dead_letter import Form
from knowledgepulse_worker.policy import FORMER_DIGEST_LENGTH, ROUTES
from knowledgepulse_worker.records.ledger_records import Entry, Failure, decode_entry
from knowledgepulse_worker.records.output_headers import worker_headers
from knowledgepulse_worker.records.outputs import with_original_timestamp
from knowledgepulse_worker.settings import RecordSettings, TopicSettings
from knowledgepulse_worker.tools.common.base64_headers import has_base64_headers

_FORMER_REPEATS = 512
"""The number of offsets by which outputs of releases before 0.3.0 could repeat after a crash."""

_SOURCE = re.compile(r"(.+)/(\d{1,10})/(\d{1,19})", re.ASCII)


class Output(msgspec.Struct, array_like=True, frozen=True):
    """A record of an output topic, reduced to the data that the checks need.

    Attributes:
        partition: None in an expected output if the key determines the partition.
        timestamp_ms: the raw record's timestamp, even if the output has a different one.
        key: a hash of the key.
        value: a hash of the value.
        headers: a hash of the headers.
        says: the ledger entry from which it was published, reconstructed from its headers.
        truncated: whether it is a dead letter with a truncated value.
        in_transaction: whether it was written in a transaction, as every output since 0.3.0.
        form: what a dead letter says that its value is.
        unwrap: the steps that led to the trace, or could lead to one in a dead letter.
        is_bare: whether it says that it is the trace alone, which was wrapped.
    """

    topic: str
    partition: int | None
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: bytes
    says: Entry
    truncated: bool = False
    in_transaction: bool = True
    form: Form | None = None
    unwrap: tuple[str, ...] = ()
    is_bare: bool = False

    @property
    def records(self) -> RecordSettings:
        """How values were read, and what outputs held, when it was made."""
        output: Literal["same", "bare"] = "bare" if self.is_bare else "same"
        return RecordSettings.model_construct(unwrap=self.unwrap, output=output)

    @classmethod
    def of(cls, record: OutputRecord, says: Entry, *, truncated: bool) -> Self:
        """Reduce a record."""
        record = with_original_timestamp(record)
        return cls(
            topic=record.topic,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            key=short_hash(record.key),
            value=short_hash(record.value),
            headers=short_hash(msgspec.msgpack.encode([_comparable(*header) for header in record.headers])),
            says=says,
            truncated=truncated,
        )

    def differences(self, other: Output, *, has_time: bool) -> list[str]:
        """Name the parts in which repeats must agree but these two do not.

        ``has_time``: whether their record has a timestamp; otherwise theirs may differ.
        """
        names = ["topic", "key", "value", *(["timestamp_ms"] if has_time else []), "headers"]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


@dataclass(frozen=True, slots=True)
class OffsetRecords:
    """The outputs and ledger entries of an offset of the raw topic.

    Attributes:
        outputs: the outputs, in the order of each topic.
        entries: the entries that are still in the changelog, in its order, including tombstoned ones.
    """

    offset: int
    outputs: list[Output] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


class SourceIndex:
    """Index outputs and ledger entries by source in a temporary file, so that memory use stays flat.

    A context manager, which deletes the file on exit.

    ``partitions``: of the raw topic.
    """

    def __init__(self, topics: TopicSettings, partitions: int) -> None:
        self.foreign = 0  # number of outputs without a source in the raw topic
        self.base64: Counter[str] = Counter()  # those of them whose headers are base64, by topic
        self._topics = topics
        self._decisions = {topics.of(route): route.name for route in ROUTES.values()}
        self._partitions = partitions
        self._first: dict[tuple[str, int | None, int], int] = {}
        self._newest: dict[tuple[str, int | None, int], int] = {}
        self._rewound_to: dict[int, set[int]] = {}
        # An empty name creates a private file that is deleted when it is closed.
        self._db = sqlite3.connect("", check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("CREATE TABLE known (partition INT, source INT, is_output INT, value BLOB)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._db.close()

    def add_outputs(
        self, records: Iterable[OutputRecord], in_transaction: Iterable[bool] = repeat(True)
    ) -> None:
        """Add records of a partition of an output topic, in order, and whether transactions wrote them."""
        self._insert(map(self._row, records, in_transaction))

    def add_entries(self, partition: int, entries: Iterable[tuple[Entry, bytes]]) -> None:
        """Add the entries of a partition of the changelog with their bytes, in order."""
        self._insert((partition, entry.offset, False, value) for entry, value in entries)

    def complete(self) -> None:
        """Build the look-up index; call after everything was added."""
        self._db.execute("CREATE INDEX by_source ON known (partition, source)")

    def known(self, partition: int) -> Iterator[OffsetRecords]:
        """Yield the outputs and entries of a partition by source offset, in order."""
        rows = self._db.execute(
            "SELECT source, is_output, value FROM known WHERE partition = ? ORDER BY source, rowid",
            (partition,),
        )
        for offset, group in groupby(rows, key=lambda row: int(row[0])):
            known = OffsetRecords(offset)
            for _, is_output, value in group:
                if is_output:
                    known.outputs.append(msgspec.msgpack.decode(value, type=Output))
                else:
                    known.entries.append(decode_entry(value))
            yield known

    def entries_from(self, partition: int, max_elements: int) -> float:
        """Return the offset from which on every scored record must still have an entry.

        Compaction takes entries away once they have left the ledger, which holds the ``max_elements`` last
        scored records.
        """
        scored = dict.fromkeys(entry.offset for entry in self._scored(partition, "source DESC"))
        return min(islice(scored, max_elements), default=inf)

    def first_scored(self, partition: int) -> Entry | None:
        """Return the oldest remaining entry of a scored record."""
        return next(self._scored(partition, "source, rowid"), None)

    def _scored(self, partition: int, order: Literal["source DESC", "source, rowid"]) -> Iterator[Entry]:
        """Yield the remaining entries of scored records."""
        rows = self._db.execute(
            f"SELECT source, value FROM known WHERE partition = ? AND NOT is_output ORDER BY {order}",  # noqa: S608 - ours
            (partition,),
        )
        entries = (decode_entry(value) for _, value in rows)
        return (entry for entry in entries if entry.score is not None)

    def rewinds(self, partition: int) -> list[range]:
        """Return the offset ranges that were scored again because the group was set back.

        In such a range, the sources in an output topic jump back further than a release before 0.3.0 could
        repeat outputs, and every source was published more than once. A single record out of order is not a
        rewind.
        """
        rewound_to = self._rewound_to.get(partition)
        if rewound_to is None:
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
            if (
                is_repeated
                and len(stretch) > _FORMER_REPEATS
                and any(source in stretch for source in rewound_to)
            ):
                rewinds.append(stretch)
        return rewinds

    def first_source(self, topic: str, output_partition: int, partition: int) -> float:
        """Return the first source of a raw partition in an output partition; infinity if there is none."""
        return self._first.get((topic, output_partition, partition), inf)

    def _insert(self, rows: Iterable[tuple[int, int, bool, bytes] | None]) -> None:
        self._db.executemany("INSERT INTO known VALUES (?, ?, ?, ?)", (row for row in rows if row))

    def _row(self, record: OutputRecord, in_transaction: bool) -> tuple[int, int, bool, bytes] | None:
        read = self._read_dead_letter if record.topic == self._topics.dead_letter else self._read_scored
        partition_output = read(with_original_timestamp(record))
        if partition_output is None or partition_output[1].says.offset > sys.maxsize:
            self.foreign += 1
            self.base64[record.topic] += has_base64_headers(record.headers)
            return None
        partition, output = partition_output
        self._note(record, partition, output.says.offset)
        output = msgspec.structs.replace(output, in_transaction=in_transaction)
        return partition, output.says.offset, True, msgspec.msgpack.encode(output)

    def _read_scored(self, record: OutputRecord) -> tuple[int, Output] | None:
        # The worker's headers are the last ones, whatever names the producer's have.
        ours = {name: (value or b"").decode("utf-8", "backslashreplace") for name, value in record.headers}
        source = _SOURCE.fullmatch(ours.get("kp-source", ""))
        if source is None or source[1] != self._topics.raw or int(source[2]) >= self._partitions:
            return None
        says = Entry(
            int(source[3]),
            record.timestamp_ms,
            decision=self._decisions[record.topic],
            score=ours.get("kp-score", "").encode(),
            policy=ours.get("kp-policy", ""),
        )
        output = Output.of(record, says, truncated=False)
        headers = worker_headers(record.headers)
        if headers is not None and (wrapping := headers.wrapping) is not None:
            is_bare = wrapping.output == "bare"
            output = msgspec.structs.replace(output, unwrap=wrapping.steps, is_bare=is_bare)
        return int(source[2]), output

    def _read_dead_letter(self, record: OutputRecord) -> tuple[int, Output] | None:
        try:
            ours = DeadLetterHeaders.from_kafka(record.headers)
        except ValueError:
            return None
        if ours.topic != self._topics.raw or ours.partition >= self._partitions:
            return None
        failure = Failure(ours.reason, ours.exception, ours.message)
        says = Entry(ours.offset, record.timestamp_ms, failure=failure)
        output = Output.of(record, says, truncated=ours.value_length is not None)
        unwrap = tuple((ours.unwrap or "").split())
        return ours.partition, msgspec.structs.replace(output, form=ours.form, unwrap=unwrap)

    def _note(self, record: OutputRecord, partition: int, source: int) -> None:
        """Track the first source in an output partition, and jumps back beyond former repeats."""
        stream = record.topic, record.partition, partition
        self._first.setdefault(stream, source)
        newest = self._newest.get(stream, source)
        if source <= newest - _FORMER_REPEATS:
            self._rewound_to.setdefault(partition, set()).add(source)
            newest = source
        self._newest[stream] = max(newest, source)


def short_hash(value: bytes | None) -> bytes:
    """Return an 8-byte hash of a value; empty for null."""
    return b"" if value is None else blake2b(value, digest_size=8).digest()


def _comparable(name: str, value: bytes | None) -> tuple[bytes, bytes | None]:
    """Return a header as it is compared: a policy by the digits that releases up to 0.3.0 wrote."""
    if name == "kp-policy" and value is not None:
        value = value[:FORMER_DIGEST_LENGTH]
    return name.encode("utf-8", "surrogateescape"), value
