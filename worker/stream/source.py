"""The seam to Faust: the raw topic's records for its agents, from a Kafka consumer of our own.

Faust gives agents, web pages and the life cycle. The source stands behind ``app.transport``: it fetches,
controls each partition's flow, recovers the ledgers, and commits the lanes' watermarks. Faust's own consumer
commits by acknowledgement, which cannot express "published and confirmed", and shares itself with the tables.

One Faust event carries a :class:`Batch`: what one fetch brought of one partition.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
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
from worker.kafka.reader import Record, raw_record
from worker.lane.lanes import Lanes
from worker.lane.records import RawRecord
from worker.observe.metrics import Metrics
from worker.stream.ledgers import Ledgers

logger = logging.getLogger(__name__)

# Milliseconds that one fetch waits for records. Each also raises what ended the client's part in its group.
_FETCH_WAIT_MS = 200
# Batches of a partition that are with Faust before fetching pauses: one being taken, one to go on with.
_MAX_OUTSTANDING = 2
# Seconds for the last commit before partitions are given up, and to leave the group.
_COMMIT_LIMIT = 2.0
# Milliseconds without an answer to a fetch until the broker counts as silent.
_SILENCE_MS = 10_000
# Seconds for the brokers to say where partitions begin; asked again a second later.
_BEGIN_LIMIT = 1.0
# Gaps between fetched records that wait for that answer.
_MAX_GAPS = 1000


class Client(Protocol):
    """A member of the consumer group: what the source uses of :class:`~worker.kafka.group.GroupConsumer`."""

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
    """Tells one topic from another of its name, as :class:`~worker.kafka.topic_id.TopicIds` does."""

    async def start(self) -> None: ...  # noqa: D102 - as documented there, like all of these
    async def stop(self) -> None: ...  # noqa: D102
    async def current(self, partitions: Iterable[int]) -> bytes: ...  # noqa: D102


@dataclass(frozen=True)
class SourceServices:
    """What the source works with.

    Attributes:
        client: creates the group member; called once there is an event loop.
        topic: the raw topic's name.
        topic_ids: identifies the raw topic.
        lanes: take the records, and know what to commit.
        ledgers: recovered before a partition is consumed.
        metrics: told of commits, and of offsets that were deleted unread.
        on_recovered: called once all owned ledgers are recovered, also when none is owned.
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
    """What one fetch brought of one partition.

    Attributes:
        records: in offset order.
        is_current: whether the assignment that it was fetched under still holds. If not, taking a record
            would skip those that are redelivered before it.
        done: called once the lane has taken all records.
    """

    records: Sequence[RawRecord]
    is_current: Callable[[], bool]
    done: Callable[[], None]


class BatchSchema(faust.Schema[Any, Any]):
    """Passes a batch through Faust as it is."""

    def compile(self, app: AppT, **_: Any) -> Callable[..., Awaitable[Any]]:
        """Return the function that makes events of messages."""

        async def decode(message: Message, *, propagate: bool = False) -> Any:
            return app.create_event(None, cast("Any", message.value), {}, message)

        return decode


@dataclass(slots=True)
class _Partition:
    """One owned partition, from an assignment to the next.

    Attributes:
        is_recovered: its ledger is back.
        outstanding: batches with Faust that the lane has not taken whole.
        fetched: the offset of the last record handed over.
        expected: the offset of the next one; None until the group has a position.
        committed: the group's position.
        position: the client's, as of the last look.
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


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka says no types
    """Passes rebalances on; the client would log an exception and go on."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._source.app.on_rebalance_start()
        await self._source.on_partitions_revoked({TP(*one) for one in revoked})

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        app = self._source.app
        app.consumer_generation_id += 1
        await self._source.on_partitions_assigned({TP(*one) for one in assigned}, app.consumer_generation_id)


class Source(Consumer):
    """Fetches for the lanes that have room, and commits their watermarks.

    Args:
        transport: Faust's.
        services: what the source works with.
        kwargs: Faust's arguments of a consumer.
    """

    # Else mode's messages about the service would come under the name of this module.
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
        """Finish and commit before anything is taken away; every rebalance revokes every partition.

        Partitions that the group has reassigned already are left to their new owners (``onPartitionsLost`` of
        KIP-429).
        """
        self.stop_flow()
        await self._finish()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Start the agents, and recover the ledgers; each partition is consumed once its own is back."""
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
        # A coordinator that is away confirms no commit; what is not committed will be delivered again.
        with suppress(TimeoutError):
            async with asyncio.timeout(_COMMIT_LIMIT):
                await self.maybe_wait_for_commit_to_finish()  # it may lack the last watermarks
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
        """Consume a partition whose ledger is back."""
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
        # Until then Faust takes nothing, and what was fetched would be lost to this assignment.
        await self.can_resume_flow.wait()
        await self._seek_to_expected(partition)  # the client may have fetched before it was paused
        partition.is_recovered = True
        self._client.resume(partition.at)

    def _recovery_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.ensure_future(self.crash(error))  # noqa: RUF006 - the app ends with it

    # --- records

    async def hand_over(self, is_wanted: Callable[[], bool]) -> None:
        """Fetch, and hand batches to Faust, while they are wanted.

        Raises:
            KafkaError: the client's part in its group has ended, or the broker refuses to serve it.
        """
        while is_wanted():
            owned = self._partitions
            fetched = await self._client.getmany(timeout_ms=_FETCH_WAIT_MS)
            if self._partitions is not owned:
                await self._put_back(fetched)
                continue
            batches = [
                (partition, records)
                for at, records in fetched.items()
                if (partition := self._partition_to_consume(at)) is not None
            ]
            if batches and await self._is_same_topic(batches):
                for partition, records in batches:
                    await self._hand_over_batch(partition, records)

    async def _put_back(self, fetched: Iterable[TopicPartition]) -> None:
        """Fetch again what a fetch brought that began under another assignment than it ended.

        The client's positions have moved, though nobody knows whether the records are of this assignment.
        """
        for at in fetched:
            partition = self._partitions.get(at.partition)
            if partition is not None and partition.is_recovered:
                await self._seek_to_expected(partition)

    async def _seek_to_expected(self, partition: _Partition) -> None:
        with suppress(IllegalStateError):  # revoked: they will be delivered again
            if partition.expected is None:
                await self._client.seek_to_beginning(partition.at)
            else:
                self._client.seek(partition.at, partition.expected)

    def _partition_to_consume(self, at: TopicPartition) -> _Partition | None:
        """Return the partition of fetched records; None before its recovery, which sets its position anew."""
        partition = self._partitions.get(at.partition)
        if partition is not None and partition.is_recovered:
            return partition
        with suppress(IllegalStateError):  # revoked: they will be delivered again
            self._client.pause(at)
        return None

    async def _is_same_topic(self, batches: list[tuple[_Partition, Sequence[Record]]]) -> bool:
        """Return whether fetched records are of the topic that is being read; start over with another one."""
        found = await self._services.topic_ids.current(partition.at.partition for partition, _ in batches)
        if found == self._topic_id:
            return True
        logger.warning("%s was recreated; reading it from its beginning", self._services.topic)
        self._topic_id = found
        for partition in self._partitions.values():
            partition.expected = None
        with suppress(IllegalStateError):  # revoked: the next owner learns it from the ledger
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
            return  # revoked meanwhile: they will be delivered again
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
        """Commit every watermark that has moved; a worker outside its group commits nothing."""
        marks = self._lanes.watermarks()
        offsets = {
            partition.at: marks[number]
            for number, partition in self._partitions.items()
            if number in marks and marks[number] != partition.committed
        }
        # As soon as a group is empty, its broker takes the commit of any former member, and sets it back.
        if not offsets or not self._client.is_member:
            return False
        try:
            await self._client.commit(offsets)
        except (CommitFailedError, IllegalStateError):  # the partitions belong to others by now
            return False
        except KafkaError as error:
            await self.crash(error)
            return False
        self._note_committed({at.partition: mark for at, mark in offsets.items()})
        return True

    @Service.task
    async def _commit_on_demand(self) -> None:
        while not self.should_stop:
            await self.wait(self._lanes.commit_requested)  # type: ignore[arg-type]  # mode takes asyncio's, too
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
        """Look up where the client is in each partition that is being consumed."""
        for partition in list(self._partitions.values()):
            with suppress(IllegalStateError, TimeoutError):
                async with asyncio.timeout(0.1):  # a position that is being reset is not worth waiting for
                    partition.position = await self._client.position(partition.at)

    def check_membership(self) -> None:
        """Raise what ended the client's part in its group, also before the first fetch.

        Raises:
            WorkerError: the group refused this member, or the client failed for good.
        """
        try:
            self._client.check_membership()
        except Exception as error:
            raise WorkerError(f"the consumer group: {error!r}") from error

    async def count_skipped(self) -> None:
        """Count and log the offsets that were deleted before they were fetched.

        The client goes on with the first record that is left. Where a partition now begins behind the offset
        that was expected, what lies between was deleted; other gaps are those of transactions and compaction.
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
        """Return how far each partition has come where records wait, or the broker is silent."""
        marks, places = self._lanes.watermarks(), dict[int, Hashable]()
        for number, partition in self._partitions.items():
            if not partition.is_recovered:
                continue
            mark = marks.get(number)
            stable = self._client.last_stable_offset(partition.at)
            answered = self._client.last_poll_timestamp(partition.at) or 0
            if partition.has_unfinished(mark):
                places[number] = ("finished", mark)
            elif stable is not None and partition.position < stable:
                places[number] = ("fetched", partition.position)
            elif time.time() * 1000 - answered > _SILENCE_MS:
                places[number] = ("answered", answered)
        return places

    def lag(self) -> dict[int, int]:
        """Return how many offsets lie before each partition's end; all of an open transaction's count."""
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
        """Return how many offsets open transactions hold back, by partition."""
        held = {}
        for number, partition in self._partitions.items():
            end = self._client.highwater(partition.at)
            stable = self._client.last_stable_offset(partition.at)
            if end is not None and stable is not None:
                held[number] = max(0, end - stable)
        return held

    def partition_count(self) -> int:
        """Return the raw topic's partition count by the client's latest metadata; 0 without a topic."""
        return len(self._client.partitions_for_topic(self._services.topic) or ())

    # --- the rest of Faust's interface

    def assignment(self) -> set[TP]:
        """Return the owned partitions."""
        return {TP(*one) for one in self._client.assignment()}

    async def perform_seek(self) -> None:
        """Do nothing: the client starts where the group is, and a recovered partition where it should."""

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
        """Faust asks for it only in what :meth:`perform_seek` replaces; so with the rest."""
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
    """Runs the source's fetch loop from the end of a rebalance on, as Faust does with its own fetcher."""

    logger = logging.getLogger("faust.source")

    def __init__(self, app: AppT, **kwargs: Any) -> None:
        self.app = app
        super().__init__(**kwargs)

    @Service.task
    async def _fetch(self) -> None:
        source = cast("Source", self.app.consumer)
        await source.hand_over(lambda: not (self.should_stop or source.should_stop))


class SourceTransport(base.Transport):
    """Faust's transport to the source. Nothing is sent through Faust, so its producer connects to nothing.

    Args:
        url: the brokers, as Faust takes them.
        app: the Faust app.
        services: what the source works with.
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
