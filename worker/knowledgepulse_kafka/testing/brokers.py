"""Brokers, which lead the logs of partitions, and topics that are deleted and recreated."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumber,
    UnknownTopicOrPartitionError,
)

from knowledgepulse_kafka.records import NO_TIMESTAMP, UNTIMED, Headers, OutputRecord
from knowledgepulse_kafka.refused_record import InvalidRecord
from knowledgepulse_kafka.testing.group import Group, Place
from knowledgepulse_kafka.testing.network import Network, Reply
from knowledgepulse_kafka.testing.transactions import Transaction, Transactions
from knowledgepulse_kafka.testing.virtual_time import EPOCH

FETCH_WAIT = 2.0
QUOTA_WINDOW = 1.0
"""The seconds whose bytes a producer may send at once."""
_Connection: TypeAlias = tuple[int, str, int]


class Stored(NamedTuple):
    """A record in a log; ``is_data`` is false for markers and aborted records, which consumers never see."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    is_data: bool = True
    epoch: int = 0


class Batch(list[OutputRecord]):
    """A batch of a partition.

    Attributes:
        sequence: the number of records that were sent to the partition before it; -1 until it is sent.
    """

    def __init__(self, records: Iterable[OutputRecord]) -> None:
        super().__init__(records)
        self.sequence = -1


class Log:
    """The log of a partition.

    Attributes:
        written: every record ever appended, including deleted ones.
        open_from: the first offset of a stranger's open transaction, which contains all later records.
        transactions: the offsets of open transactions, by transactional id.
        epochs: the first offset of each leader epoch.
    """

    def __init__(self) -> None:
        self.records: list[Stored] = []
        self.written: list[Stored] = []
        self.begin = self.end = 0
        self.open_from: int | None = None
        self.transactions: dict[str, list[int]] = {}
        self.epochs = [0]
        self._readers: list[Callable[[], None]] = []
        self._batches: dict[tuple[str, int, int], int] = {}
        self._sequences: dict[str, dict[int, int]] = {}

    @property
    def stable_end(self) -> int:
        """The last stable offset, below which all transactions have ended."""
        end = self.end if self.open_from is None else self.open_from
        return min(end, *(offsets[0] for offsets in self.transactions.values())) if self.transactions else end

    def append(self, records: Sequence[OutputRecord], now_ms: int) -> int:
        """Append a batch; return its first offset."""
        first, times = self.end, {NO_TIMESTAMP: now_ms, UNTIMED: NO_TIMESTAMP}
        for record in records:
            time = times.get(record.timestamp_ms, record.timestamp_ms)
            epoch = len(self.epochs) - 1
            self._store(Stored(self.end, time, record.key, record.value, record.headers, epoch=epoch))
        return first

    def reached(self, transaction: Transaction, sequence: int) -> None:
        """Note a producer's batch, even one that is refused.

        The first batch of an unknown producer may have any number, as after a topic was created again.
        """
        epochs = self._sequences.setdefault(transaction.id, {})
        epochs.setdefault(transaction.epoch, 0 if epochs else sequence)

    def append_in(self, transaction: Transaction, records: Batch, now_ms: int) -> int:
        """Append a batch of a transaction unless the log already has it; return its first offset.

        Raises:
            OutOfOrderSequenceNumber: an earlier batch of the producer is missing.
        """
        batch = (transaction.id, transaction.epoch, records.sequence)
        if batch not in self._batches:
            sequences = self._sequences[transaction.id]
            if records.sequence != sequences[transaction.epoch]:
                raise OutOfOrderSequenceNumber
            sequences[transaction.epoch] += len(records)
            self._batches[batch] = self.append(records, now_ms)
            offsets = self.transactions.setdefault(transaction.id, [])
            offsets.extend(range(self.end - len(records), self.end))
        return self._batches[batch]

    def end_transaction(self, name: str, *, commits: bool) -> None:
        """Write the marker of a transaction; consumers never see the records of an aborted transaction."""
        offsets = set(self.transactions.pop(name, ()))
        if not commits:
            self._hide(lambda offset: offset in offsets)
        self.skip(1)

    def skip(self, offsets: int) -> None:
        """Skip offsets, as transaction markers and compaction do."""
        self.end += offsets
        self._wake()

    def _store(self, record: Stored) -> None:
        self.records.append(record)
        self.written.append(record)
        self.end = record.offset + 1
        self._wake()

    def abort(self) -> None:
        """Abort the open transaction, so that consumers never see its records."""
        if self.open_from is not None:
            first = self.open_from
            self._hide(lambda offset: offset >= first)
        self.commit()

    def _hide(self, is_aborted: Callable[[int], bool]) -> None:
        for log in (self.records, self.written):
            log[:] = [
                record._replace(is_data=record.is_data and not is_aborted(record.offset)) for record in log
            ]

    def commit(self) -> None:
        """End the open transaction with a marker."""
        self.open_from = None
        self.skip(1)

    def read(self, start: int, count: int) -> list[Stored]:
        """Return committed records from an offset on."""
        first, end = self._index(start), self._index(self.stable_end)
        return [*islice((record for record in self.records[first:end] if record.is_data), count)]

    def _index(self, offset: int) -> int:
        return bisect_left(self.records, offset, key=attrgetter("offset"))

    def committed(self) -> list[Stored]:
        """Return every record that was ever committed, including deleted ones."""
        still_open = {offset for offsets in self.transactions.values() for offset in offsets}
        end = self.end if self.open_from is None else self.open_from
        return [
            record
            for record in self.written
            if record.is_data and record.offset < end and record.offset not in still_open
        ]

    def begin_epoch(self) -> None:
        """Get another leader."""
        self.epochs.append(self.end)

    def truncate(self, offset: int) -> None:
        """Lose the records from an offset on, as when a leader is elected that lacks them."""
        for log in (self.records, self.written):
            log[:] = [record for record in log if record.offset < offset]
        self.end = offset
        self.epochs = [min(first, offset) for first in self.epochs]
        self.begin_epoch()

    def epoch_end(self, epoch: int) -> int:
        """Return the offset at which an epoch ends."""
        return self.epochs[epoch + 1] if epoch + 1 < len(self.epochs) else self.end

    def delete_before(self, offset: int) -> None:
        """Delete records, as retention does."""
        self.begin = max(self.begin, min(offset, self.stable_end))
        self.records = [record for record in self.records if record.offset >= self.begin]

    def compact(self, random: Random) -> None:
        """Keep only the last committed record of each key before some offset, and delete some tombstones."""
        until = random.randint(self.begin, self.stable_end)
        last = {record.key: record for record in self.records if record.is_data and record.offset < until}
        self.records = [
            record
            for record in self.records
            if record.offset >= until
            or (record is last.get(record.key) and (record.value is not None or random.random() < 0.7))
        ]

    def call_on_change(self, reader: Callable[[], None]) -> None:
        """Call a reader once as soon as there is more to read."""
        self._readers.append(reader)

    def _wake(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            reader()


@dataclass
class SimTopic:
    """A topic; a recreated topic has the same name but another id.

    Attributes:
        max_bytes: the largest accepted batch.
        max_age_ms: the maximum age of accepted timestamps; None accepts all.
        is_compacted: whether records without a key are refused.
    """

    name: str
    id: bytes
    logs: list[Log]
    max_bytes: int = 1_000_000
    max_age_ms: int | None = None
    is_compacted: bool = False

    @classmethod
    def new(cls, name: str, partitions: int, topic_id: bytes = b"", **limits: Any) -> SimTopic:
        """Return an empty topic; limits are its attributes."""
        return cls(name, topic_id, [Log() for _ in range(partitions)], **limits)


class Answer(NamedTuple):
    """The answer to a fetch for a partition; an error of None means success."""

    records: list[Stored]
    high: int
    stable: int
    next: int
    error: type[Exception] | None = None


@dataclass
class Cluster:
    """A cluster of brokers.

    Attributes:
        epoch: the brokers' clock at the loop's time 0.
        views: the topics that each broker knows; a broker may serve a deleted topic a while longer.
        leaders: the leader of each partition.
        fetch_wait: the seconds after which a fetch is answered even without records.
        fetches_by_id: whether topics can be fetched by id, as from Kafka 3.1 on.
        quota: the bytes per second that a producer may send to a broker (``producer_byte_rate``).
        starved: brokers without enough replicas; some of their partitions reject writes.
        transactions: the coordinator of transactions.
        on_append: called with topic, partition, first offset, records and writer after each append.
    """

    loop: asyncio.AbstractEventLoop
    random: Random
    network: Network
    group: Group
    count: int = 2
    epoch: float = EPOCH
    views: list[dict[str, SimTopic]] = field(default_factory=list)
    topics: dict[str, SimTopic] = field(default_factory=dict)
    leaders: dict[Place, int] = field(default_factory=dict)
    starved: set[int] = field(default_factory=set)
    quota: float | None = None
    fetch_wait: float = FETCH_WAIT
    fetches_by_id: bool = True
    transactions: Transactions = field(init=False)
    on_append: Callable[[SimTopic, int, int, Sequence[OutputRecord], str], None] = lambda *_: None

    def __post_init__(self) -> None:
        self.views = [{} for _ in range(self.count)]
        self._paid_until: dict[tuple[int, str], float] = {}
        self._muted_until: dict[_Connection, float] = {}
        self.transactions = Transactions(
            self.loop,
            self.random,
            self.network,
            self.group,
            self.count,
            leader=self.leaders.__getitem__,
            mark=lambda place, name, commits: (
                self.topics[place[0]].logs[place[1]].end_transaction(name, commits=commits)
            ),
        )
        self.group.is_pending = self.transactions.has_pending

    @property
    def now_ms(self) -> int:
        """The brokers' clock."""
        return int((self.epoch + self.loop.time()) * 1000)

    def create(self, topic: SimTopic, lag: float = 0.0) -> None:
        """Create or recreate a topic; the brokers notice it one after another."""
        self.topics[topic.name] = topic
        for partition in range(len(topic.logs)):
            self.leaders.setdefault((topic.name, partition), (partition + len(topic.name)) % self.count)
        for view in self.views:
            self.loop.call_later(self.random.random() * lag, self._notice, view, topic, context=Context())
            if not lag:
                view[topic.name] = topic

    def add_partitions(self, name: str, count: int) -> None:
        """Add empty partitions to a topic until it has this number."""
        logs = self.topics[name].logs
        for partition in range(len(logs), count):
            self.leaders.setdefault((name, partition), (partition + len(name)) % self.count)
            logs.append(Log())

    def _notice(self, view: dict[str, SimTopic], topic: SimTopic) -> None:
        if self.topics[topic.name] is topic:  # otherwise there is already a newer topic
            view[topic.name] = topic

    def leader(self, topic: str, partition: int) -> int:
        """Return a partition's leader, as a client would learn it now."""
        return self.leaders.get((topic, partition), 0)

    def move_leaders(self, away_from: int) -> None:
        """Elect new leaders for the partitions that this broker leads."""
        for (name, partition), broker in self.leaders.items():
            if broker == away_from:
                self.leaders[name, partition] = (broker + 1) % self.count
                if partition < len(logs := self.topics[name].logs):
                    logs[partition].begin_epoch()

    def find(self, broker: int, name: str, partition: int) -> SimTopic:
        """Return the topic as a broker knows it."""
        topic = self.views[broker].get(name)
        if topic is None or partition >= len(topic.logs):
            raise UnknownTopicOrPartitionError
        if self.leaders[name, partition] != broker:
            raise NotLeaderForPartitionError
        return topic

    def produce(
        self,
        broker: int,
        batches: Mapping[Place, Batch],
        writer: str,
        producer: tuple[str, int],
        reply: Reply,
    ) -> None:
        """Append batches to several partitions, and answer with the results and the throttle time (KIP-219).

        Each batch succeeds or fails independently. A request that exceeds the quota is answered at once; the
        broker reads the next one on its connection once the throttle time is over. ``producer`` has the
        producer's transactional id and epoch.
        """
        connection = (broker, *producer)
        if (muted := self._muted_until.get(connection, 0.0) - self.loop.time()) > 0:
            again = partial(self.produce, broker, batches, writer, producer, reply)
            self.loop.call_later(muted, again, context=Context())
            return
        results = {at: self._append(broker, at, batch, writer, producer) for at, batch in batches.items()}
        reply((results, self._charge(connection, batches)))

    def _charge(self, connection: _Connection, batches: Mapping[Place, Batch]) -> float:
        """Count the bytes of a request, and return for how long its connection is not read."""
        if self.quota is None:
            return 0.0
        now, bytes_ = self.loop.time(), sum(sum(map(size, batch)) for batch in batches.values())
        client = connection[:2]  # its quota outlives a connection
        paid = max(self._paid_until.get(client, 0.0), now - QUOTA_WINDOW) + bytes_ / self.quota
        self._paid_until[client] = paid
        self._muted_until[connection] = paid
        return max(0.0, paid - now)

    def _append(
        self, broker: int, at: Place, batch: Batch, writer: str, producer: tuple[str, int]
    ) -> int | Exception:
        """Append a batch; return its first offset, or the error with which it is refused."""
        now_ms = self.now_ms
        try:
            topic = self.find(broker, *at)
            transaction = self.transactions.require(*producer, at)
            log = topic.logs[at[1]]
            log.reached(transaction, batch.sequence)
            self._check_batch(broker, topic, batch, now_ms)
            end = log.end
            first = log.append_in(transaction, batch, now_ms)
        except KafkaError as error:
            return error
        if log.end > end:
            self.on_append(topic, at[1], first, batch, writer)
        return first

    def _check_batch(self, broker: int, topic: SimTopic, batch: Batch, now_ms: int) -> None:
        if broker in self.starved and self.random.random() < 0.5:
            raise NotEnoughReplicasError
        if sum(map(size, batch)) > topic.max_bytes:
            raise MessageSizeTooLargeError
        if topic.is_compacted and any(record.key is None for record in batch):
            raise InvalidRecord
        ages = [now_ms - record.timestamp_ms for record in batch if record.timestamp_ms >= 0]
        if topic.max_age_ms is not None and ages and max(ages) > topic.max_age_ms:
            raise InvalidTimestampError

    def fetch(
        self,
        broker: int,
        positions: Mapping[Place, int],
        count: int,
        reply: Reply,
        ids: Mapping[str, bytes] = MappingProxyType({}),
        *,
        waits: bool = True,
    ) -> None:
        """Return the committed records from each position on as soon as there are any.

        A topic with another id than the given one is unknown (KIP-516).
        """
        found = {at: self._read(broker, at, position, count, ids) for at, position in positions.items()}
        if not waits or any(
            answer.records or answer.error or answer.next > positions[at] for at, answer in found.items()
        ):
            reply(found)
            return

        def again() -> None:
            if not waiting.cancelled():
                waiting.cancel()
                self.fetch(broker, positions, count, reply, ids, waits=False)

        waiting = self.loop.call_later(self.fetch_wait, again, context=Context())
        for name, partition in positions:
            self.views[broker][name].logs[partition].call_on_change(again)

    def _read(self, broker: int, at: Place, position: int, count: int, ids: Mapping[str, bytes]) -> Answer:
        try:
            topic = self.find(broker, *at)
        except (UnknownTopicOrPartitionError, NotLeaderForPartitionError) as error:
            return Answer([], -1, -1, position, type(error))
        if ids.get(at[0], topic.id) != topic.id:
            return Answer([], -1, -1, position, UnknownTopicOrPartitionError)
        log = topic.logs[at[1]]
        if not log.begin <= position <= log.end:
            return Answer([], log.end, log.stable_end, position, OffsetOutOfRangeError)
        records = log.read(position, count)
        full = len(records) == count
        following = records[-1].offset + 1 if full else max(position, log.stable_end)
        return Answer(records, log.end, log.stable_end, following)

    def bounds(self, broker: int, name: str, partition: int) -> range:
        """Return the offsets that a partition holds, up to the first open transaction."""
        log = self.find(broker, name, partition).logs[partition]
        return range(log.begin, log.stable_end)

    def committed_records(self, name: str) -> dict[int, list[Stored]]:
        """Return the records of a topic that consumers see, by partition."""
        return {
            number: [record for record in log.records if record.is_data and record.offset < log.stable_end]
            for number, log in enumerate(self.topics[name].logs)
        }


def size(record: OutputRecord) -> int:
    """Return the bytes that a record counts for."""
    return len(record.key or b"") + len(record.value or b"") + sum(len(v or b"") for _, v in record.headers)


def new_cluster(seed: int = 0, **group: Any) -> Cluster:
    """Return brokers without topics, in the running loop."""
    loop = asyncio.get_running_loop()
    network = Network(Random(f"network {seed}"), loop)
    return Cluster(loop, Random(f"brokers {seed}"), network, Group(loop, **group))
