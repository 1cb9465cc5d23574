"""The source fetches the raw topic's records for the lanes and commits what the lanes complete.

It controls the flow of every partition, recovers the ledgers when partitions are assigned, and hands batches
to its :class:`Host`, the program that runs it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Protocol

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalStateError

from knowledgepulse_worker.errors import DeliveryError, WorkerError
from knowledgepulse_worker.kafka.topic_reader import Record, raw_record
from knowledgepulse_worker.kafka.wire.record_batches import epoch_of
from knowledgepulse_worker.lane.lanes import Lanes
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.records.publisher import LostPartitionsError
from knowledgepulse_worker.stream.client import Client, TopicIdentity, Transact
from knowledgepulse_worker.stream.gaps import Gaps
from knowledgepulse_worker.stream.ledgers import Ledgers
from knowledgepulse_worker.stream.partition import Batch, Partition
from knowledgepulse_worker.stream.progress import Progress
from knowledgepulse_worker.stream.start_offset import set_start
from knowledgepulse_worker.stream.truncation import Truncation

logger = logging.getLogger(__name__)

# Seconds between two look-ups of the topic's id and of the logs' epochs while no records arrive.
_LOOK_UP_INTERVAL = 5.0
# Milliseconds that a fetch waits for records. A fetch also raises the error that ended the group membership.
_FETCH_WAIT_MS = 200
# Seconds for stopping a client.
_STOP_LIMIT = 2.0
# Seconds for such a look-up, so that a leader that is down does not delay the others' partitions.
_LOOK_UP_LIMIT = 1.0


class Host(Protocol):
    """The program that runs the source."""

    async def take(self, batch: Batch) -> None:
        """Pass a batch to :meth:`Source.feed`."""
        ...

    async def crash(self, error: BaseException) -> None:
        """End the program."""
        ...


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Passes on rebalances; an exception ends the program, since the client would only log it."""

    def __init__(self, source: Source, host: Host) -> None:
        self._source = source
        self._host = host

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        async with self._crashing():
            await self._source.revoke({one.partition for one in revoked})

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        async with self._crashing():
            await self._source.assign(assigned)

    @asynccontextmanager
    async def _crashing(self) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - after any error, lanes may be left that nothing commits
            await self._host.crash(error)


class Source:
    """Fetches records for the lanes that have room and commits what they complete.

    Args:
        host: the program that runs the source.
        client: the group member.
        topic: the raw topic's name.
        topic_ids: identifies the raw topic.
        lanes: take the records and complete them.
        transact: publishes as a member of the group, in a transaction.
        ledgers: recovered before a partition is consumed.
        metrics: observes commits and offsets that were deleted unread.
        drain: seconds for the last transaction before partitions are revoked.
        is_readable: returns whether a partition has a ledger; other partitions are not read.
        on_assigned: called with the owned partitions that are read, after each rebalance.
        on_recovered: called once all owned ledgers are recovered, even if none is owned.

    Attributes:
        progress: the source's progress in the owned partitions.
        gaps: the offsets that no worker reads.
        is_rebalancing: whether a rebalance is in progress.
    """

    def __init__(
        self,
        host: Host,
        *,
        client: Client,
        topic: str,
        topic_ids: TopicIdentity,
        lanes: Lanes,
        transact: Transact,
        ledgers: Ledgers,
        metrics: Metrics,
        drain: float,
        is_readable: Callable[[int], bool],
        on_assigned: Callable[[set[int]], None],
        on_recovered: Callable[[], None],
    ) -> None:
        self._host = host
        self._client = client
        self._topic = topic
        self._topic_ids = topic_ids
        self._lanes = lanes
        self._transact = transact
        self._ledgers = ledgers
        self._metrics = metrics
        self._drain = drain
        self._is_readable = is_readable
        self._on_assigned = on_assigned
        self._on_recovered = on_recovered
        self._partitions: dict[int, Partition] = {}
        self._recovery: asyncio.Task[None] | None = None
        self._start_over_task: asyncio.Task[None] | None = None
        self._committing = asyncio.Lock()
        self._topic_id = b""
        self._looked_up = time.monotonic()
        self._is_stopping = False
        self._has_failed = False
        self.is_rebalancing = False
        self.gaps = Gaps(client, metrics)
        self._truncation = Truncation(client, metrics)
        self.progress = Progress(topic, client, lanes, lambda: self._partitions)

    # --- life cycle and rebalances

    async def start(self) -> None:
        """Connect."""
        await self._client.start()
        await self._topic_ids.start()

    def subscribe(self) -> None:
        """Join the group."""
        self._client.subscribe(topics={self._topic}, listener=_Listener(self, self._host))

    async def revoke(self, revoked: Collection[int]) -> None:
        """Finish and commit before partitions are revoked; every rebalance revokes all of them.

        Partitions that the group has already reassigned are left to their new owners (``onPartitionsLost``
        in KIP-429).
        """
        self.is_rebalancing = True
        await self._finish()

    async def assign(self, assigned: Iterable[TopicPartition]) -> None:
        """Start the recovery of the ledgers; a partition is consumed once its own ledger is recovered."""
        assigned = list(assigned)
        self._client.pause(*assigned)
        owned = {at.partition: Partition(at) for at in assigned if self._is_readable(at.partition)}
        if self._is_stopping:
            return
        self._partitions = owned
        self._ledgers.retain(owned)
        self._on_assigned(set(owned))
        self._lanes.open()
        self.is_rebalancing = False
        self._recovery = asyncio.create_task(self._recover(), name="ledger recovery")
        self._recovery.add_done_callback(self._recovery_ended)

    def assignment(self) -> Collection[TopicPartition]:
        """Return the partitions that the client reads; during a rebalance, the former ones."""
        return self._client.assignment()

    async def stop(self) -> None:
        """Commit what is complete, then leave the group."""
        self._is_stopping = True
        await self._finish()
        for stop in (self._topic_ids.stop, self._client.stop):
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_LIMIT):
                    await stop()

    async def _finish(self) -> None:
        """Commit what is complete, and drop the rest, which the next owner scores again."""
        if self._start_over_task is not None:
            self._start_over_task.cancel()
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        try:
            async with asyncio.timeout(self._drain):
                await self.commit()
        except TimeoutError:
            await self._host.crash(
                DeliveryError(f"the last transaction was not committed in {self._drain:g} s (limits.drain)")
            )
        finally:
            self._lanes.close()
            self._partitions = {}

    # --- recovery

    async def _recover(self) -> None:
        numbers = list(self._partitions)
        if numbers:
            self._topic_id = await self._topic_ids.current(numbers)
            await self._fetch_positions()
        await self._ledgers.recover(numbers, self._recovered)
        self._on_recovered()

    async def _fetch_positions(self) -> None:
        """Fetch the group's positions, before the ledgers, which then include all entries up to there."""
        positions = await self._client.committed([one.at for one in self._partitions.values()])
        for partition in self._partitions.values():
            partition.committed = position = positions.get(partition.at)
            partition.expected = None if position is None else position.offset

    async def _recovered(self, number: int) -> None:
        """Start consuming a partition after its ledger's recovery."""
        partition = self._partitions[number]
        changelog = self._ledgers.changelog(number)
        if (passed := set_start(partition, changelog, self._topic_id)) is not None:
            await self.gaps.count_passed_over(passed)
        await self._seek_to_expected(partition)  # the client may have fetched before it was paused
        partition.is_recovered = True
        self._client.resume(partition.at)

    def _recovery_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.ensure_future(self._host.crash(error))  # noqa: RUF006 - the app ends with it

    # --- records

    async def hand_over(self, is_wanted: Callable[[], bool]) -> None:
        """Fetch and hand over batches as long as they are wanted.

        The client returns only records of the present assignment, from its position on.

        Raises:
            KafkaError: the group membership has ended, or the broker refuses to serve the client.
        """
        while is_wanted():
            fetched = await self._client.getmany(timeout_ms=_FETCH_WAIT_MS)
            owned = [self._partitions.get(at.partition) for at in fetched]
            recovered = [one for one in owned if one is not None and one.is_recovered]
            if not recovered:
                await self._look_up_while_idle()
                continue
            if await self._topic_ids.current([one.at.partition for one in recovered]) != self._topic_id:
                await self._start_over()
                continue
            for partition in recovered:
                await self._hand_over_batch(partition, fetched[partition.at])

    async def _look_up_while_idle(self) -> None:
        """Check at intervals whether the topic was recreated or a partition's log was truncated.

        Fetches reveal neither if the log now ends at the offset up to which it was read.
        """
        if time.monotonic() - self._looked_up < _LOOK_UP_INTERVAL:
            return
        consumed = [partition for partition in self._partitions.values() if partition.is_recovered]
        if not consumed:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_UP_LIMIT):
                found = await self._topic_ids.current([one.at.partition for one in consumed])
                if found == self._topic_id:
                    await self._go_back_if_truncated(consumed)
            if found != self._topic_id:
                await self._start_over()
        self._looked_up = time.monotonic()

    async def _go_back_if_truncated(self, partitions: Sequence[Partition]) -> None:
        for partition in await self._truncation.move_back(*partitions):
            if self._is_current(partition):
                await self._seek_to_expected(partition)

    def _is_current(self, partition: Partition) -> bool:
        """Return whether a partition is of the present assignment."""
        return self._partitions.get(partition.at.partition) is partition

    async def _seek_to_expected(self, partition: Partition) -> None:
        with suppress(IllegalStateError):  # revoked: the next owner reads its records
            if partition.expected is None:
                await self._client.seek_to_beginning(partition.at)
            else:
                self._client.seek(partition.at, partition.expected)

    async def _start_over(self) -> None:
        """Read the topic from its beginning, because it was recreated."""
        logger.warning("%s was recreated; reading it from its beginning", self._topic)
        self._start_over_task = asyncio.create_task(self._read_from_beginning())
        await asyncio.wait([self._start_over_task])
        with suppress(asyncio.CancelledError, IllegalStateError):  # revoked: the next owner detects it
            self._start_over_task.result()

    async def _read_from_beginning(self) -> None:
        """Read a recreated topic once the leaders of all partitions know it.

        A lagging leader would serve the former topic's records again and then report the new topic's id.
        """
        topic_id = await self._topic_ids.current(self._partitions)
        for partition in self._partitions.values():
            partition.expected = None
        await self._client.seek_to_beginning(*(one.at for one in self._partitions.values()))
        self._topic_id = topic_id  # set last, so that an interrupted call is repeated

    async def _hand_over_batch(self, partition: Partition, records: Sequence[Record]) -> None:
        is_moved = await self._truncation.move_back_at(partition, records[0])
        if not self._is_current(partition):
            return  # revoked meanwhile: the next assignment reads the records
        if is_moved:
            await self._seek_to_expected(partition)
            return
        partition.outstanding += 1
        self.gaps.note(partition, records[0].offset)
        partition.fetched = records[-1].offset
        partition.expected = partition.fetched + 1
        partition.epoch = epoch_of(records[-1])
        if partition.is_full:
            self._client.pause(partition.at)
        await self._host.take(Batch(partition, [raw_record(record, self._topic_id) for record in records]))

    def feed(self, batch: Batch) -> None:
        """Pass a batch to its lane, unless its assignment is over."""
        partition = batch.partition
        if not self._is_current(partition):
            return

        def done() -> None:
            partition.outstanding -= 1
            if not partition.is_full and self._is_current(partition):
                self._client.resume(partition.at)

        self._lanes.feed(batch.records, done)

    # --- commits

    async def commit(self) -> bool:
        """Commit what the lanes have completed, after any commit in progress; only as a group member."""
        async with self._committing:
            return await self._commit()

    async def _commit(self) -> bool:
        if not self._client.is_member or self._has_failed:
            return False
        publish = partial(self._transact, self._client.group)
        try:
            with self.progress.transaction():
                positions = await self._lanes.commit(publish)
        except LostPartitionsError:
            logger.warning(
                "the transaction was aborted, because the group has rebalanced without this worker"
            )
            self._lanes.close()  # otherwise, every further transaction would be aborted, too
            return False
        except WorkerError as error:
            self._has_failed = True  # the producer begins no other transaction
            await self._host.crash(error)
            return False
        now = time.time()
        for number in positions:
            self._metrics.committed(number, now)
        return bool(positions)
