"""The seam to Faust: feeds its agents the raw topic's records from a Kafka consumer of our own.

Faust provides agents, web pages and the life cycle. The source stands behind ``app.transport``: it fetches,
controls each partition's flow, recovers the ledgers, and commits the lanes' watermarks. Faust's own consumer
is shared with its tables, and commits by acknowledgement, which cannot express "published and confirmed".

One Faust event carries a :class:`Batch`: the records that one fetch returned for one partition.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import faust
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError, KafkaError
from faust.transport import base
from faust.transport.consumer import Consumer, RecordMap
from faust.types import TP, AppT, ConsumerMessage, Message
from faust.types.transports import ConsumerCallback, ConsumerT, TPorTopicSet
from mode import Service
from mode.types import ServiceT
from yarl import URL

from worker.errors import WorkerError
from worker.kafka.topic_reader import Record, raw_record
from worker.lane.lanes import Lanes
from worker.observe.metrics import Metrics
from worker.records.record import RawRecord
from worker.stream.ledgers import Ledgers

logger = logging.getLogger(__name__)

# Milliseconds that a fetch waits for records. A fetch also raises the error that ended the group membership.
_FETCH_WAIT_MS = 200
# Batches of a partition in Faust's hands before fetching pauses: one being taken, one ready.
_MAX_OUTSTANDING = 2
# Seconds for the last commit before partitions are revoked, and for each client to stop.
_COMMIT_LIMIT = 2.0
# Milliseconds without a response to a fetch after which the broker counts as silent.
_SILENCE_MS = 10_000
# Seconds for a look-up of the partitions' beginning offsets; retried a second later.
_BEGIN_LIMIT = 1.0
# Maximum number of offset gaps awaiting that look-up.
_MAX_GAPS = 1000


class Client(Protocol):
    """A group member: what the source uses of :class:`~worker.kafka.wire.group_member.GroupMember`."""

    @property
    def is_member(self) -> bool: ...  # noqa: D102 - as documented there, like all of these
    async def start(self) -> None: ...  # noqa: D102
    async def stop(self) -> None: ...  # noqa: D102
    def subscribe(self, *, topics: Collection[str], listener: ConsumerRebalanceListener) -> None: ...  # noqa: D102
    def check_membership(self) -> None: ...  # noqa: D102
    def assignment(self) -> Collection[TopicPartition]: ...  # noqa: D102
    def partitions_for_topic(self, topic: str) -> set[int] | None: ...  # noqa: D102
    async def getmany(self, *, timeout_ms: int) -> Mapping[TopicPartition, Sequence[Record]]: ...  # noqa: D102
    def pause(self, *partitions: TopicPartition) -> None: ...  # noqa: D102
    def resume(self, *partitions: TopicPartition) -> None: ...  # noqa: D102
    def seek(self, partition: TopicPartition, offset: int) -> None: ...  # noqa: D102
    async def seek_to_beginning(self, *partitions: TopicPartition) -> object: ...  # noqa: D102
    async def position(self, partition: TopicPartition) -> int: ...  # noqa: D102
    async def beginning_offsets(  # noqa: D102
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]: ...
    async def committed(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...  # noqa: D102
    def highwater(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    def last_stable_offset(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    def last_poll_timestamp(self, partition: TopicPartition) -> int | None: ...  # noqa: D102


class TopicIdentity(Protocol):
    """Tells apart topics of the same name, as :class:`~worker.kafka.wire.topic_id.TopicIds` does."""

    async def start(self) -> None: ...  # noqa: D102 - as documented there, like all of these
    async def stop(self) -> None: ...  # noqa: D102
    async def current(self, partitions: Iterable[int]) -> bytes: ...  # noqa: D102


@dataclass(frozen=True)
class SourceServices:
    """The source's dependencies.

    Attributes:
        client: creates the group member; called once there is an event loop.
        topic: the raw topic's name.
        topic_ids: identifies the raw topic.
        lanes: take the records, and report the offsets to commit.
        ledgers: recovered before a partition is consumed.
        metrics: observes commits, and offsets deleted unread.
        on_recovered: called once all owned ledgers are recovered, even if none is owned.
    """

    client: Callable[[], Client]
    topic: str
    topic_ids: TopicIdentity
    lanes: Lanes
    ledgers: Ledgers
    metrics: Metrics
    on_recovered: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Batch:
    """The records that one fetch returned for one partition.

    Attributes:
        records: the records, in offset order.
        is_current: whether the assignment of the fetch still holds. If not, taking a record would skip those
            redelivered before it.
        done: to be called once the lane has taken all records.
    """

    records: Sequence[RawRecord]
    is_current: Callable[[], bool]
    done: Callable[[], None]


class BatchSchema(faust.Schema[Any, Any]):
    """Passes a batch through Faust unchanged."""

    def compile(self, app: AppT, **_: Any) -> Callable[..., Awaitable[Any]]:
        """Return the function that turns messages into events."""

        async def decode(message: Message, *, propagate: bool = False) -> Any:
            return app.create_event(None, cast("Any", message.value), {}, message)

        return decode


@dataclass(slots=True)
class _Partition:
    """One owned partition during one assignment.

    Attributes:
        is_recovered: whether its ledger is recovered.
        outstanding: batches handed to Faust that the lane has not fully taken.
        fetched: the offset of the last record handed over.
        expected: the offset of the next record; None if the group has no position.
        committed: the group's committed offset.
        position: the client's position at the last refresh.
    """

    at: TopicPartition
    is_recovered: bool = False
    outstanding: int = 0
    fetched: int = -1
    expected: int | None = None
    committed: int | None = None
    position: int = 0

    @property
    def is_full(self) -> bool:
        return self.outstanding >= _MAX_OUTSTANDING

    def has_unfinished(self, watermark: int | None) -> bool:
        return self.fetched >= 0 and (watermark is None or self.fetched >= watermark)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Passes rebalances on; an exception ends the app, as the client would only log it."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        async with self._crashing():
            self._source.app.on_rebalance_start()
            await self._source.on_partitions_revoked({TP(*one) for one in revoked})

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        async with self._crashing():
            app = self._source.app
            app.consumer_generation_id += 1
            tps = {TP(*one) for one in assigned}
            await self._source.on_partitions_assigned(tps, app.consumer_generation_id)

    @asynccontextmanager
    async def _crashing(self) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, lanes may be left that nobody drains
            await self._source.crash(error)


class Source(Consumer):
    """Fetches for the lanes that have room, and commits their watermarks.

    Args:
        transport: Faust's transport.
        services: the dependencies.
        kwargs: Faust's consumer arguments.
    """

    # Otherwise mode logs its messages about the service under this module's name.
    logger = logging.getLogger("faust.source")
    consumer_stopped_errors: ClassVar[tuple[type[BaseException], ...]] = (ConsumerStoppedError,)

    def __init__(self, transport: base.Transport, services: SourceServices, **kwargs: Any) -> None:
        super().__init__(transport, **kwargs)
        self._services = services
        self._lanes = services.lanes
        self._ledgers = services.ledgers
        self._client = services.client()
        self._partitions: dict[int, _Partition] = {}
        self._recovery: asyncio.Task[None] | None = None
        self._topic_id = b""
        self._gaps: list[tuple[TopicPartition, range]] = []

    # --- life cycle and rebalances

    async def on_start(self) -> None:
        """Connect."""
        await self._client.start()
        await self._services.topic_ids.start()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group."""
        self._client.subscribe(topics=set(topics), listener=_Listener(self))

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Finish and commit before partitions are revoked; every rebalance revokes all of them.

        Partitions already reassigned by the group are left to their new owners (``onPartitionsLost`` in
        KIP-429).
        """
        self.stop_flow()
        await self._finish()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Start the agents and the ledgers' recovery; each partition is consumed once its own is done."""
        owned = {tp.partition: _Partition(TopicPartition(*tp)) for tp in assigned}
        self._client.pause(*(partition.at for partition in owned.values()))
        self._partitions = owned
        self._ledgers.retain(owned)
        await super().on_partitions_assigned(assigned, generation_id)
        self._lanes.open()
        self._recovery = asyncio.create_task(self._recover(), name="ledger recovery")
        self._recovery.add_done_callback(self._recovery_ended)

    async def on_stop(self) -> None:
        """Finish and commit, then leave the group."""
        await self._finish()
        for stop in (self._services.topic_ids.stop, self._client.stop):
            with suppress(TimeoutError):
                async with asyncio.timeout(_COMMIT_LIMIT):
                    await stop()

    async def _finish(self) -> None:
        try:
            await self._drain_and_commit()
        finally:
            self._partitions = {}

    async def _drain_and_commit(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        if not self._client.is_member:
            await self._lanes.abandon()
            return
        try:
            await self._lanes.drain()
        except ExceptionGroup as error:
            await self.crash(error)
        # With the coordinator down the commit fails, and the uncommitted records are redelivered.
        with suppress(TimeoutError):
            async with asyncio.timeout(_COMMIT_LIMIT):
                await self.maybe_wait_for_commit_to_finish()  # one under way may lack the last watermarks
                await self.commit()
        self._lanes.clear()

    # --- recovery

    async def _recover(self) -> None:
        numbers = list(self._partitions)
        if numbers:
            self._topic_id = await self._services.topic_ids.current(numbers)
        await self._ledgers.recover(numbers, self._recovered)
        self._services.on_recovered()

    async def _recovered(self, number: int) -> None:
        """Start consuming a partition after its ledger's recovery."""
        partition = self._partitions[number]
        partition.committed = partition.expected = await self._client.committed(partition.at)
        position = partition.committed or 0
        self._lanes.committed({number: position})
        newest = self._ledgers.changelog(number).newest_before(position)
        if newest is not None and newest.topic_id and self._topic_id not in (b"", newest.topic_id):
            logger.warning(
                "partition %d: %s was recreated; reading it from its beginning", number, self._services.topic
            )
            partition.expected = None
        # Until then Faust drops fetched records, and this assignment would miss them.
        await self.can_resume_flow.wait()
        await self._seek_to_expected(partition)  # the client may have fetched before it was paused
        partition.is_recovered = True
        self._client.resume(partition.at)

    def _recovery_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.ensure_future(self.crash(error))  # noqa: RUF006 - the app ends with it

    # --- records

    async def hand_over(self, is_wanted: Callable[[], bool]) -> None:
        """Fetch, and hand batches to Faust, as long as they are wanted.

        Raises:
            KafkaError: the group membership has ended, or the broker refuses to serve the client.
        """
        while is_wanted():
            owned = self._partitions
            fetched = await self._client.getmany(timeout_ms=_FETCH_WAIT_MS)
            if self._partitions is not owned:
                await self._refetch(fetched)
                continue
            batches = [
                (partition, records)
                for at, records in fetched.items()
                if (partition := self._partition_to_consume(at)) is not None
            ]
            if batches and await self._is_same_topic(batches):
                for partition, records in batches:
                    await self._hand_over_batch(partition, records)

    async def _refetch(self, fetched: Iterable[TopicPartition]) -> None:
        """Discard a fetch that spanned two assignments, and reset the positions that it moved.

        Its records may belong to either assignment.
        """
        for at in fetched:
            partition = self._partitions.get(at.partition)
            if partition is not None and partition.is_recovered:
                await self._seek_to_expected(partition)

    async def _seek_to_expected(self, partition: _Partition) -> None:
        with suppress(IllegalStateError):  # revoked: its records will be redelivered
            if partition.expected is None:
                await self._client.seek_to_beginning(partition.at)
            else:
                self._client.seek(partition.at, partition.expected)

    def _partition_to_consume(self, at: TopicPartition) -> _Partition | None:
        """Return the partition of fetched records; None before its recovery, which resets its position."""
        partition = self._partitions.get(at.partition)
        if partition is not None and partition.is_recovered:
            return partition
        with suppress(IllegalStateError):  # revoked: its records will be redelivered
            self._client.pause(at)
        return None

    async def _is_same_topic(self, batches: list[tuple[_Partition, Sequence[Record]]]) -> bool:
        """Return whether the topic is still the same; if it was recreated, read it from its beginning."""
        found = await self._services.topic_ids.current(partition.at.partition for partition, _ in batches)
        if found == self._topic_id:
            return True
        logger.warning("%s was recreated; reading it from its beginning", self._services.topic)
        self._topic_id = found
        for partition in self._partitions.values():
            partition.expected = None
        with suppress(IllegalStateError):  # revoked: the next owner detects it by the ledger
            seeking = self._client.seek_to_beginning(*(one.at for one in self._partitions.values()))
            await self.wait_first(seeking, self.suspend_flow.wait())
        return False

    async def _hand_over_batch(self, partition: _Partition, records: Sequence[Record]) -> None:
        def is_current() -> bool:
            return self._partitions.get(partition.at.partition) is partition

        def done() -> None:
            partition.outstanding -= 1
            if not partition.is_full and is_current():
                self._client.resume(partition.at)

        if not is_current():
            return  # revoked meanwhile: the records will be redelivered
        partition.outstanding += 1
        self._note_gap(partition, records[0].offset)
        partition.fetched = records[-1].offset
        partition.expected = partition.fetched + 1
        if partition.is_full:
            self._client.pause(partition.at)

        batch = Batch([raw_record(record, self._topic_id) for record in records], is_current, done)
        await self.wait_first(self.callback(self._message(partition, batch)), self.suspend_flow.wait())

    def _note_gap(self, partition: _Partition, offset: int) -> None:
        expected = partition.expected
        if expected is not None and offset > expected and len(self._gaps) < _MAX_GAPS:
            self._gaps.append((partition.at, range(expected, offset)))

    def _message(self, partition: _Partition, batch: Batch) -> Message:
        first = batch.records[0]
        return ConsumerMessage(
            first.topic,
            first.partition,
            first.offset,
            timestamp=0.0,
            timestamp_type=0,
            headers=None,
            key=None,
            value=cast("Any", batch),
            checksum=None,
            tp=TP(*partition.at),
            generation_id=self.app.consumer_generation_id,
        )

    # --- commits

    async def force_commit(
        self, topics: TPorTopicSet | None = None, start_new_transaction: bool = True
    ) -> bool:
        """Commit every watermark that has moved; do nothing outside the group."""
        marks = self._lanes.watermarks()
        offsets = {
            partition.at: marks[number]
            for number, partition in self._partitions.items()
            if number in marks and marks[number] != partition.committed
        }
        # The broker of an empty group accepts a former member's commit, which would move the group back.
        if not offsets or not self._client.is_member:
            return False
        try:
            await self._client.commit(offsets)
        except (CommitFailedError, IllegalStateError):  # the partitions have new owners
            return False
        except KafkaError as error:
            await self.crash(error)
            return False
        self._note_committed({at.partition: mark for at, mark in offsets.items()})
        return True

    @Service.task
    async def _commit_on_demand(self) -> None:
        while not self.should_stop:
            await self.wait(self._lanes.commit_requested)  # type: ignore[arg-type]  # mode also accepts asyncio's
            self._lanes.commit_requested.clear()
            await self.commit()

    def _note_committed(self, offsets: Mapping[int, int]) -> None:
        self._lanes.committed(offsets)
        now = time.time()
        for number, offset in offsets.items():
            self._services.metrics.committed(number, now)
            if number in self._partitions:
                self._partitions[number].committed = offset

    # --- progress

    async def refresh_positions(self) -> None:
        """Refresh the client's position in every partition that is being consumed."""
        for partition in list(self._partitions.values()):
            with suppress(IllegalStateError, TimeoutError):
                async with asyncio.timeout(0.1):  # do not wait for a position that is being reset
                    partition.position = await self._client.position(partition.at)

    def check_membership(self) -> None:
        """Raise the error that ended the group membership, even before the first fetch.

        Raises:
            WorkerError: the group rejected this member, or the client failed permanently.
        """
        try:
            self._client.check_membership()
        except Exception as error:
            raise WorkerError(f"consumer group: {error!r}") from error

    async def count_skipped(self) -> None:
        """Count and log the offsets that were deleted before they were fetched.

        The client resumes at the first remaining record. Of a gap between the expected and the fetched
        offset, the part below the partition's beginning was deleted; transactions and compaction leave gaps
        too.
        """
        gaps, self._gaps = self._gaps, []
        if not gaps:
            return
        try:
            async with asyncio.timeout(_BEGIN_LIMIT):
                begins = await self._client.beginning_offsets({at for at, _ in gaps})
        except (KafkaError, TimeoutError):
            self._gaps = gaps + self._gaps
            return
        for at, gap in gaps:
            deleted = gap[: max(0, begins[at] - gap.start)]
            if deleted:
                self._services.metrics.skipped(len(deleted))
                logger.error(
                    "partition %d: offsets %d to %d were deleted from %s before they were read",
                    at.partition,
                    deleted[0],
                    deleted[-1],
                    at.topic,
                )

    def waiting(self) -> dict[int, Hashable]:
        """Return the progress of each partition where records wait or the broker is silent."""
        marks, progress = self._lanes.watermarks(), dict[int, Hashable]()
        for number, partition in self._partitions.items():
            if not partition.is_recovered:
                continue
            mark = marks.get(number)
            stable = self._client.last_stable_offset(partition.at)
            answered = self._client.last_poll_timestamp(partition.at) or 0
            if partition.has_unfinished(mark):
                progress[number] = ("finished", mark)
            elif stable is not None and partition.position < stable:
                progress[number] = ("fetched", partition.position)
            elif time.time() * 1000 - answered > _SILENCE_MS:
                progress[number] = ("answered", answered)
        return progress

    def lag(self) -> dict[int, int]:
        """Return each partition's lag in offsets, including those of open transactions."""
        marks, lags = self._lanes.watermarks(), dict[int, int]()
        for number, partition in self._partitions.items():
            end = self._client.highwater(partition.at) if partition.is_recovered else None
            if end is not None:
                mark = marks.get(number)
                unfinished = mark is not None and partition.has_unfinished(mark)
                done = mark if unfinished else max(partition.position, partition.fetched + 1)
                lags[number] = max(0, end - (done or 0))
        return lags

    def held_back(self) -> dict[int, int]:
        """Return the number of offsets held back by open transactions, by partition."""
        held = {}
        for number, partition in self._partitions.items():
            end = self._client.highwater(partition.at)
            stable = self._client.last_stable_offset(partition.at)
            if end is not None and stable is not None:
                held[number] = max(0, end - stable)
        return held

    def partition_count(self) -> int:
        """Return the raw topic's partition count in the client's latest metadata; 0 without a topic."""
        return len(self._client.partitions_for_topic(self._services.topic) or ())

    # --- the rest of Faust's interface

    def assignment(self) -> set[TP]:
        """Return the owned partitions."""
        return {TP(*one) for one in self._client.assignment()}

    async def perform_seek(self) -> None:
        """Do nothing: the client starts at the group's position, and recovery seeks where necessary."""

    def close(self) -> None:
        """Do nothing: :meth:`on_stop` closes the client."""

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        raise NotImplementedError

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> RecordMap:  # noqa: ASYNC109
        raise NotImplementedError

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        raise NotImplementedError

    async def _seek(self, partition: TP, offset: int) -> None:
        raise NotImplementedError

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Never called: Faust uses this, and the rest, only in what :meth:`perform_seek` replaces."""
        raise NotImplementedError

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """See :meth:`seek_to_committed`."""
        raise NotImplementedError

    async def position(self, tp: TP) -> int | None:
        """See :meth:`seek_to_committed`."""
        raise NotImplementedError

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """See :meth:`seek_to_committed`."""
        raise NotImplementedError

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """See :meth:`seek_to_committed`."""
        raise NotImplementedError

    def highwater(self, tp: TP) -> int:
        """See :meth:`seek_to_committed`."""
        raise NotImplementedError

    def topic_partitions(self, topic: str) -> int | None:
        """See :meth:`seek_to_committed`."""
        raise NotImplementedError

    def key_partition(self, topic: str, key: bytes | None, partition: int | None = None) -> int | None:
        """See :meth:`seek_to_committed`."""
        raise NotImplementedError

    async def create_topic(self, topic: str, partitions: int, replication: int, **_: Any) -> None:
        """See :meth:`seek_to_committed`."""
        raise NotImplementedError


class SourceFetcher(Service):
    """Runs the source's fetch loop from the end of a rebalance, like Faust's own fetcher."""

    logger = logging.getLogger("faust.source")

    def __init__(self, app: AppT, **kwargs: Any) -> None:
        self.app = app
        super().__init__(**kwargs)

    @Service.task
    async def _fetch(self) -> None:
        source = cast("Source", self.app.consumer)
        await source.hand_over(lambda: not (self.should_stop or source.should_stop))


class SourceTransport(base.Transport):
    """The Faust transport that creates the source. Faust sends nothing, so its producer never connects.

    Args:
        url: the broker URLs, for Faust.
        app: the Faust app.
        services: the source's dependencies.
    """

    Consumer: ClassVar[type[ConsumerT]] = Source
    Fetcher: ClassVar[type[ServiceT]] = SourceFetcher
    driver_version = "source"

    def __init__(self, url: list[URL], app: AppT, services: SourceServices) -> None:
        super().__init__(url, app)
        self._services = services

    def create_consumer(self, callback: ConsumerCallback, **kwargs: Any) -> ConsumerT:
        """Return the source."""
        return Source(self, self._services, callback=callback, loop=self.loop, **kwargs)
