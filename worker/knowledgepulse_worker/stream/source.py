"""The source fetches the raw topic's records for the tasks and commits what their lanes complete.

It controls the flow of every partition, recovers the ledgers when partitions are assigned, and hands batches
to its :class:`Host`, the program that runs it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from knowledgepulse_kafka.aiokafka_types import (
    ConsumerRebalanceListener,
    IllegalStateError,
    TopicPartition,
)
from knowledgepulse_kafka.commit_outcome import CommitOutcome
from knowledgepulse_kafka.errors import DeliveryError, TopicError, first_of_group
from knowledgepulse_kafka.group_member import CommittedPositions
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.record_batches import epoch_of
from knowledgepulse_kafka.records import OutputRecord, Position, RawRecord
from knowledgepulse_kafka.topic_reader import Record, raw_record
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.errors import EXPECTED
from knowledgepulse_worker.lane.assignment import Assignment
from knowledgepulse_worker.lane.lane import Services
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.stream.kafka_interfaces import Client, Commit, TopicIdentity
from knowledgepulse_worker.stream.recovery import ReaderFactory, recover
from knowledgepulse_worker.stream.start_offset import start_of
from knowledgepulse_worker.stream.truncation import Truncation
from knowledgepulse_worker.stream.unread_offsets import UnreadOffsets

logger = logging.getLogger(__name__)

# Seconds between two look-ups of the topic's id and of the logs' epochs while no records arrive.
_LOOK_UP_INTERVAL = 5.0
# Milliseconds that a fetch waits for records. A fetch also raises the error that ended the group membership.
_FETCH_WAIT_MS = 200
# Seconds for stopping a client.
_STOP_LIMIT = 2.0
# Seconds for such a look-up, so that a leader that is down does not delay the others' partitions.
_LOOK_UP_LIMIT = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """The records that a fetch returned for a partition, in offset order."""

    task: PartitionTask
    records: Sequence[RawRecord]


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
            await self._source.revoke()

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
    """Fetches records for the tasks that have room and commits what they complete.

    Args:
        services: dependencies shared by all lanes.
        raw: the raw topic as it was at the start.
        changelog: the changelog topic as it was at the start.
        client: the group member.
        topic_ids: identifies the raw topic.
        commit: publishes as a member of the group, in a transaction.
        reader: returns a changelog reader.
        on_assigned: called with the owned partitions that are read, after each rebalance.
        on_recovered: called once all owned ledgers are recovered, even if none is owned.
        on_failure: called on a lane's fatal error; the process must then end.

    Attributes:
        assignment: the tasks of the present assignment; during a rebalance, those of the former one.
        commit_requested: set when a lane waits for a commit.
        unread_offsets: the offsets that no worker reads.
        is_rebalancing: whether a rebalance is in progress.
        transaction_began: when the transaction in progress began (``time.monotonic``); None without one.
    """

    def __init__(
        self,
        services: Services,
        raw: Topic,
        changelog: Topic,
        *,
        client: Client,
        topic_ids: TopicIdentity,
        commit: Commit,
        reader: ReaderFactory,
        on_assigned: Callable[[Collection[int]], None],
        on_recovered: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._client = client
        self._raw = raw
        self._changelog = changelog
        self._topic_ids = topic_ids
        self._services = services
        self._commit_records = commit
        self._reader = reader
        self._on_assigned = on_assigned
        self._on_recovered = on_recovered
        self._on_failure = on_failure
        self._recovery: asyncio.Task[None] | None = None
        self._starting_over: asyncio.Task[None] | None = None
        self._committing = asyncio.Lock()
        self._topic_id = b""
        self._looked_up = time.monotonic()
        self._is_stopping = False
        self._has_failed = False
        self.is_rebalancing = False
        self.transaction_began: float | None = None
        self.commit_requested = asyncio.Event()
        self.unread_offsets = UnreadOffsets(client, services.metrics)
        self._truncation = Truncation(client, raw.name, services.metrics)
        self.assignment = self._assignment_of({})

    @property
    def tasks(self) -> Mapping[int, PartitionTask]:
        """The tasks by partition; none from the moment on that a rebalance or the end begins."""
        return {} if self.is_rebalancing or self._is_stopping else self.assignment.tasks

    # --- life cycle and rebalances

    async def start(self, host: Host) -> None:
        """Connect; from now on, the host runs this source."""
        self._host = host
        await self._client.start()
        await self._topic_ids.start()

    def subscribe(self) -> None:
        """Join the group."""
        self._client.subscribe(topics={self._raw.name}, listener=_Listener(self, self._host))

    async def revoke(self) -> None:
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
        for at in assigned:  # otherwise, the client awaits committed positions, which may be held back
            self._client.seek(at, 0)
        owned = [at.partition for at in assigned if self._has_ledger(at.partition)]
        if self._is_stopping:
            return
        # Another worker may have written to the ledgers of all other partitions.
        kept = {number: task.changelog for number, task in self.assignment.tasks.items()}
        self.assignment = self._assignment_of(
            {number: kept.get(number) or Changelog(number) for number in owned}
        )
        self._on_assigned(owned)
        self.is_rebalancing = False
        self._recovery = asyncio.create_task(self._recover(), name="ledger recovery")
        self._recovery.add_done_callback(self._recovery_ended)

    def _has_ledger(self, partition: int) -> bool:
        """Return whether a partition has a ledger; others are not read.

        Raises:
            TopicError: the partition was added after the start; a new process would read it.
        """
        if partition >= self._raw.partitions:
            raise TopicError(f"{self._raw.name} now has more than {self._raw.partitions} partitions")
        return partition < self._changelog.partitions

    def _assignment_of(self, changelogs: Mapping[int, Changelog]) -> Assignment:
        return Assignment(
            changelogs,
            self._services,
            on_failure=self._on_failure,
            request_commit=self.commit_requested.set,
            on_room=self._resume,
        )

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
        if self._starting_over is not None:
            self._starting_over.cancel()
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        drain = self._services.settings.limits.drain
        try:
            async with asyncio.timeout(drain):
                await self.commit()
        except TimeoutError:
            await self._host.crash(
                DeliveryError(f"the last transaction was not committed in {drain:g} s (limits.drain)")
            )
        finally:
            self.assignment.close()

    # --- recovery

    async def _recover(self) -> None:
        tasks = self.assignment.tasks
        if tasks:
            self._topic_id = await self._topic_ids.current(tasks)
            with first_of_group():
                async with asyncio.TaskGroup() as group:
                    # Each is fetched before its ledger, which then includes all entries up to there.
                    async for positions in self._client.stable_positions(map(self._at, tasks.values())):
                        group.create_task(self._recover_ledgers(positions))
        self._on_recovered()

    async def _recover_ledgers(self, positions: CommittedPositions) -> None:
        """Recover the ledgers of the partitions with these positions, and start consuming each."""
        tasks = [self.assignment.tasks[at.partition] for at in positions]
        await recover(tasks, self._changelog.name, self._reader, partial(self._begin, positions))

    async def _begin(self, positions: CommittedPositions, task: PartitionTask) -> None:
        """Start consuming a partition after its ledger's recovery, given the group's positions."""
        at = self._at(task)
        start = start_of(at, positions[at], task.changelog, self._topic_id)
        task.begin(start.offset, start.leader_epoch)
        if start.passed_over is not None:
            await self.unread_offsets.count_passed_over(start.passed_over)
        await self._seek_to_next(task)  # the client may have fetched before it was paused
        task.is_recovered = True
        self._client.resume(at)

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
            batches = {at.partition: records for at, records in fetched.items()}
            consumed = [task for task in self._consumed() if task.partition in batches]
            if not consumed:
                await self._look_up_while_idle()
                continue
            if await self._topic_ids.current([task.partition for task in consumed]) != self._topic_id:
                await self._start_over()
                continue
            for task in consumed:
                await self._hand_over_batch(task, batches[task.partition])

    def _consumed(self) -> list[PartitionTask]:
        return [task for task in self.tasks.values() if task.is_recovered]

    async def _hand_over_batch(self, task: PartitionTask, records: Sequence[Record]) -> None:
        is_moved = await self._truncation.move_back_at(task, records[0])
        if not self._is_current(task):
            return  # revoked meanwhile: the next assignment reads the records
        if is_moved:
            await self._seek_to_next(task)
            return
        self.unread_offsets.note(self._at(task), task.unread(records[0].offset, self._topic_id))
        task.fetched(records[-1].offset + 1, epoch_of(records[-1]))
        if task.is_full:
            self._client.pause(self._at(task))
        await self._host.take(Batch(task, [raw_record(record, self._topic_id) for record in records]))

    def feed(self, batch: Batch) -> None:
        """Pass a batch to its task, unless the task's assignment is over."""
        if self._is_current(batch.task):
            batch.task.feed(batch.records)

    def _resume(self, task: PartitionTask) -> None:
        if not task.is_full and self._is_current(task):
            self._client.resume(self._at(task))

    def _is_current(self, task: PartitionTask) -> bool:
        """Return whether a task is of the present assignment."""
        return self.tasks.get(task.partition) is task

    def _at(self, task: PartitionTask) -> TopicPartition:
        return TopicPartition(self._raw.name, task.partition)

    async def _seek_to_next(self, task: PartitionTask) -> None:
        with suppress(IllegalStateError):  # revoked: the next owner reads its records
            if task.next is None:
                await self._client.seek_to_beginning(self._at(task))
            else:
                self._client.seek(self._at(task), task.next)

    # --- a log that is no longer the one that was read

    async def _look_up_while_idle(self) -> None:
        """Check at intervals whether the topic was recreated or a partition's log was truncated.

        Fetches reveal neither if the log now ends at the offset up to which it was read.
        """
        if time.monotonic() - self._looked_up < _LOOK_UP_INTERVAL:
            return
        consumed = self._consumed()
        if not consumed:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_UP_LIMIT):
                topic_id = await self._topic_ids.current([task.partition for task in consumed])
                if topic_id == self._topic_id:
                    await self._go_back_if_truncated(consumed)
            if topic_id != self._topic_id:
                await self._start_over()
        self._looked_up = time.monotonic()

    async def _go_back_if_truncated(self, tasks: Sequence[PartitionTask]) -> None:
        for task in await self._truncation.move_back(*tasks):
            if self._is_current(task):
                await self._seek_to_next(task)

    async def _start_over(self) -> None:
        """Read the topic from its beginning, because it was recreated; do nothing during a rebalance.

        The next assignment detects it again. Nothing would cancel what is started after the rebalance began,
        and without tasks there is no leader to wait for.
        """
        if not self.tasks:
            return
        logger.warning("%s was recreated; reading it from its beginning", self._raw.name)
        self._starting_over = asyncio.create_task(self._read_from_beginning())
        await asyncio.wait([self._starting_over])
        with suppress(asyncio.CancelledError, IllegalStateError):  # revoked: the next owner detects it
            self._starting_over.result()

    async def _read_from_beginning(self) -> None:
        """Read a recreated topic once the leaders of all partitions know it.

        A lagging leader would serve the former topic's records again and then report the new topic's id.
        """
        tasks = self.tasks
        topic_id = await self._topic_ids.current(tasks)
        for task in tasks.values():
            task.next = None
        await self._client.seek_to_beginning(*map(self._at, tasks.values()))
        self._topic_id = topic_id  # set last, so that an interrupted call is repeated

    # --- commits

    async def commit(self) -> bool:
        """Commit what the lanes have completed, after any commit in progress; only as a group member."""
        async with self._committing:
            return await self._commit()

    async def _publish(
        self,
        group: GroupMetadata,
        records: Sequence[OutputRecord],
        positions: Mapping[int, Position],
        alone: Collection[OutputRecord] = (),
    ) -> CommitOutcome:
        """Commit in the raw topic; with its first argument bound, this is a ``Publisher``."""
        places = {(self._raw.name, partition): position for partition, position in positions.items()}
        return await self._commit_records(records, places, group, alone)

    async def _commit(self) -> bool:
        if not self._client.is_member or self._has_failed:
            return False
        self.transaction_began = time.monotonic()
        try:
            positions = await self.assignment.commit(partial(self._publish, self._client.group))
        except EXPECTED as error:
            self._has_failed = True  # the producer begins no other transaction
            await self._host.crash(error)
            return False
        finally:
            self.transaction_began = None
        if positions is None:
            logger.warning(
                "the transaction was aborted, because the group has rebalanced without this worker"
            )
            self.assignment.close()  # otherwise, every further transaction would be aborted, too
            return False
        now = time.time()
        for number in positions:
            self._services.metrics.committed(number, now)
        return bool(positions)
