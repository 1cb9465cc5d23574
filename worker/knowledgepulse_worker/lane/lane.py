"""A lane: one partition's pipeline, from a raw record to the offset that is committed.

Records overlap, but each step happens in offset order:

1. take (here): once there is room, by number, by bytes and by the distance from the commit, which bounds what
   can be redelivered. The record is decoded, and its embedding requested.
2. score (``scorer``, ``ring``): against the vectors of the records before it. The outcome is in the ledger.
3. remember (``delivery``): the ledger entry is sent to the changelog.
4. publish (``delivery``): once the broker has confirmed the entry and all before it. An output without an
   entry would get another score when its record is redelivered.
5. confirm (``delivery``): the broker has confirmed the output. What it refuses becomes a dead letter.
6. finish (here): once the redacted copy is confirmed, if there is one, the watermark moves up: every record
   below it has its one outcome.
7. commit (``stream.source``): the watermark, each second and before the partition is revoked, and only as a
   member of the group. What was not committed is redelivered, and published as its entry says.

A failed send stops the lane at that record, and ends the process; nothing after it is committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace as replace_fields

from knowledgepulse_worker.embedding.base import Embedder
from knowledgepulse_worker.embedding.batcher import Batcher, Embedded
from knowledgepulse_worker.errors import DeliveryError, InvalidRecordError
from knowledgepulse_worker.lane.delivery import Delivery
from knowledgepulse_worker.lane.reporter import Reporter
from knowledgepulse_worker.lane.retention import RetentionCheck
from knowledgepulse_worker.lane.ring import Changelog, Ledger, add_to_cache
from knowledgepulse_worker.lane.scorer import LaneScorer, bounded_failure, failed_entry
from knowledgepulse_worker.lane.stages import (
    Confirmed,
    Decoded,
    Published,
    Redelivered,
    Remembered,
    Scored,
    Taken,
    Undecodable,
)
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import PolicyInForce
from knowledgepulse_worker.records.decode import check_readable, decode_inputs, decode_trace
from knowledgepulse_worker.records.entry import Entry, Failure
from knowledgepulse_worker.records.journal import Journal, Phase, Treatment
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.publisher import Publisher, retrieve_exception
from knowledgepulse_worker.records.record import RawRecord
from knowledgepulse_worker.redaction.copies import Redaction
from knowledgepulse_worker.scoring import VectorCache, embedding_text
from knowledgepulse_worker.settings import Settings

if TYPE_CHECKING:
    from knowledgepulse_worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)

LARGE_RING = 2_000
"""``cache.max_elements`` above which a ledger is opened in a thread.

Opening the largest ledger takes seconds, which must not delay the group's heartbeats.
"""

COPIES_LIMIT = 1.0
"""Seconds that a draining lane waits for redacted copies; redelivery takes care of all others."""


@dataclass(frozen=True)
class Services:
    """The dependencies from which a worker is assembled and which all its lanes share.

    Attributes:
        settings: the effective settings.
        policy: the policy in force.
        batcher: embeds the texts; None without an embedder, in which case novelty is 0.5.
        outputs: builds the outputs.
        publisher: sends entries and outputs; already started.
        changelog_topic: the name of the changelog topic.
        metrics: observes everything.
        retention_check: detects outputs that are soon deleted; None if no output topic deletes by age.
        redaction: publishes redacted copies of contributed traces; None if there are none.
        tracing: exports a span for every record; None to export none.
        journal: tracks records in progress and knows how to treat suspects.
    """

    settings: Settings
    policy: PolicyInForce
    batcher: Batcher | None
    outputs: Outputs
    publisher: Publisher
    changelog_topic: str
    metrics: Metrics
    retention_check: RetentionCheck | None = None
    redaction: Redaction | None = None
    tracing: Tracing | None = None
    journal: Journal = field(default_factory=Journal)

    @property
    def embedder(self) -> Embedder | None:
        """The batcher's embedder."""
        return None if self.batcher is None else self.batcher.embedder

    @property
    def model(self) -> str:
        """The embedder's identity; empty without one."""
        return "" if self.embedder is None else self.embedder.identity


class Lane:
    """A partition's pipeline, created with its first record and closed when the partition is revoked.

    Args:
        first: the first record, still to be passed to :meth:`take`.
        committed: the group's committed offset; beyond the first record after a rewind.
        changelog: the partition's recovered entries.
        services: dependencies shared by all lanes.
        on_failure: called on a fatal error; the process must then end.
        request_commit: asks for a commit soon.

    Attributes:
        watermark: the offset to commit; the output of every record below it is confirmed.
        next_offset: the offset below which every record has been taken.
        topic_id: the id of the topic that the records come from.
    """

    def __init__(
        self,
        first: RawRecord,
        committed: int,
        changelog: Changelog,
        services: Services,
        on_failure: Callable[[BaseException], None],
        request_commit: Callable[[], None],
    ) -> None:
        self.partition = first.partition
        self.topic_id = first.topic_id
        self.watermark = self.next_offset = self._scored = first.offset
        self._committed = max(committed, first.offset)
        self._services = services
        self._limits = services.settings.limits
        self._metrics = services.metrics
        self._journal = services.journal
        self._on_failure = on_failure
        self._request_commit = request_commit
        self._ledger = Ledger(
            changelog, services.settings.cache.max_elements, services.settings.limits.uncommitted_records
        )
        self._cache = VectorCache(
            services.settings.cache.max_elements,
            services.settings.cache.dimensions,
            services.settings.cache.ttl,
        )
        self._scorer = LaneScorer(self._cache, services.embedder, services.metrics)
        self._delivery = Delivery(
            self.partition,
            changelog,
            services.changelog_topic,
            self._ledger,
            services.outputs,
            services.publisher,
            services.metrics,
        )
        self._reporter = Reporter(services.metrics, services.retention_check, services.tracing)
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._unconfirmed = 0
        self._unfinished = 0
        self._closing = False
        self._changed = asyncio.Event()
        self._to_score: asyncio.Queue[Taken] = asyncio.Queue()
        self._to_remember: asyncio.Queue[Scored] = asyncio.Queue()
        self._to_publish: asyncio.Queue[Remembered] = asyncio.Queue()
        self._to_confirm: asyncio.Queue[Published] = asyncio.Queue()
        self._to_finish: asyncio.Queue[Confirmed] = asyncio.Queue()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Rebuild the novelty cache from the ledger and start.

        After a rewind, wait until the earlier position is committed. Otherwise, after a crash, a successor
        would resume at the old position with a ledger that was already rewritten for the records before it.
        """
        while self._committed > self.watermark and not self._closing:
            self._request_commit()
            await self._wait_for_change()
        if self._closing:
            return
        rebuild = partial(
            self._ledger.open, self.next_offset, self._cache, self._services.model, self.topic_id
        )
        if self._services.settings.cache.max_elements > LARGE_RING:
            evicted, reason = await asyncio.to_thread(rebuild)
            if self._closing:
                return
        else:
            evicted, reason = rebuild()
        if reason is not None:
            logger.warning("partition %d: invalid entries cut from the ledger: %s", self.partition, reason)
            self._metrics.cache_reset(reason)
        await self._delivery.send_tombstones(evicted)
        self._metrics.cache_size(self.partition, self._cache.size)
        if self._closing:
            return
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            "score": self._score_next,
            "remember": self._remember_next,
            "publish": self._publish_next,
            "confirm": self._confirm_next,
            "finish": self._finish_next,
        }
        for name, step in steps.items():
            self._tasks[name] = asyncio.create_task(_repeat(step), name=f"lane {self.partition} {name}")
            self._tasks[name].add_done_callback(self._step_ended)

    async def take(self, record: RawRecord) -> float:
        """Take the next record once there is room for it; return when its embedding is requested.

        Only as many records are decoded as the batcher has room for; all others wait in the source and in
        Kafka. Records arrive in offset order; compaction and transactions leave gaps. A closing lane ignores
        every record, since it will be redelivered.

        Returns:
            the seconds for which this blocked the event loop.
        """
        taken_at = time.monotonic()
        await self._wait_for_room(record)
        if self._closing:
            return 0.0
        self.next_offset = record.offset + 1
        if self._journal.treatment(record.location) is Treatment.SKIPPED:
            self._skip(record)
            return 0.0
        self._count(1, record.size)
        self._journal.begin(record.location)
        started = time.monotonic()
        entry = self._ledger.find(record)
        taken = Redelivered(record, taken_at, entry) if entry else self._decode(record, taken_at)
        blocked = time.monotonic() - started
        taken = await self._request_embedding(taken)
        if not self._closing:
            self._to_score.put_nowait(taken)
        else:
            _cancel_embedding(taken)
        return blocked

    def committed(self, offset: int) -> None:
        """Record the committed offset and wake a lane that waits for it."""
        self._committed = offset
        self._changed.set()

    async def wait_idle(self) -> None:
        """Wait until nothing is in flight, or the lane closes."""
        while self._in_flight and not self._closing:
            await self._wait_for_change()

    async def drain(self, limit: float) -> None:
        """Stop taking records, drop unscored records, finish scored records and close.

        Records that then only wait for their redacted copies get :data:`COPIES_LIMIT` in total, since the
        user's function may take longer for a full lane than a rebalance lasts.

        Args:
            limit: seconds to wait for the broker's confirmations.

        Raises:
            DeliveryError: the broker did not confirm in time.
        """
        self._closing = True
        self._changed.set()
        await self._stop("score")
        try:
            async with asyncio.timeout(limit):
                while self._unconfirmed and not self._failed():
                    await self._wait_for_change()
            with suppress(TimeoutError):
                async with asyncio.timeout(COPIES_LIMIT):
                    while self._unfinished and not self._failed():
                        await self._wait_for_change()
        except TimeoutError:
            raise DeliveryError(
                f"partition {self.partition}: {self._unconfirmed} records unconfirmed after {limit:g} s "
                "(limits.drain)"
            ) from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop at once; records in flight will be redelivered."""
        self._closing = True
        self._changed.set()
        for name in self._tasks:
            await self._stop(name)
        while not self._to_score.empty():
            _cancel_embedding(self._to_score.get_nowait())
        self._count(-self._in_flight, -self._in_flight_bytes)
        self._unconfirmed = self._unfinished = 0
        self._changed.set()  # a drain in progress has nothing left to wait for
        self._journal.end_partition(self.partition)

    async def _wait_for_room(self, record: RawRecord) -> None:
        """Wait until a record may be taken or the lane closes; request a commit if that is needed."""
        while not self._closing:
            if self._in_flight == 0:
                self._pass_gap(record.offset)
            if self._is_far_from_commit(record):
                self._request_commit()
            elif self._has_room(record):
                return
            await self._wait_for_change()

    def _pass_gap(self, offset: int) -> None:
        """Move the watermark up to an offset across a gap, which needs no output."""
        self.watermark = max(self.watermark, offset)

    def _is_far_from_commit(self, record: RawRecord) -> bool:
        return record.offset - self._committed >= self._limits.uncommitted_records

    def _has_room(self, record: RawRecord) -> bool:
        return self._in_flight == 0 or (
            self._in_flight < self._limits.in_flight_records
            and self._in_flight_bytes + record.size <= self._limits.in_flight_bytes
        )

    def _skip(self, record: RawRecord) -> None:
        """Step over a record that is alone in flight, without an output."""
        logger.critical(
            "%s: SKIPPED without an output: every attempt killed the worker (limits.skip_poison)",
            record.source,
        )
        self._metrics.skipped_poison()
        entry = self._ledger.find(record)
        if entry is not None:  # it was scored before, so later records may have been compared with it
            self._add_to_cache(entry)
        self._scored = self.watermark = self.next_offset

    def _add_to_cache(self, entry: Entry) -> None:
        if entry.model == self._services.model:
            add_to_cache(self._cache, entry)

    def _is_poison(self, record: RawRecord) -> bool:
        return self._journal.treatment(record.location) is Treatment.DEAD_LETTER

    def _obstacle(self, record: RawRecord) -> Failure | None:
        """Return why a record can only become a dead letter, whatever its value."""
        if self._is_poison(record):
            return self._poison_failure(record)
        try:
            check_readable(record)
        except InvalidRecordError as error:
            return bounded_failure(error.reason, error)
        return None

    def _poison_failure(self, record: RawRecord) -> Failure:
        attempts = self._limits.poison_attempts
        logger.error("%s: dead-lettered as poison: it killed %d workers in a row", record.source, attempts)
        return Failure(
            "poison",
            InvalidRecordError.__name__,
            f"{attempts} processes in a row died at this record (limits.poison_attempts)",
        )

    def _decode(self, record: RawRecord, taken_at: float) -> Undecodable | Decoded:
        if failure := self._obstacle(record):
            return Undecodable(record, taken_at, failure)
        started = time.monotonic()
        try:
            trace = decode_trace(record.value, self._limits.trace_bytes)
        except InvalidRecordError as error:
            return Undecodable(record, taken_at, bounded_failure(error.reason, error))
        finally:
            self._metrics.stage("decode", time.monotonic() - started)
        return Decoded(record, taken_at, trace, embedding=None)

    async def _request_embedding(self, taken: Taken) -> Taken:
        if not isinstance(taken, Decoded) or self._services.batcher is None:
            return taken
        inputs = decode_inputs(taken.record.value or b"")
        text = embedding_text(taken.trace, self._services.settings.embedding.trace_text, inputs)
        embedding = await self._services.batcher.submit(text)
        embedding.add_done_callback(retrieve_exception)
        return Decoded(taken.record, taken.taken_at, taken.trace, embedding)

    async def _score_next(self) -> None:
        """Score one record; safe to cancel at any await, since no state is left half changed there."""
        taken = await self._to_score.get()
        if isinstance(taken, Redelivered) and taken.record.offset not in self._ledger:
            # An earlier record has cut the ledger since the look-up.
            taken = await self._request_embedding(self._decode(taken.record, taken.taken_at))
        embedded = await taken.embedding if isinstance(taken, Decoded) and taken.embedding else None
        self._add_unread_to_cache(taken.record.offset)
        scored = self._redeliver(taken) if isinstance(taken, Redelivered) else self._score(taken, embedded)
        self._journal.end(scored.record.location)
        self._unconfirmed += 1
        self._unfinished += 1
        self._to_remember.put_nowait(scored)

    def _add_unread_to_cache(self, offset: int) -> None:
        """Add the vectors of scored records before this offset that were deleted before a redelivery."""
        for entry in self._ledger.between(self._scored, offset):
            self._add_to_cache(entry)
        self._scored = offset + 1

    def _redeliver(self, taken: Redelivered) -> Scored:
        self._metrics.redelivered()
        entry, value = taken.entry, None
        self._add_to_cache(entry)
        failure = self._obstacle(taken.record) if entry.failure is None else None
        if failure is not None:
            # Keep the vector: later records may have been compared with it.
            entry = replace_fields(entry, decision=None, failure=failure)
            value, _ = self._ledger.put(entry)
        return Scored(taken, entry, value)

    def _score(self, taken: Undecodable | Decoded, embedded: Embedded | None) -> Scored:
        record = taken.record
        was_recreated = record.offset in self._ledger  # the entry there is another record's
        evicted = self._clear_ledger(record) if was_recreated else []
        counts = None
        if isinstance(taken, Undecodable):
            entry = failed_entry(record, taken.failure)
        else:
            policy = self._services.policy.policy
            entry, counts = self._scorer.score(record, taken.trace, embedded, taken.taken_at, policy)
        value, pushed_out = self._ledger.put(entry)
        self._metrics.cache_size(self.partition, self._cache.size)
        return Scored(taken, entry, value, embedded, evicted + pushed_out, counts)

    def _clear_ledger(self, record: RawRecord) -> list[int]:
        """Drop the entries of a deleted topic's records; return the offsets to tombstone."""
        logger.warning(
            "partition %d: offset %d now holds another record, so %s was recreated: ledger cut",
            self.partition,
            record.offset,
            record.topic,
        )
        self._metrics.cache_reset("recreated")
        self._cache.clear()
        return self._ledger.clear()

    async def _remember_next(self) -> None:
        scored = await self._to_remember.get()
        with self._sending(scored.record):
            # Tombstones are sent first, since the entry's own offset may be among them.
            await self._delivery.send_tombstones(scored.evicted)
            sent_at = time.monotonic()
            delivery = await self._delivery.send_entry(scored)
        self._to_publish.put_nowait(Remembered(scored, delivery, sent_at))

    async def _publish_next(self) -> None:
        remembered = await self._to_publish.get()
        with self._confirming(remembered.scored.record):
            scored = await self._delivery.confirm_entry(remembered)
        if remembered.delivery is not None:
            self._metrics.stage("remember", time.monotonic() - remembered.sent_at)
        with self._sending(scored.record):
            output = self._services.outputs.build(scored.record, scored.entry)
            sent_at = time.monotonic()
            delivery = await self._delivery.send(output)
        self._to_confirm.put_nowait(Published(scored, output, delivery, sent_at))

    async def _confirm_next(self) -> None:
        published = await self._to_confirm.get()
        with self._confirming(published.scored.record):
            confirmed = await self._delivery.confirm_output(published)
        self._metrics.stage("publish", time.monotonic() - published.sent_at)
        self._to_finish.put_nowait(confirmed)
        self._unconfirmed -= 1
        self._changed.set()

    async def _finish_next(self) -> None:
        confirmed = await self._to_finish.get()
        record, entry = confirmed.scored.record, confirmed.entry
        with self._confirming(record):
            if self._services.redaction is not None and entry.decision == "contribute":
                send = self._delivery.send_alone
                await self._services.redaction.publish(record, entry, confirmed.output, send)
            self._reporter.finished(confirmed)
        self.watermark = record.offset + 1
        self._unfinished -= 1
        self._count(-1, -record.size)
        self._changed.set()

    @contextmanager
    def _sending(self, record: RawRecord) -> Iterator[None]:
        """Journal a record while it is handed to the client, and keep its journal entry after an error."""
        self._journal.begin(record.location, Phase.SENDING)
        try:
            yield
        except asyncio.CancelledError:
            self._journal.end(record.location)
            raise
        self._journal.end(record.location)

    @contextmanager
    def _confirming(self, record: RawRecord) -> Iterator[None]:
        """Journal a record only after an error, since waiting for the broker is not work on the record."""
        try:
            yield
        except Exception:
            self._journal.begin(record.location, Phase.SENDING)
            raise

    def _count(self, records: int, size: int) -> None:
        self._in_flight += records
        self._in_flight_bytes += size
        self._metrics.in_flight(records, size)

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _step_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        self._changed.set()
        if error is not None:
            self._on_failure(error)

    def _failed(self) -> bool:
        return any(task.done() and not task.cancelled() for task in self._tasks.values())

    async def _stop(self, name: str) -> None:
        task = self._tasks.get(name)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])


async def _repeat(step: Callable[[], Awaitable[None]]) -> None:
    while True:
        await step()


def _cancel_embedding(taken: Taken) -> None:
    if isinstance(taken, Decoded) and taken.embedding is not None:
        taken.embedding.cancel()
