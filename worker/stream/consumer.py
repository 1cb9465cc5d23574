"""Faust's consumer, with commits that follow the lanes' watermarks instead of Faust's acks.

Faust 0.15's ack bookkeeping cannot say "published and confirmed": an actor that restarts never sees its
in-flight records again, gaps of transaction markers and compaction hold commits up, and on revoke it is
dropped before anyone is asked. So there are no acks here, and the lanes are asked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast
from uuid import UUID

import aiokafka
from aiokafka.errors import NoError, RebalanceInProgressError
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest
from faust.transport.consumer import RecordMap
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, AppT, Message
from faust.types.transports import ConsumerCallback, ConsumerT, TPorTopicSet
from mode import Service
from yarl import URL

from worker.observe.metrics import Metrics
from worker.stream.lanes import Lanes
from worker.stream.lease import Lease
from worker.stream.ledger import Entry
from worker.stream.records import fingerprint
from worker.stream.topic_id import topic_id

# Under this module's own name Faust tells what belongs to a rebalance, which is not shown.
logger = logging.getLogger(__package__)

# Seconds that one fetch waits for records; positions can't be put right meanwhile.
FETCH_WAIT = 0.2
# A broker answers a fetch by then, also when it has nothing. A partition whose records were taken meanwhile
# is fetched again only afterwards; Faust's second and a half would let it wait with a backlog.
ANSWER_MS = 100
SILENCE_MS = 10_000
# How long fetched records of a partition that is full keep its broker's other partitions from being fetched.
# The client's own tenth of a second would be felt by every partition beside a slow one.
PATIENCE = 0.01
# Seconds between two looks at whether raw is still the same topic.
TOPIC_INTERVAL = 1.0
# The coordinator knows the member: all is well, or a rebalance is under way.
_KNOWN = (NoError.errno, RebalanceInProgressError.errno)
# How far behind its position a partition is looked at again; each offset up to there is read twice.
MAX_CHECKED = 1000


@dataclass(frozen=True)
class _Check:
    """A record that is read again, to see whether the topic is still the one that the ledger is about.

    Attributes:
        entry: what the ledger knows of it.
        until: the records from here on are new.
    """

    entry: Entry
    until: int


class WatermarkConsumer(driver.Consumer):
    """Commits what the lanes have finished; reads committed records only."""

    lanes: Lanes
    lease: Lease
    metrics: Metrics
    raw_topic: str
    _resumed: set[TP]
    _positions: asyncio.Lock
    _activated: asyncio.Event
    _fetched: dict[TP, int]
    _checks: dict[TP, _Check]
    _next: dict[TP, int]
    _expected: dict[TP, int]
    _doubted: set[TP]
    _topic_ids: list[UUID]
    _is_new_topic: bool

    def attach(self, lanes: Lanes, lease: Lease, metrics: Metrics, raw_topic: str) -> None:
        """Say whose watermarks are committed, what the group renews, who is told; for which topic."""
        self.lanes, self.lease, self.metrics, self.raw_topic = lanes, lease, metrics, raw_topic
        self._resumed = set()
        self._positions = asyncio.Lock()
        self._activated = asyncio.Event()
        self._fetched = {}
        self._checks = {}
        self._next = {}
        self._expected = {}
        self._doubted = set()
        self._topic_ids = []
        self._is_new_topic = False

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _MemberThread(self, loop=self.loop, beacon=self.beacon)

    async def _getmany(
        self,
        active_partitions: set[TP] | None,
        timeout: float,  # noqa: ASYNC109 - Faust's
    ) -> RecordMap:
        """Fetch from what is active as the fetch begins, and never while positions are put right.

        Faust hands on its own set, which changes while the fetch waits. Once that is empty, aiokafka takes it
        for all partitions, and a record that Faust has paused is fetched, dropped, and never seen again.
        """
        async with self._positions:
            if not active_partitions:
                return {}
            records = await super()._getmany(set(active_partitions), min(timeout, FETCH_WAIT))
            self._fetched |= {
                tp: fetched[-1].offset
                for tp, fetched in records.items()
                if fetched and (tp not in self._checks or fetched[-1].offset >= self._checks[tp].until)
            }
            return records

    async def perform_seek(self) -> None:
        """Go to what is committed, once no fetch is under way whose records would be from elsewhere.

        The client leaves a partition where it is that nothing was committed of, also when records of it were
        fetched and dropped in a rebalance: it goes to its beginning. And a group keeps its positions when a
        topic is made anew: so the last record before each is read again.
        """
        async with self._positions:
            self._fetched.clear()
            self._checks.clear()
            self._next.clear()
            self._doubted.clear()
            await super().perform_seek()
            committed = {tp: self._committed_offset[tp] for tp in self._states()}
            new = [tp for tp, offset in committed.items() if not offset]
            places = await self.earliest_offsets(*new) if new else {}
            if places:
                await super().seek_wait(places)
            positions = {tp: offset for tp, offset in committed.items() if offset}
            self.lanes.committed({tp.partition: offset for tp, offset in positions.items()})
            self._expected = {**places, **positions, **await self._look_back(positions)}

    async def _look_back(self, positions: Mapping[TP, int]) -> dict[TP, int]:
        """Read the last known record before each position again; returns the offsets of those."""
        for tp, position in positions.items():
            entry = self.lanes.newest_before(tp.partition, position)
            if entry is not None and position - entry.offset <= MAX_CHECKED:
                self._checks[tp] = _Check(entry, until=position)
        places = {tp: check.entry.offset for tp, check in self._checks.items() if tp in positions}
        if places:
            await super().seek_wait(places)
        return places

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Go to these offsets, likewise."""
        async with self._positions:
            await super().seek_wait(partitions)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Message]]:  # noqa: ASYNC109 - Faust's
        """Fetch, and follow a partition that goes back, whose records Faust would drop silently."""
        await self._fetchable()
        if self._is_new_topic and self._states().keys() & self._get_active_partitions():
            await self._begin_anew()
        left: set[TP] = set()
        async for tp, message in super().getmany(timeout):
            if tp in left or await self._is_doubtful(tp, message, left):
                continue
            if await self._is_known(tp, message, left):
                continue
            read = self._read_offset[tp]
            if read is not None and message.offset < read:
                self._read_offset[tp] = message.offset
                await self._suspect_the_others(tp, left)
            if tp.topic == self.raw_topic:
                self._next[tp] = message.offset + 1
            yield tp, message

    async def _look_at_topic(self) -> None:
        """See that raw was made anew; where its position is valid there too, the client just goes on."""
        found = await cast("_MemberThread", self._thread).topic_id(self.raw_topic)
        if found is None or found in self._topic_ids:  # a broker that is late may still give an older one
            return
        if self._topic_ids:
            logger.warning("%s was made anew, and is read from its beginning", self.raw_topic)
            self._is_new_topic = True
        self._topic_ids.append(found)

    async def _begin_anew(self) -> None:
        """Read raw from its beginning, whatever was read of it since it was made anew."""
        self._is_new_topic = False
        for before in (self._checks, self._expected, self._next, self._doubted):
            before.clear()
        await self.seek_wait(await self.earliest_offsets(*self._states()))

    async def _fetchable(self) -> None:
        """Wait while every partition is full or paused; Faust would sleep a second, and the lanes run dry."""
        while self.flow_active and not self._get_active_partitions() and not self.should_stop:
            self._activated.clear()
            await self.wait(self._activated, timeout=1.0)  # type: ignore[arg-type]  # mode waits on asyncio's too

    async def _is_doubtful(self, tp: TP, message: Message, left: set[TP]) -> bool:
        """Return whether a partition's first record is not where it should be, and then fetch once more.

        Compaction and transactions leave such gaps. But so would records that were fetched in a rebalance and
        dropped, and those would never be seen again.
        """
        expected = self._expected.pop(tp, message.offset)
        if message.offset <= expected or tp in self._doubted:
            return False
        self._doubted.add(tp)
        left.add(tp)
        self._expected[tp] = expected
        await self.seek_wait({tp: expected})
        return True

    async def _is_known(self, tp: TP, message: Message, left: set[TP]) -> bool:
        """Return whether a record is only read again; another one in its place is a new topic's."""
        check = self._checks.get(tp)
        if check is None or not check.entry.offset <= message.offset < check.until:
            self._checks.pop(tp, None)
            return False
        same = fingerprint(message.key, message.value) == check.entry.fingerprint
        if message.offset == check.entry.offset and not same:
            logger.warning(
                "partition %d: another record is at offset %d: a new topic, read from its beginning",
                tp.partition,
                message.offset,
            )
            del self._checks[tp]
            left.add(tp)
            await self.seek_wait(await self.earliest_offsets(tp))
        return True

    async def _suspect_the_others(self, gone_back: TP, left: set[TP]) -> None:
        """Look back everywhere when a partition begins anew: in a new topic other positions may be valid."""
        positions = {
            tp: place for tp, place in self._next.items() if tp != gone_back and tp not in self._checks
        }
        async with self._positions:
            left.update(await self._look_back(positions))

    async def verify_all_partitions_active(self) -> None:
        """Do nothing: the watchdog looks better, and Faust's own look fails while a position is reset."""

    def _set_active_tps(self, tps: set[TP]) -> set[TP]:
        """Keep the raw topic out: Faust would fetch it from its assignment until it pauses it."""
        return super()._set_active_tps({tp for tp in tps if tp.topic != self.raw_topic})

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Let the raw topic wait for :meth:`resume_flow`.

        Faust resumes partitions after recovery, then seeks to what is committed and clears its buffers: what
        it has fetched by then would come twice, or never.
        """
        raw = {tp for tp in tps if tp.topic == self.raw_topic}
        self._resumed |= raw
        super().resume_partitions(set(tps) - raw)
        self._activated.set()

    def pause_partitions(self, tps: Iterable[TP]) -> None:
        """Pause, also what is about to be resumed."""
        paused = set(tps)
        self._resumed -= paused
        super().pause_partitions(paused)

    def resume_flow(self) -> None:
        """Begin to fetch, now that positions and buffers are right."""
        super().resume_flow()
        resumed, self._resumed = self._resumed, set()
        super().resume_partitions(resumed)
        self._activated.set()

    def on_buffer_drop(self, tp: TP) -> None:
        """Leave a paused partition alone: Faust would fetch it before its ledger is recovered."""
        if tp in self._paused_partitions:
            self._buffered_partitions.discard(tp)
        else:
            super().on_buffer_drop(tp)
            self._activated.set()

    def waiting(self) -> dict[int, Hashable]:
        """Return how far each partition has come where records wait, or the broker no longer answers."""
        states, marks = self._states(), self.lanes.watermarks()
        answered = max((state.timestamp or 0 for state in states.values()), default=0)
        silent = time.time() * 1000 - answered > SILENCE_MS
        places: dict[int, Hashable] = {}
        for tp, state in states.items():
            mark = marks.get(tp.partition)
            if self._holds_unfinished(tp, mark):
                places[tp.partition] = ("finished", mark)
            elif state.has_valid_position and state.lso is not None and state.position < state.lso:
                places[tp.partition] = ("fetched", state.position)
            elif silent:
                places[tp.partition] = ("answered", answered)
        return places

    def partition_count(self) -> int:
        """Return how many partitions raw has by the client's latest word; 0 when it is not there."""
        client = self._thread._consumer  # noqa: SLF001 - likewise
        return 0 if client is None else len(client.partitions_for_topic(self.raw_topic) or ())

    def failure(self) -> BaseException | None:
        """Return what ended the client's part in its group, if anything did.

        Only the client's own ways to fetch would raise it, and Faust has another one.
        """
        client = self._thread._consumer  # noqa: SLF001 - likewise
        coordinator = None if client is None else client._coordinator  # noqa: SLF001 - likewise
        if coordinator is None:
            return None
        routine: asyncio.Task[None] = coordinator._coordination_task  # noqa: SLF001 - likewise
        if routine.done() and not routine.cancelled() and (error := routine.exception()) is not None:
            return error
        return cast("BaseException | None", coordinator._pending_exception)  # noqa: SLF001 - likewise

    def lag(self) -> dict[int, int]:
        """Return how many offsets each partition has to go.

        Up to the last stable one, since nobody may read an open transaction; nothing once every record is
        finished, whatever other offsets there are behind it, such as a transaction's marker.
        """
        marks = self.lanes.watermarks()
        lags = {}
        for tp, state in self._states().items():
            if state.has_valid_position and state.lso is not None:
                mark = marks.get(tp.partition)
                place = mark if mark is not None and self._holds_unfinished(tp, mark) else state.position
                lags[tp.partition] = max(0, state.lso - place)
        return lags

    def _holds_unfinished(self, tp: TP, mark: int | None) -> bool:
        fetched = self._fetched.get(tp)
        return fetched is not None and (mark is None or fetched >= mark)

    def _states(self) -> dict[TP, Any]:
        """The client's own state of each partition of raw that it has."""
        client = self._thread._consumer  # noqa: SLF001 - the states are to be had in no other way
        subscription = None if client is None else client._subscription.subscription  # noqa: SLF001
        if subscription is None or subscription.assignment is None:
            return {}
        states = {tp: subscription.assignment.state_value(tp) for tp in subscription.assignment.tps}
        return {tp: state for tp, state in states.items() if tp.topic == self.raw_topic and state is not None}

    async def force_commit(
        self,
        topics: TPorTopicSet | None = None,
        start_new_transaction: bool = True,
    ) -> bool:
        """Commit every lane's watermark that has moved."""
        marks = {TP(self.raw_topic, partition): mark for partition, mark in self.lanes.watermarks().items()}
        offsets = {tp: mark for tp, mark in marks.items() if mark != self._committed_offset[tp]}
        if not offsets or not await self._commit(offsets):
            return False
        self._committed_offset.update(offsets)
        self.lanes.committed({tp.partition: mark for tp, mark in offsets.items()})
        now = time.time()
        for tp in offsets:
            self.metrics.committed(tp.partition, now)
        return True

    @Service.task
    async def _follow_topic(self) -> None:
        while not self.should_stop:
            await self._look_at_topic()
            await self.sleep(TOPIC_INTERVAL)

    @Service.task
    async def _commit_on_demand(self) -> None:
        while not self.should_stop:
            await self.wait(self.lanes.commit_wanted)  # type: ignore[arg-type]  # mode waits on asyncio's too
            self.lanes.commit_wanted.clear()
            await self.commit()

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Finish and commit before anything is taken away; called for all partitions at every rebalance.

        What the group has given to others already is left to them (``onPartitionsLost`` of Kafka's KIP-429).
        """
        await self._finish()
        await super().on_partitions_revoked(revoked)

    async def on_stop(self) -> None:
        """Finish and commit before the connection closes."""
        await self._finish()
        await super().on_stop()

    async def _finish(self) -> None:
        if not cast("_MemberThread", self._thread).is_member:
            await self.lanes.abandon()
            return
        try:
            await self.lanes.drain()
        except ExceptionGroup as error:
            # Left alone, the client library would log it and go on with the rebalance.
            await self.crash(error)
        # One that is under way may have begun before the last records were finished.
        await self.maybe_wait_for_commit_to_finish()
        await self.commit()
        self.lanes.let_go()


class _MemberThread(driver.AIOKafkaConsumerThread):
    async def on_start(self) -> None:
        """Connect."""
        await super().on_start()
        consumer = self._ensure_consumer()
        consumer._fetcher._prefetch_backoff = PATIENCE  # noqa: SLF001 - the client has no setting for it
        coordinator = consumer._coordinator  # noqa: SLF001 - it tells nobody of the answers
        coordinator._send_req = self._renewing(coordinator._send_req)  # noqa: SLF001 - likewise

    @property
    def is_member(self) -> bool:
        """Whether the group knows this worker, as far as the client has heard."""
        return self._consumer is not None and self._consumer._coordinator.generation >= 0  # noqa: SLF001 - told in no other way

    async def topic_id(self, topic: str) -> UUID | None:
        """Return a topic's id, if a broker gives one."""
        if self._consumer is None:
            return None
        # Not by the queue of this thread's calls, where it would wait for a fetch, and a commit for it.
        asking = topic_id(self._consumer._client, topic)  # noqa: SLF001 - the client has no request for it
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self.thread_loop))

    def _renewing(self, send: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """Let the coordinator's answers to what begins a session anew renew the lease."""

        async def send_and_renew(request: Any) -> Any:
            asked = time.monotonic()
            answer = await send(request)
            if isinstance(request, HeartbeatRequest | SyncGroupRequest) and answer.error_code in _KNOWN:
                cast("WatermarkConsumer", self.consumer).lease.renew(asked)
            return answer

        return send_and_renew

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        owned = {tp: offset for tp, offset in offsets.items() if tp in self.assignment()}
        # Outside of its group, a worker that was suspended would move back what others have committed since:
        # a broker takes the commit of nobody's member as soon as the group is empty.
        if not owned or not self.is_member:
            return False
        return bool(await super()._commit(owned))

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Faust fixes read_uncommitted unless it runs transactions itself, and has no settings for these; the
        # fetcher takes these attributes when the consumer starts.
        consumer._isolation_level = "read_committed"  # noqa: SLF001
        consumer._fetch_max_wait_ms = ANSWER_MS  # noqa: SLF001
        return consumer


class WatermarkTransport(driver.Transport):
    """Faust's Kafka transport with :class:`WatermarkConsumer`.

    Args:
        url: the brokers, as Faust takes them.
        app: the Faust app.
        lanes: whose watermarks are committed.
        lease: renewed while the group knows this worker.
        metrics: told of commits and rebalances.
        raw_topic: whose offsets are committed.
    """

    Consumer: ClassVar[type[ConsumerT]] = WatermarkConsumer

    def __init__(
        self, url: list[URL], app: AppT, lanes: Lanes, lease: Lease, metrics: Metrics, raw_topic: str
    ) -> None:
        super().__init__(url, app)
        self._lanes = lanes
        self._lease = lease
        self._metrics = metrics
        self._raw_topic = raw_topic

    def create_consumer(self, callback: ConsumerCallback, **kwargs: Any) -> ConsumerT:
        """Make the consumer, and tell it whom to ask."""
        consumer = super().create_consumer(callback, **kwargs)
        cast("WatermarkConsumer", consumer).attach(self._lanes, self._lease, self._metrics, self._raw_topic)
        return consumer
