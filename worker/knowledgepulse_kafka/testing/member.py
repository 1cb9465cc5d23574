"""A group member on simulated brokers, modelled on aiokafka's consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.group_member import HEARTBEATS, CommittedPositions
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.request_waits import Waits
from knowledgepulse_kafka.testing.brokers import Cluster
from knowledgepulse_kafka.testing.clients import BACKOFF, Connection, record
from knowledgepulse_kafka.testing.group import Place
from knowledgepulse_kafka.topic_reader import Record

Moment: TypeAlias = Callable[[str], None]
"""Called with a word at each step of a client."""

FETCH_COUNT = 3
PATIENCE = 5
"""A worker's poll without records waits so many times as long as it may: only its time goes by."""


@dataclass(eq=False)
class _Assigned:
    """The consumer's state of a partition during an assignment."""

    position: int | None = None
    is_paused: bool = False
    records: list[Record] = field(default_factory=list)
    following: int = 0
    high: int | None = None
    stable: int | None = None
    polled: int | None = None


class _NoListener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    async def on_partitions_revoked(self, revoked: object) -> None: ...

    async def on_partitions_assigned(self, assigned: object) -> None: ...


class SimMember:
    """What a program uses of a :class:`~knowledgepulse_kafka.group_member.GroupMember`.

    Args:
        cluster: the brokers.
        host: where it runs, which the network can cut off.
        topics: the topics that it may subscribe to.
        session: seconds after which the coordinator takes a silent member for dead.
        rebalance: seconds that a rebalance allows its members to finish.
        moment: called with a word at each step of its membership.
        patience: the number of times that it waits for records if it may.
    """

    def __init__(
        self,
        cluster: Cluster,
        host: str,
        topics: Sequence[str],
        session: float,
        rebalance: float,
        moment: Moment = lambda _: None,
        patience: int = PATIENCE,
    ) -> None:
        self.answered_at = cluster.loop.time()
        self.waits = Waits(cluster.loop.time)
        self.group = GroupMetadata("group")
        self._connection = Connection(cluster, host, "member")
        self._cluster = cluster
        self._topics = topics
        self._patience = patience
        self._session = session
        self._rebalance = rebalance
        self._moment = moment
        self._loop = cluster.loop
        self._listener: ConsumerRebalanceListener = _NoListener()
        self._member = ""
        self._generation = -1
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._heartbeat: asyncio.Task[None] | None = None
        self._rejoin = asyncio.Event()
        self._arrived: asyncio.Future[None] = cluster.loop.create_future()
        self._ids: Mapping[str, bytes] = {}
        self.has_lost_topic = False

    @property
    def is_member(self) -> bool:
        """Whether this is a group member, as far as the client knows."""
        return self._generation >= 0

    @property
    def generation(self) -> int:
        """The group's generation; negative without a membership."""
        return self._generation

    async def start(self) -> None:
        """Connect to nothing."""
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """Leave the group."""
        tasks = [*self._tasks, *self._fetching.values(), *([self._heartbeat] if self._heartbeat else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        member, self._member, self._generation = self._member, "", -1
        if member:
            with suppress(KafkaError):
                await self._connection.coordinate(self._cluster.group.leave, member)

    def subscribe(self, topics: Collection[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """Join the group."""
        if set(topics) != set(self._topics):
            raise ValueError(f"there is only {', '.join(self._topics)}, not {', '.join(topics)}")
        self._listener = listener or self._listener
        self._rejoin.set()
        self._tasks.append(asyncio.create_task(self._coordinate()))

    def check_membership(self) -> None:
        """Raise the error that ended the membership."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    # --- membership

    async def _coordinate(self) -> None:
        """Rebalance whenever it is due: revoke partitions, join, sync and assign."""
        while True:
            await self._rejoin.wait()
            self._moment("revoking")
            await self._listener.on_partitions_revoked(self.assignment())
            while not await self._join():  # noqa: ASYNC110 - the client itself pauses
                await asyncio.sleep(BACKOFF)
            # The client may fetch before it tells the listener about the assignment.
            await asyncio.sleep(self._cluster.random.choice((0.0, 0.0, 0.05)))
            self._moment("assigned")
            await self._listener.on_partitions_assigned(self.assignment())
            self._heartbeat = asyncio.create_task(self._beat())

    async def _join(self) -> bool:
        await self._stop_heartbeat()
        group = self._cluster.group
        has = tuple(sorted((tp.topic, tp.partition) for tp in self._assigned))
        try:
            joined = await self._connection.coordinate(
                group.join, self._member, self._session, self._rebalance, has
            )
        except UnknownMemberIdError:
            self._reset()
            return False
        except KafkaError:
            return False
        self._member, self._generation = joined.member, joined.generation
        self._rejoin.clear()
        places = None if joined.members is None else self._assign(joined.members)
        try:
            mine = await self._connection.coordinate(group.sync, self._member, self._generation, places)
        except (UnknownMemberIdError, IllegalGenerationError):
            self._reset()
            return False
        except KafkaError as error:
            if isinstance(error, RebalanceInProgressError):
                self.answered_at = self._loop.time()
            self._rejoin.set()
            return False
        self.answered_at = self._loop.time()
        self.group = GroupMetadata(self.group.group, self._member, self._generation)
        self._fetching_ends()
        self._assigned = {TopicPartition(*at): _Assigned() for at in mine}
        if self._assigned:
            self._tasks.append(asyncio.create_task(self._find_positions(dict(self._assigned))))
        return True

    def _assign(self, members: Mapping[str, tuple[Place, ...]]) -> dict[str, tuple[Place, ...]]:
        """Assign all partitions, as the leader of the group."""
        topics = [self._cluster.topics[name] for name in self._topics]
        return assign(
            [(topic.name, number) for topic in topics for number in range(len(topic.logs))], members
        )

    def _reset(self) -> None:
        self._member, self._generation = "", -1
        self._rejoin.set()

    async def _stop_heartbeat(self) -> None:
        task, self._heartbeat = self._heartbeat, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _beat(self) -> None:
        pause = interval = self._session / HEARTBEATS
        while self._member:
            await asyncio.sleep(pause)
            pause = BACKOFF
            self._moment("heartbeat")
            try:
                await self._connection.coordinate(
                    self._cluster.group.heartbeat, self._member, self._generation
                )
                self.answered_at = self._loop.time()
                pause = interval
            except RebalanceInProgressError:
                self.answered_at = self._loop.time()
                self._rejoin.set()
                pause = interval
            except (UnknownMemberIdError, IllegalGenerationError):
                self._moment("expelled")
                self._reset()
                return
            except KafkaError:
                pass

    # --- positions

    async def _find_positions(self, assigned: Mapping[TopicPartition, _Assigned]) -> None:
        """Start at the group's positions, or at the beginning if there are none."""
        committed = await self.committed(assigned)
        for tp, state in assigned.items():
            position = committed.get(tp)
            offset = (await self.beginning_offsets([tp]))[tp] if position is None else position.offset
            if state.position is None:
                state.position = offset
        self._wake()

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed positions; partitions without one are left out."""
        found = dict[TopicPartition, OffsetAndMetadata | None]()
        async for positions in self.stable_positions(partitions):
            found.update(positions)
        return {tp: position for tp, position in found.items() if position is not None}

    async def stable_positions(
        self, partitions: Iterable[TopicPartition]
    ) -> AsyncIterator[CommittedPositions]:
        """Yield the committed positions, each once no open transaction may replace it."""
        awaited = {(tp.topic, tp.partition) for tp in partitions}
        while awaited:
            try:
                found = await self._connection.coordinate(
                    self._cluster.group.fetch_offsets, tuple(sorted(awaited))
                )
            except KafkaError:
                found = {}
            if found:
                awaited -= found.keys()
                yield {TopicPartition(*at): position for at, position in found.items()}
            if awaited:
                await asyncio.sleep(BACKOFF)

    def assignment(self) -> AbstractSet[TopicPartition]:
        """Return the assigned partitions."""
        return self._assigned.keys()  # unlike a set's, their order does not depend on the hashes of strings

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the topic's partitions; None if there is no such topic."""
        found = self._cluster.topics.get(topic)
        return None if found is None else set(range(len(found.logs)))

    async def gone(self, names: Collection[str]) -> list[str]:
        """Return those of some topics that do not exist."""
        return [name for name in names if self.partitions_for_topic(name) is None]

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop fetching these partitions."""
        self._require_assigned(*partitions)
        for partition in partitions:
            self._assigned[partition].is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Fetch these partitions again."""
        self._require_assigned(*partitions)
        for partition in partitions:
            self._assigned[partition].is_paused = False
        self._wake()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {place for place, state in self._assigned.items() if state.is_paused}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset of the next fetch."""
        self._require_assigned(partition)
        self._restart(self._assigned[partition], offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Set the next fetch to the first remaining record."""
        self._require_assigned(*partitions)
        states = {partition: self._assigned[partition] for partition in partitions}
        begins = await self.beginning_offsets(partitions)
        for partition, state in states.items():
            self._restart(state, begins[partition])

    def _restart(self, state: _Assigned, offset: int) -> None:
        state.position, state.records, state.following = offset, [], 0
        self._wake()

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next fetch."""
        self._require_assigned(partition)
        state = self._assigned[partition]
        while state.position is None:
            await asyncio.sleep(BACKOFF)
            self._require_assigned(partition)
        return state.position

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first remaining offsets."""
        return {tp: (await self._bounds(tp)).start for tp in sorted(partitions)}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the last stable offsets."""
        return {tp: (await self._bounds(tp)).stop for tp in sorted(partitions)}

    async def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets at which leader epochs end in the partitions' logs."""
        return {tp: await self._epoch_end((tp.topic, tp.partition), epoch) for tp, epoch in epochs.items()}

    async def _epoch_end(self, at: Place, epoch: int) -> int:
        return await self._connection.ask_leader(
            at, lambda broker: self._cluster.find(broker, *at).logs[at[1]].epoch_end(epoch)
        )

    async def _bounds(self, tp: TopicPartition) -> range:
        at = (tp.topic, tp.partition)
        return await self._connection.ask_leader(at, lambda broker: self._cluster.bounds(broker, *at))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to be published, as the last fetch told it."""
        self._require_assigned(partition)
        return self._assigned[partition].high

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset below which all transactions have ended, as the last fetch told it."""
        self._require_assigned(partition)
        return self._assigned[partition].stable

    def read_by_id(self, topic: str, topic_id: bytes) -> None:
        """Fetch a topic by its id from now on, so that no record of its successor is returned."""
        self._ids = {topic: topic_id}
        self.has_lost_topic = False

    @property
    def is_read_by_id(self) -> bool:
        """Whether all records are fetched by a topic's id."""
        return bool(self._ids) and self._cluster.fetches_by_id

    def has_more(self, partition: TopicPartition) -> bool:
        """Return whether the last fetch told of committed records behind those that were returned."""
        self._require_assigned(partition)
        state = self._assigned[partition]
        return state.stable is not None and state.position is not None and state.position < state.stable

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return when the broker last answered a fetch, in ms."""
        self._require_assigned(partition)
        return self._assigned[partition].polled

    def _require_assigned(self, *partitions: TopicPartition) -> None:
        if missing := set(partitions) - self._assigned.keys():
            raise IllegalStateError(f"not assigned: {missing}")

    # --- fetching

    async def getmany(self, *, timeout_ms: int) -> Mapping[TopicPartition, Sequence[Record]]:
        """Return the next records of the partitions that are not paused."""
        self.check_membership()
        fetched = self._take()
        if not fetched:
            self._arrived = self._loop.create_future()
            self._fetch()
            given_up = self._loop.call_later(self._patience * timeout_ms / 1000, self._wake)
            await self._arrived
            given_up.cancel()
            fetched = self._take()
        if fetched:
            self._fetch()
        self.check_membership()
        return fetched

    def _wake(self) -> None:
        if not self._arrived.done():
            self._arrived.set_result(None)

    def _take(self) -> dict[TopicPartition, Sequence[Record]]:
        fetched: dict[TopicPartition, Sequence[Record]] = {}
        for tp, state in sorted(self._assigned.items()):
            if state.following and not state.is_paused:
                if state.records:
                    fetched[tp] = state.records
                state.position, state.records, state.following = state.following, [], 0
        return fetched

    def _fetch(self) -> None:
        """Fetch records that have not arrived yet, with one request per broker."""
        wanted: dict[int, dict[TopicPartition, _Assigned]] = {}
        for tp, state in sorted(self._assigned.items()):
            if state.position is not None and not state.following and not state.is_paused:
                wanted.setdefault(self._connection.leader((tp.topic, tp.partition)), {})[tp] = state
        for broker, states in wanted.items():
            if broker not in self._fetching:
                self._fetching[broker] = task = asyncio.create_task(self._fetch_from(broker, states))
                task.add_done_callback(partial(self._fetched, broker))

    def _fetched(self, broker: int, task: asyncio.Task[None]) -> None:
        if self._fetching.get(broker) is task:
            del self._fetching[broker]
            self._wake()

    def _fetching_ends(self) -> None:
        for task in self._fetching.values():
            task.cancel()
        self._fetching.clear()

    async def _fetch_from(self, broker: int, states: Mapping[TopicPartition, _Assigned]) -> None:
        positions = {
            (tp.topic, tp.partition): state.position
            for tp, state in states.items()
            if state.position is not None
        }
        chosen = self._ids
        ids = chosen if self.is_read_by_id else {}
        try:
            answers = await self._connection.call(
                broker, lambda reply: self._cluster.fetch(broker, positions, FETCH_COUNT, reply, ids)
            )
        except KafkaError:
            await asyncio.sleep(BACKOFF)
            self._connection.refresh()
            return
        if self._ids is not chosen:  # it may be of the topics as they were before
            return
        if any(answer.error is UnknownTopicOrPartitionError for answer in answers.values()):
            self.has_lost_topic = bool(ids)
            await asyncio.sleep(BACKOFF)
        for tp, state in states.items():
            answer, asked = answers[tp.topic, tp.partition], positions[tp.topic, tp.partition]
            if state.position != asked or state.following:
                continue  # sought meanwhile
            state.polled = self._cluster.now_ms
            if answer.error is OffsetOutOfRangeError:
                begin = (await self.beginning_offsets([tp]))[tp]
                if state.position == asked:  # otherwise, sought meanwhile
                    state.position = begin
            elif answer.error is not None:
                self._connection.refresh()
            else:
                state.high, state.stable = answer.high, answer.stable
                state.records = [record(tp.topic, tp.partition, stored) for stored in answer.records]
                state.following = answer.next if answer.next > asked else 0


def assign(places: Sequence[Place], members: Mapping[str, tuple[Place, ...]]) -> dict[str, tuple[Place, ...]]:
    """Assign partitions evenly, most of them to their previous owners."""
    share = -(-len(places) // len(members))
    given: dict[str, list[Place]] = {member: [] for member in sorted(members)}
    left = []
    for place in places:
        had = [member for member in given if place in members[member] and len(given[member]) < share]
        if had:
            given[had[0]].append(place)
        else:
            left.append(place)
    for place in left:
        min(given.values(), key=len).append(place)
    return {member: tuple(mine) for member, mine in given.items()}
