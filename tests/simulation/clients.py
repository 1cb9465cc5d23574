"""What the worker asks of Kafka, on simulated brokers: a member, a publisher, a reader, a topic's identity.

The client library is modelled, as far as its behaviour reaches the worker: one request in flight per broker,
batches that are sent again whole, positions that are reset, callbacks of a rebalance. The contract tests hold
the models against the real clients on a real broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from zlib import crc32

from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    RequestTimedOutError,
    UnknownMemberIdError,
)
from aiokafka.structs import ConsumerRecord

from knowledgepulse_worker.errors import DeliveryError, TimestampError, TooLargeError, TopicError
from knowledgepulse_worker.kafka.lease import heartbeat_interval
from knowledgepulse_worker.records.record import NO_TIMESTAMP, OutputRecord
from simulation.loop import EPOCH

BACKOFF = 0.1
REQUEST_TIMEOUT = 40.0
FETCH_COUNT = 3
BATCH_BYTES = 262_144
_REFUSALS = (MessageSizeTooLargeError, InvalidTimestampError)


class Connection:
    """A client's connections."""

    def __init__(self, cluster, host, client, timeout=REQUEST_TIMEOUT):
        self.cluster = cluster
        self.host = host
        self._client = client
        self._timeout = timeout
        self._known = {}

    def call(self, broker, operation, channel="data"):
        return self.cluster.network.call(
            self.host, f"{self._client} {channel}", broker, operation, self._timeout
        )

    def ask(self, broker, question):
        """Ask what a broker answers at once."""

        def answer(reply):
            try:
                reply(question())
            except KafkaError as error:
                reply(error)

        return self.call(broker, answer)

    def coordinate(self, operation, *arguments):
        """Ask the group's coordinator."""
        broker = self.cluster.group.coordinator
        return self.call(broker, lambda reply: operation(broker, *arguments, reply), "group")

    def leader(self, at):
        """Return the leader, as the client last learned it."""
        return self._known.setdefault(at, self.cluster.leader(*at))

    def refresh(self):
        """Learn the leaders again before the next request."""
        self._known.clear()

    async def ask_leader(self, at, question):
        """Ask a partition's leader, again after each error."""
        while True:
            broker = self.leader(at)
            try:
                return await self.ask(broker, lambda broker=broker: question(broker))
            except KafkaError:
                await asyncio.sleep(BACKOFF)
                self.refresh()


@dataclass(eq=False)
class _Assigned:
    """A partition during one assignment, as the consumer keeps it."""

    position: int | None = None
    is_paused: bool = False
    records: list[ConsumerRecord] = field(default_factory=list)
    following: int = 0
    high: int | None = None
    stable: int | None = None
    polled: int | None = None


class SimMember:
    """Implements :class:`~knowledgepulse_worker.stream.client.Client`, as aiokafka's consumer does."""

    def __init__(self, cluster, host, topic, lease, session, rebalance, moment=lambda _: None):
        self.ids = []
        self._connection = Connection(cluster, host, "member")
        self._cluster = cluster
        self._topic = topic
        self._lease = lease
        self._session = session
        self._rebalance = rebalance
        self._moment = moment
        self._loop = cluster.loop
        self._listener = None
        self._member = ""
        self._generation = -1
        self._assigned = {}
        self._fetching = {}
        self._tasks = []
        self._heartbeat = None
        self._rejoin = asyncio.Event()
        self._arrived = asyncio.Event()

    @property
    def is_member(self):
        return self._generation >= 0

    @property
    def id(self):
        """Its present name in the group; empty outside it."""
        return self._member

    async def start(self):
        await asyncio.sleep(0)

    async def stop(self):
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

    def subscribe(self, *, topics, listener):
        if set(topics) != {self._topic}:
            raise ValueError(f"there is only {self._topic}, not {', '.join(topics)}")
        self._listener = listener
        self._rejoin.set()
        self._tasks.append(asyncio.create_task(self._coordinate()))

    def check_membership(self):
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    # --- membership

    async def _coordinate(self):
        """Join whenever a rebalance is due: revoke first, then join and sync, then assign."""
        while True:
            await self._rejoin.wait()
            self._moment("revoking")
            await self._listener.on_partitions_revoked(self.assignment())
            while not await self._join():
                await asyncio.sleep(BACKOFF)
            # The client may fetch before the listener hears of the assignment.
            await asyncio.sleep(self._cluster.random.choice((0.0, 0.0, 0.05)))
            self._moment("assigned")
            await self._listener.on_partitions_assigned(self.assignment())
            self._heartbeat = asyncio.create_task(self._beat())

    async def _join(self):
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
        self.ids.append(joined.member)
        self._rejoin.clear()
        places = None if joined.members is None else assign(self._places(), joined.members)
        sent_at = self._loop.time()
        try:
            mine = await self._connection.coordinate(group.sync, self._member, self._generation, places)
        except (UnknownMemberIdError, IllegalGenerationError):
            self._reset()
            return False
        except KafkaError as error:
            if isinstance(error, RebalanceInProgressError):
                self._lease.renew(sent_at)
            self._rejoin.set()
            return False
        self._lease.renew(sent_at)
        self._fetching_ends()
        self._assigned = {TopicPartition(*at): _Assigned() for at in mine}
        if self._assigned:
            self._tasks.append(asyncio.create_task(self._find_positions(dict(self._assigned))))
        return True

    def _places(self):
        return [(self._topic, number) for number in range(len(self._cluster.topics[self._topic].logs))]

    def _reset(self):
        self._member, self._generation = "", -1
        self._rejoin.set()

    async def _stop_heartbeat(self):
        task, self._heartbeat = self._heartbeat, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _beat(self):
        pause = interval = heartbeat_interval(self._session)
        while self._member:
            await asyncio.sleep(pause)
            pause = BACKOFF
            sent_at = self._loop.time()
            try:
                await self._connection.coordinate(
                    self._cluster.group.heartbeat, self._member, self._generation
                )
                self._lease.renew(sent_at)
                pause = interval
            except RebalanceInProgressError:
                self._lease.renew(sent_at)
                self._rejoin.set()
                pause = interval
            except (UnknownMemberIdError, IllegalGenerationError):
                self._moment("expelled")
                self._reset()
                return
            except KafkaError:
                pass

    # --- positions and commits

    async def _find_positions(self, assigned):
        """Start at the group's positions, or at the beginning."""
        committed = await self._committed(tuple(sorted((tp.topic, tp.partition) for tp in assigned)))
        for tp, state in assigned.items():
            position = committed[tp.topic, tp.partition]
            offset = (await self.beginning_offsets([tp]))[tp] if position is None else position.offset
            if state.position is None:
                state.position = offset
        self._arrived.set()

    async def _committed(self, places):
        while True:
            try:
                return await self._connection.coordinate(self._cluster.group.fetch_offsets, places)
            except KafkaError:
                await asyncio.sleep(BACKOFF)

    async def committed(self, partition):
        at = (partition.topic, partition.partition)
        return (await self._committed((at,)))[at]

    async def commit(self, positions):
        self._require_assigned(*positions)
        places = {(tp.topic, tp.partition): position for tp, position in positions.items()}
        self._moment("commit sent")
        generation = self._generation
        while True:
            if self._generation != generation:  # as `GroupMember.commit`
                raise CommitFailedError
            try:
                await self._connection.coordinate(
                    self._cluster.group.commit, self._member, generation, places
                )
            except (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError) as error:
                if isinstance(error, RebalanceInProgressError):
                    self._rejoin.set()
                else:
                    self._reset()
                raise CommitFailedError from error
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(BACKOFF)
            else:
                self._moment("committed")
                return

    def assignment(self):
        return self._assigned.keys()  # unlike a set's, their order does not depend on the hashes of strings

    def partitions_for_topic(self, topic):
        found = self._cluster.topics.get(topic)
        return None if found is None else set(range(len(found.logs)))

    def pause(self, *partitions):
        self._require_assigned(*partitions)
        for one in partitions:
            self._assigned[one].is_paused = True

    def resume(self, *partitions):
        self._require_assigned(*partitions)
        for one in partitions:
            self._assigned[one].is_paused = False

    def seek(self, partition, offset):
        self._require_assigned(partition)
        self._restart(self._assigned[partition], offset)

    async def seek_to_beginning(self, *partitions):
        self._require_assigned(*partitions)
        states = {one: self._assigned[one] for one in partitions}
        begins = await self.beginning_offsets(partitions)
        for one, state in states.items():
            self._restart(state, begins[one])

    @staticmethod
    def _restart(state, offset):
        state.position, state.records, state.following = offset, [], 0

    async def position(self, partition):
        self._require_assigned(partition)
        state = self._assigned[partition]
        while state.position is None:
            await asyncio.sleep(BACKOFF)
            self._require_assigned(partition)
        return state.position

    async def beginning_offsets(self, partitions):
        begins = {}
        for tp in sorted(partitions):
            at = (tp.topic, tp.partition)
            begins[tp] = await self._connection.ask_leader(
                at, lambda broker, at=at: self._cluster.bounds(broker, *at).start
            )
        return begins

    def highwater(self, partition):
        self._require_assigned(partition)
        return self._assigned[partition].high

    def last_stable_offset(self, partition):
        self._require_assigned(partition)
        return self._assigned[partition].stable

    def last_poll_timestamp(self, partition):
        self._require_assigned(partition)
        return self._assigned[partition].polled

    def _require_assigned(self, *partitions):
        if missing := set(partitions) - self._assigned.keys():
            raise IllegalStateError(f"not assigned: {missing}")

    # --- fetching

    async def getmany(self, *, timeout_ms):
        self.check_membership()
        fetched = self._take()
        if not fetched:
            self._arrived.clear()
            self._fetch()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._arrived.wait()
            fetched = self._take()
        self._fetch()
        self.check_membership()
        return fetched

    def _take(self):
        fetched = {}
        for tp, state in sorted(self._assigned.items()):
            if state.following and not state.is_paused:
                if state.records:
                    fetched[tp] = state.records
                state.position, state.records, state.following = state.following, [], 0
        return fetched

    def _fetch(self):
        """Fetch what is not there yet, with one request per broker."""
        wanted = {}
        for tp, state in sorted(self._assigned.items()):
            if state.position is not None and not state.following and not state.is_paused:
                wanted.setdefault(self._connection.leader((tp.topic, tp.partition)), {})[tp] = state
        for broker, states in wanted.items():
            if broker not in self._fetching:
                self._fetching[broker] = task = asyncio.create_task(self._fetch_from(broker, states))
                task.add_done_callback(lambda _, broker=broker: self._fetching.pop(broker, None))

    def _fetching_ends(self):
        for task in self._fetching.values():
            task.cancel()
        self._fetching.clear()

    async def _fetch_from(self, broker, states):
        positions = {(tp.topic, tp.partition): state.position for tp, state in states.items()}
        try:
            answers = await self._connection.call(
                broker, lambda reply: self._cluster.fetch(broker, positions, FETCH_COUNT, reply)
            )
        except KafkaError:
            await asyncio.sleep(BACKOFF)
            self._connection.refresh()
            return
        for tp, state in states.items():
            answer, asked = answers[tp.topic, tp.partition], positions[tp.topic, tp.partition]
            if state.position != asked or state.following:
                continue  # sought meanwhile
            state.polled = int((EPOCH + self._loop.time()) * 1000)
            if answer.error is OffsetOutOfRangeError:
                state.position = (await self.beginning_offsets([tp]))[tp]
            elif answer.error is not None:
                self._connection.refresh()
            else:
                state.high, state.stable = answer.high, answer.stable
                state.records = [record(tp.topic, tp.partition, one) for one in answer.records]
                state.following = answer.next if answer.next > asked else 0
        self._arrived.set()


def assign(places, members):
    """Assign places evenly, most of them to those who had them."""
    share = -(-len(places) // len(members))
    given = {member: [] for member in sorted(members)}
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


def record(topic, partition, one):
    size = -1 if one.value is None else len(one.value)
    return ConsumerRecord(
        topic, partition, one.offset, one.timestamp_ms, 0, one.key, one.value, None, -1, size, one.headers
    )


class SimTopicIds:
    """Implements :class:`~knowledgepulse_worker.stream.client.TopicIdentity`; asks the leaders."""

    def __init__(self, cluster, host, topic):
        self._connection = Connection(cluster, host, "ids")
        self._cluster = cluster
        self._topic = topic
        self._previous = set()
        self._current = b""

    async def start(self):
        """Connect to nothing."""

    async def stop(self):
        """Close nothing."""

    async def current(self, partitions):
        numbers = sorted(partitions)
        while True:
            found = {await self._look_up(number) for number in numbers}
            if len(found) == 1 and (one := found.pop()) not in self._previous:
                if self._current not in (b"", one):
                    self._previous.add(self._current)
                self._current = one
                return one
            await asyncio.sleep(BACKOFF)

    async def _look_up(self, number):
        at = (self._topic, number)
        return await self._connection.ask_leader(at, lambda broker: self._cluster.find(broker, *at).id)


class SimReader:
    """Implements :class:`~knowledgepulse_worker.kafka.topic_reader.Reader`; connects on entry."""

    def __init__(self, cluster, host, timeout=REQUEST_TIMEOUT):
        self._connection = Connection(cluster, host, "reader", timeout)
        self._cluster = cluster
        self._timeout = timeout

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        """Close nothing."""

    async def bounds(self, topic, partition):
        return await self._connection.ask_leader(
            (topic, partition), lambda broker: self._cluster.bounds(broker, topic, partition)
        )

    async def first_since(self, topic, partition, timestamp_ms):
        records = self._cluster.topics[topic].logs[partition].records
        return next((one.offset for one in records if one.timestamp_ms >= timestamp_ms), None)

    async def read(self, topic, partition, offsets):
        position, at = offsets.start, (topic, partition)
        while position < offsets.stop:
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await self._fetch(at, position)
            except TimeoutError:
                raise TopicError(f"{topic}/{partition}: no records") from None
            for one in answer.records:
                if one.offset < offsets.stop:
                    yield record(topic, partition, one)
            position = answer.next

    async def _fetch(self, at, position):
        while True:
            broker = self._connection.leader(at)
            with suppress(KafkaError):
                answers = await self._connection.call(
                    broker,
                    lambda reply, broker=broker, position=position: self._cluster.fetch(
                        broker, {at: position}, 100, reply
                    ),
                )
                if answers[at].error is OffsetOutOfRangeError:
                    position = (await self.bounds(*at)).start
                    continue
                if answers[at].error is None and answers[at].next > position:
                    return answers[at]
            await asyncio.sleep(BACKOFF)
            self._connection.refresh()


@dataclass(eq=False)
class _Batch:
    since: float
    records: list[OutputRecord] = field(default_factory=list)
    deliveries: list[asyncio.Future] = field(default_factory=list)
    bytes: int = 0
    is_closed: bool = False


class SimPublisher:
    """Implements :class:`~knowledgepulse_worker.records.publisher.Publisher`, as aiokafka's producer does."""

    def __init__(self, cluster, host, lease, timeout, taken=lambda _: None, writer=""):
        self._connection = Connection(cluster, host, "producer", timeout)
        self._cluster = cluster
        self._lease = lease
        self._timeout = timeout
        self._taken = taken
        self._writer = writer
        self._loop = cluster.loop
        self._queues = {}
        self._muted = set()
        self._busy = set()
        self._has_failed = False
        self._due = None
        self._tasks = set()

    async def start(self):
        """Connect to nothing."""

    async def stop(self):
        await self.flush()

    async def send(self, record):
        await self._lease.hold()
        return self._add(record, alone=False)

    async def send_alone(self, record):
        try:
            return await self._confirmed_alone(record)
        except TimestampError:
            if record.timestamp_ms != NO_TIMESTAMP:
                raise
        return await self._confirmed_alone(record)

    async def _confirmed_alone(self, record):
        await self._lease.hold()
        return await self._add(record, alone=True)

    async def flush(self):
        while waiting := [
            one for queue in self._queues.values() for batch in queue for one in batch.deliveries
        ]:
            await asyncio.wait([asyncio.shield(one) for one in waiting])
            await asyncio.sleep(0)

    def _add(self, record, *, alone):
        self._taken(record)
        partition = record.partition
        if partition is None:
            topic = self._cluster.topics.get(record.topic)
            partition = crc32(record.key or b"") % len(topic.logs) if topic else 0
        queue = self._queues.setdefault((record.topic, partition), deque())
        size = len(record.key or b"") + len(record.value or b"")
        batch = queue[-1] if queue else None
        full = batch is None or batch.is_closed or batch.bytes + size > BATCH_BYTES
        if full or alone:
            if batch is not None:
                batch.is_closed = True
            batch = _Batch(self._loop.time())
            queue.append(batch)
        batch.is_closed = alone
        batch.records.append(record)
        batch.bytes += size
        inner = self._loop.create_future()
        batch.deliveries.append(inner)
        if self._has_failed:
            self._send_no_more()
        self._wake(0.005)
        return _result_of(inner)

    def _send_no_more(self):
        """Fail what was not sent yet; requests under way go on."""
        self._has_failed = True
        for at, queue in self._queues.items():
            under_way = 1 if at in self._muted else 0
            while len(queue) > under_way:
                self._settle(at, queue.pop(), RequestTimedOutError())

    def _wake(self, delay):
        if self._due is None or self._due.cancelled():
            self._due = self._loop.call_later(delay, self._drain)

    def _drain(self):
        """Send the first batch of each partition to its leader, one request per broker at a time."""
        self._due = None
        if self._has_failed:
            return
        requests = {}
        for at in sorted(at for at, queue in self._queues.items() if queue and at not in self._muted):
            batch = self._queues[at][0]
            broker = self._connection.leader(at)
            if broker not in self._busy:
                batch.is_closed = True
                requests.setdefault(broker, {})[at] = batch
        for broker, batches in requests.items():
            self._busy.add(broker)
            self._muted.update(batches)
            task = asyncio.create_task(self._request(broker, batches))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _request(self, broker, batches):
        contents = {at: tuple(batch.records) for at, batch in batches.items()}
        try:
            results = await self._connection.ask(
                broker, lambda: self._cluster.produce(broker, contents, self._writer)
            )
        except KafkaError as error:
            results = dict.fromkeys(batches, error)
        again = False
        for at, batch in batches.items():
            result = results[at]
            expired = self._loop.time() - batch.since > self._timeout
            if isinstance(result, KafkaError) and result.retriable and not expired:
                again = True
                continue
            self._queues[at].popleft()
            self._settle(at, batch, result)
        self._busy.discard(broker)
        if again:
            await asyncio.sleep(BACKOFF)
            self._connection.refresh()
        self._muted.difference_update(batches)
        self._wake(0.0)

    def _settle(self, at, batch, result):
        for number, delivery in enumerate(batch.deliveries):
            if delivery.done():
                continue
            if isinstance(result, int):
                delivery.set_result(result + number)
                continue
            where = f"{at[0]}, partition {at[1]}: {type(result).__name__}"
            if isinstance(result, MessageSizeTooLargeError):
                delivery.set_exception(TooLargeError(where))
            elif isinstance(result, InvalidTimestampError):
                delivery.set_exception(TimestampError(where))
            else:
                delivery.set_exception(DeliveryError(where))
        if isinstance(result, Exception) and not isinstance(result, _REFUSALS) and not self._has_failed:
            self._send_no_more()


def _result_of(inner):
    """Return a future that follows another: a caller that cancels it does not recall its record."""
    outer = asyncio.get_running_loop().create_future()

    def settle(_):
        if outer.done():
            inner.exception()
        elif error := inner.exception():
            outer.set_exception(error)
        else:
            outer.set_result(inner.result())

    inner.add_done_callback(settle)
    return outer
