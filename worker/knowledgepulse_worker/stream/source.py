"""The source reads the raw topic's records for the tasks, in a session of the group.

It makes an assignment of tasks at every rebalance, controls the flow of every partition, and hands batches
to its :class:`Host`, the program that runs it. What else happens to a partition is told by its parts: the
recovery of its ledger (``recovery``), a log that changes (``log_changes``), and the commit of what its lane
completes (``committer``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Protocol, Self

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.errors import DeliveryError, TopicError, retrieve_exception
from knowledgepulse_kafka.group_member import CommittedPositions
from knowledgepulse_kafka.partition_starts import PartitionStarter
from knowledgepulse_kafka.record_batches import epoch_of
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_kafka.session import Rebalances, Session
from knowledgepulse_kafka.topic_id import TopicIds
from knowledgepulse_kafka.topic_reader import Record, raw_record
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.errors import EXPECTED
from knowledgepulse_worker.lane.assignment import Assignment
from knowledgepulse_worker.lane.lane import Services
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.stream.committer import Committer
from knowledgepulse_worker.stream.group_commit import GroupCommit
from knowledgepulse_worker.stream.key_placement import KeyPlacement
from knowledgepulse_worker.stream.log_changes import LogChanges
from knowledgepulse_worker.stream.recovery import ReaderFactory, Recovery
from knowledgepulse_worker.stream.unread_offsets import UnreadOffsets

# Seconds that a poll waits for records. A poll also raises the error that ended the session.
_POLL = 0.2
# Seconds for closing a connection.
_CLOSE_LIMIT = 2.0


@dataclass(frozen=True, slots=True)
class Batch:
    """The records that a fetch returned for a partition, in offset order."""

    task: PartitionTask
    records: Sequence[RawRecord]


class Host(Protocol):
    """The program that runs the source."""

    async def take(self, batch: Batch) -> None:
        """Pass a batch to its task."""
        ...

    async def crash(self, error: BaseException) -> None:
        """End the program."""
        ...


class Observer(Protocol):
    """Who is told what becomes of the partitions."""

    def assigned(self, owned: Collection[int]) -> None:
        """Take note of the owned partitions that are read, after each rebalance."""
        ...

    def recovered(self) -> None:
        """Take note that all owned ledgers are recovered, even if none is owned."""
        ...

    def failed(self, error: BaseException) -> None:
        """Take note of a lane's fatal error; the process must then end."""
        ...


class Source(Rebalances):
    """Reads records for the tasks that have room and commits what they complete.

    An asynchronous context manager, which joins the group on entry, and leaves it on exit.

    Args:
        services: dependencies shared by all lanes.
        raw: the raw topic as it was at the start.
        changelog: the changelog topic as it was at the start.
        join: makes the session of the group, given what to do at its rebalances.
        topic_ids: identifies the raw topic.
        reader: returns a changelog reader.
        observer: is told of assignments, recoveries and fatal errors.

    Attributes:
        session: the session of the group.
        host: the program that runs this source, set by it before it is entered.
        assignment: the tasks of the present assignment; during a rebalance, those of the former one.
        committer: commits what the lanes complete.
        group_commit: commits whenever there is something to commit; run by the host.
        unread_offsets: the offsets that no worker reads.
        key_placement: whether producers agree on the partition of a key.
        is_rebalancing: whether a rebalance is in progress.
    """

    def __init__(
        self,
        services: Services,
        raw: Topic,
        changelog: Topic,
        *,
        join: Callable[[Rebalances], Session],
        topic_ids: TopicIds,
        reader: ReaderFactory,
        observer: Observer,
    ) -> None:
        self.session = join(self)
        self.host: Host
        self._resources = AsyncExitStack()
        self._raw = raw
        self._changelog = changelog
        self._topic_ids = topic_ids
        self._services = services
        self._observer = observer
        self._committing = asyncio.Lock()
        self._is_stopping = False
        self.is_rebalancing = False
        self._is_behind = False
        client, metrics = self.session.member, services.metrics
        self.unread_offsets = UnreadOffsets(client, metrics)
        self.key_placement = KeyPlacement(raw.partitions, client, metrics)
        self.committer = Committer(self.session, raw.name)
        self._log = LogChanges(client, raw.name, topic_ids, metrics, lambda: self.tasks)
        self._recovery = Recovery(self._log, self.unread_offsets, metrics, changelog.name, reader)
        kafka = services.settings.kafka
        self.group_commit = GroupCommit(
            kafka.commit_interval,
            kafka.commit_min_interval,
            lanes=self,
            commit=self.commit,
            on_committed=metrics.transaction,
        )
        self.assignment = self._assignment_of({})

    @property
    def tasks(self) -> Mapping[int, PartitionTask]:
        """The tasks by partition; none from the moment on that a rebalance or the end begins."""
        return self.assignment.tasks if self.assignment.is_current else {}

    @property
    def replaced(self) -> int:
        """The number of records that brokers refused and that were replaced."""
        return self._services.replacements.count

    # --- life cycle and rebalances

    async def __aenter__(self) -> Self:
        """Connect; see :class:`~knowledgepulse_kafka.session.Session` for the errors."""
        async with AsyncExitStack() as stack:
            await self._topic_ids.start()
            stack.push_async_callback(_stopped_in_time, self._topic_ids)
            await stack.enter_async_context(self.session)
            self._resources = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._resources.aclose()

    async def revoked(self) -> None:
        """Finish and commit before partitions are revoked; every rebalance revokes all of them.

        Partitions that the group has already reassigned are left to their new owners (``onPartitionsLost``
        in KIP-429).
        """
        self.is_rebalancing = True
        await self._finish()

    def assigned(self, partitions: Collection[Place]) -> None:
        """Make the tasks of an assignment, of the partitions that have a ledger; others are not read.

        Raises:
            TopicError: a partition was added after the start; a new process would read it.
        """
        if any(at.partition >= self._raw.partitions for at in partitions):
            raise TopicError(f"{self._raw.name} now has more than {self._raw.partitions} partitions")
        owned = [at.partition for at in partitions if at.partition < self._changelog.partitions]
        if self._is_stopping:
            return
        # Another worker may have written to the ledgers of all other partitions.
        kept = {number: task.changelog for number, task in self.assignment.tasks.items()}
        self.assignment = self._assignment_of(
            {number: kept.get(number) or Changelog(number) for number in owned}
        )
        self._observer.assigned(owned)
        self.is_rebalancing = False
        self._note_recovered()

    async def recover(self, positions: CommittedPositions, begin: PartitionStarter) -> None:
        """Recover the ledgers of partitions; each is read once its own ledger is recovered."""
        await self._recovery.recover(self.assignment.tasks, positions, begin)
        self._note_recovered()

    def _note_recovered(self) -> None:
        if all(task.is_recovered for task in self.assignment.tasks.values()):
            self._observer.recovered()

    def _assignment_of(self, changelogs: Mapping[int, Changelog]) -> Assignment:
        return Assignment(
            changelogs,
            self.session.member.group,
            self._services,
            on_failure=self._observer.failed,
            request_commit=self.group_commit.requested,
            on_complete=self.group_commit.completed,
            on_room=self._resume,
        )

    async def stop(self) -> None:
        """Commit what is complete, and take no more."""
        self._is_stopping = True
        await self._finish()

    async def _finish(self) -> None:
        """Commit what is complete, and drop the rest, which the next owner scores again.

        A transaction that takes too long is left as it is: to abort it may take as long, and the next process
        fences it off.
        """
        self.assignment.end()
        self._log.close()
        drain = self._services.settings.limits.drain
        commit = asyncio.create_task(_commit_all(self))
        commit.add_done_callback(retrieve_exception)
        try:
            await asyncio.wait([commit], timeout=drain)
            if commit.done():
                await commit
            else:
                await self.host.crash(
                    DeliveryError(f"the last transaction was not committed in {drain:g} s (limits.drain)")
                )
        finally:
            self.assignment.close()

    # --- records

    async def hand_over(self, is_wanted: Callable[[], bool]) -> None:
        """Read and hand over batches as long as they are wanted.

        The session returns only records of the present assignment, from the client's positions on.

        Raises:
            Exception: what has ended the session; see its ``check``.
        """
        while is_wanted():
            polled = groupby(await self.session.poll(_POLL), attrgetter("partition"))
            batches = {number: list(records) for number, records in polled}
            consumed = [task for task in self.tasks.values() if task.is_recovered]
            fetched_for = [task for task in consumed if task.partition in batches]
            self._is_behind = any(self.session.member.has_more(task.place) for task in fetched_for)
            if not fetched_for:
                await self._log.look_up_while_idle(consumed)
            elif not await self._log.has_started_over(fetched_for):
                for task in fetched_for:
                    await self._hand_over_batch(task, batches[task.partition])

    async def _hand_over_batch(self, task: PartitionTask, records: Sequence[Record]) -> None:
        if await self._log.has_moved_back(task, records[0]) or not task.is_current:
            return  # revoked meanwhile: the next assignment reads the records
        topic_id = self._log.topic_id
        self.unread_offsets.note(task.place, task.unread(records[0].offset, topic_id))
        self.key_placement.note(task.place, records)
        task.fetched(records[-1].offset + 1, epoch_of(records[-1]))
        if task.is_full:
            self.session.member.pause(task.place)
        await self.host.take(Batch(task, [raw_record(record, topic_id) for record in records]))

    def _resume(self, task: PartitionTask) -> None:
        if not task.is_full and task.is_current:
            self.session.member.resume(task.place)

    # --- commits

    @property
    def is_scoring(self) -> bool:
        """Whether a record was taken that is not scored yet."""
        return self.assignment.is_scoring

    @property
    def has_backlog(self) -> bool:
        """Whether records wait: at a partition's leader, in its task, or for the embedder."""
        return self._is_behind or self.assignment.has_backlog

    @property
    def has_complete(self) -> bool:
        """Whether a record is complete, and not committed."""
        return self.assignment.has_complete

    @property
    def is_throttled(self) -> bool:
        """Whether a quota throttles the producer, or did so lately."""
        throttle = self._services.throttles.producer
        return throttle.remaining > 0 or throttle.recent > 0

    async def commit(self) -> bool:
        """Commit what the lanes have completed, after any commit in progress; only as a group member."""
        async with self._committing:
            try:
                return await self.committer.commit(self.assignment)
            except EXPECTED as error:
                await self.host.crash(error)
                return False


async def _stopped_in_time(topic_ids: TopicIds) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_LIMIT):
            await topic_ids.stop()


async def _commit_all(source: Source) -> None:
    while await source.commit() and source.assignment.has_left_out:
        pass
