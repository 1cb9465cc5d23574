"""A lane: one partition's pipeline, from a raw record to its confirmed output.

Records overlap, but each step happens in offset order::

    take ─▶ decode ─▶ embed ─▶ score ─▶ remember ─▶ publish ─▶ finish
                      (batcher)         (ledger)    (outputs)  (watermark)

A record is published once the broker has confirmed its ledger entry and all before; the watermark moves
once it has confirmed the output, and the consumer commits the watermark. A send that fails stops the lane
where it is; nothing after it is committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from schemas import ReasoningTrace
from worker.embedding.base import Embedder
from worker.embedding.batcher import Batcher, Embedded
from worker.errors import DeliveryError, LedgerError, RejectedRecord, TooLargeError
from worker.observe.metrics import Metrics
from worker.policy import PolicyInForce
from worker.scoring import VectorCache, embedding_text
from worker.settings import CacheSettings, LimitSettings
from worker.stream.decode import decode_trace
from worker.stream.judge import MAX_MESSAGE, Judge, failed
from worker.stream.ledger import Changelog, Entry, Failure, Ledger, remember
from worker.stream.outputs import Outputs
from worker.stream.publisher import Publisher
from worker.stream.records import OutputRecord, RawRecord

if TYPE_CHECKING:
    from worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LaneServices:
    """What all lanes of a process share.

    Attributes:
        batcher: None where there is no embedder; novelty is then 0.5.
        changelog_topic: where ledger entries go.
        tracing: None where no spans are exported.
    """

    policy: PolicyInForce
    cache: CacheSettings
    limits: LimitSettings
    batcher: Batcher | None
    outputs: Outputs
    publisher: Publisher
    changelog_topic: str
    metrics: Metrics
    tracing: Tracing | None = None

    @property
    def embedder(self) -> Embedder | None:
        """The batcher's."""
        return None if self.batcher is None else self.batcher.embedder

    @property
    def model(self) -> str:
        """The embedder's identity; empty without one."""
        return "" if self.embedder is None else self.embedder.identity


@dataclass(slots=True)
class _Work:
    """A record on its way; each step fills in what the next one waits for."""

    record: RawRecord
    taken: float
    trace: ReasoningTrace | None = None
    failure: Failure | None = None
    embedding: asyncio.Future[Embedded] | None = None
    entry: Entry | None = None
    entry_value: bytes | None = None
    fallen: list[int] = field(default_factory=list)
    remembered: asyncio.Future[int] | None = None
    output: OutputRecord | None = None
    published: asyncio.Future[int] | None = None
    sent: float = 0.0


class Lane:
    """One partition's pipeline; made when the partition's first record comes, closed when it leaves.

    Args:
        partition: its number.
        next_offset: the offset of its first record.
        committed: where the group is; further than the first record, when the partition went back.
        changelog: what the partition remembers.
        services: what lanes share.
        on_failure: told when the lane can't go on; the process must then end.
        want_commit: asks for a commit soon.

    Attributes:
        watermark: every record below it has its output confirmed; what may be committed.
        next_offset: every record below it was taken.
    """

    def __init__(
        self,
        partition: int,
        next_offset: int,
        committed: int,
        changelog: Changelog,
        services: LaneServices,
        on_failure: Callable[[BaseException], None],
        want_commit: Callable[[], None],
    ) -> None:
        self.partition = partition
        self.watermark = next_offset
        self._committed = max(committed, next_offset)
        self.next_offset = next_offset
        self._changelog = changelog
        self._services = services
        self._limits = services.limits
        self._metrics = services.metrics
        self._on_failure = on_failure
        self._want_commit = want_commit
        self._ledger = Ledger(changelog, services.cache.max_elements, services.limits.uncommitted_records)
        self._cache = VectorCache(services.cache.max_elements, services.cache.dimensions, services.cache.ttl)
        self._judge = Judge(services.policy, self._cache, services.embedder, services.metrics)
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._scored = 0
        self._closing = False
        self._changed = asyncio.Event()
        self._to_score: asyncio.Queue[_Work] = asyncio.Queue()
        self._to_remember: asyncio.Queue[_Work] = asyncio.Queue()
        self._to_publish: asyncio.Queue[_Work] = asyncio.Queue()
        self._to_finish: asyncio.Queue[_Work] = asyncio.Queue()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Rebuild the novelty cache from the ledger, and start.

        A lane that goes back has that committed first. Else, whoever comes after a crash would go on where
        the group was, with a ledger that is already about what lies before that.
        """
        while self._committed > self.watermark and not self._closing:
            self._want_commit()
            await self._change()
        if self._closing:
            return
        fallen, reason = self._ledger.open(self.next_offset, self._cache, self._services.model)
        if reason is not None:
            logger.warning(
                "partition %d: the ledger was cut to what is still valid: %s", self.partition, reason
            )
            self._metrics.cache_reset(reason)
        await self._tombstone(fallen)
        self._metrics.cache_size(self.partition, self._cache.size)
        if self._closing:
            return
        steps = {
            "score": self._score_all,
            "remember": self._remember_all,
            "publish": self._publish_all,
            "finish": self._finish_all,
        }
        for name, step in steps.items():
            self._tasks[name] = asyncio.create_task(step(), name=f"lane {self.partition} {name}")
            self._tasks[name].add_done_callback(self._step_ended)

    async def take(self, record: RawRecord) -> float:
        """Take the next record, when there is room for it; returns once its embedding has been asked for.

        No more is decoded than the batcher has room for; the rest waits in Faust's buffers, and in Kafka.
        Records come in offset order; gaps are normal (compaction, transactions). Once the lane drains,
        every record is ignored: it will be delivered again.

        Returns:
            the seconds for which that kept the event loop from everything else.
        """
        taken = time.monotonic()
        while not self._closing and not self._has_room(record):
            await self._change()
        if self._closing:
            return 0.0
        self.next_offset = record.offset + 1
        self._count(1, record.size)
        work = _Work(record, taken)
        started = time.monotonic()
        self._prepare(work)
        kept = time.monotonic() - started
        await self._ask(work)
        if not self._closing:
            self._to_score.put_nowait(work)
        elif work.embedding is not None:
            work.embedding.cancel()
        return kept

    def committed(self, offset: int) -> None:
        """Note the committed position; a lane that waits for it goes on."""
        self._committed = offset
        self._changed.set()

    async def drain(self, limit: float) -> None:
        """Take no more, give up what nobody heard of yet, finish what was scored, and close.

        Args:
            limit: seconds for the broker to confirm.

        Raises:
            DeliveryError: it did not.
        """
        self._closing = True
        self._changed.set()
        await self._stop("score")
        try:
            async with asyncio.timeout(limit):
                while self._scored and not self._failed():
                    await self._change()
        except TimeoutError:
            raise DeliveryError(
                f"partition {self.partition}: {self._scored} unconfirmed in {limit:g} s (limits.drain)"
            ) from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop at once; what is in flight will be delivered again."""
        self._closing = True
        self._changed.set()
        for name in self._tasks:
            await self._stop(name)
        while not self._to_score.empty():
            embedding = self._to_score.get_nowait().embedding
            if embedding is not None:
                embedding.cancel()
        self._count(-self._in_flight, -self._in_flight_bytes)

    def _has_room(self, record: RawRecord) -> bool:
        if self._in_flight == 0:
            # Nothing lies between the watermark and this record but a gap, which needs no confirmation.
            self.watermark = max(self.watermark, record.offset)
        if record.offset - self._committed >= self._limits.uncommitted_records:
            self._want_commit()
            return False
        return self._in_flight == 0 or (
            self._in_flight < self._limits.in_flight_records
            and self._in_flight_bytes + record.size <= self._limits.in_flight_bytes
        )

    def _prepare(self, work: _Work) -> None:
        """Find the record's entry, or decode it."""
        entry = self._ledger.get(work.record.offset)
        if entry is not None and entry.fingerprint == work.record.fingerprint:
            work.entry = entry
        else:
            self._decode(work)

    def _decode(self, work: _Work) -> None:
        started = time.monotonic()
        try:
            work.trace = decode_trace(work.record.value, self._limits.trace_bytes)
        except RejectedRecord as error:
            work.failure = Failure(error.reason, type(error).__name__, str(error)[:MAX_MESSAGE])
        self._metrics.stage("decode", time.monotonic() - started)

    async def _ask(self, work: _Work) -> None:
        """Ask for the trace's embedding, if there is a trace, and an embedder."""
        if work.trace is not None and self._services.batcher is not None:
            work.embedding = await self._services.batcher.submit(embedding_text(work.trace))
            work.embedding.add_done_callback(_look)

    async def _score_all(self) -> None:
        """In offset order; cancelled at any time, since what it does between two waits is all or nothing."""
        while True:
            work = await self._to_score.get()
            if work.entry is not None and work.record.offset not in self._ledger:
                work.entry = None  # the ledger was cut since it was looked up
                self._decode(work)
                await self._ask(work)
            embedded = None if work.embedding is None else await work.embedding
            if work.entry is None:
                self._score(work, embedded)
            else:
                self._metrics.redelivered()
                if work.entry.model == self._services.model:
                    remember(self._cache, work.entry)
            self._scored += 1
            self._to_remember.put_nowait(work)

    def _score(self, work: _Work, embedded: Embedded | None) -> None:
        if work.record.offset in self._ledger:
            logger.warning(
                "partition %d: another record is at the known offset %d: a new topic, the ledger was cut",
                self.partition,
                work.record.offset,
            )
            self._metrics.cache_reset("recreated")
            work.fallen += self._ledger.clear()
            self._cache.clear()
        if work.trace is not None:
            work.entry = self._judge.scored(work.record, work.trace, embedded, work.taken)
        elif work.failure is not None:
            work.entry = failed(work.record, work.failure)
        else:
            raise LedgerError(f"{work.record.source} was to be scored before it was decoded")
        work.entry_value, fallen = self._ledger.put(work.entry)
        work.fallen += fallen
        self._metrics.cache_size(self.partition, self._cache.size)

    async def _remember_all(self) -> None:
        while True:
            work = await self._to_remember.get()
            await self._tombstone(work.fallen)  # before the entry, whose own offset may be among them
            if work.entry is not None and work.entry_value is not None:
                work.sent = time.monotonic()
                work.remembered = await self._send(
                    self._changelog_record(work.entry.offset, work.entry_value)
                )
            self._to_publish.put_nowait(work)

    async def _publish_all(self) -> None:
        while True:
            work = await self._to_publish.get()
            if work.remembered is not None:
                self._changelog.confirmed(await work.remembered)
                self._metrics.stage("remember", time.monotonic() - work.sent)
            if work.entry is None:
                raise LedgerError(f"{work.record.source} was to be published without an entry")
            work.output = self._services.outputs.build(work.record, work.entry)
            work.sent = time.monotonic()
            work.published = await self._send(work.output)
            self._to_finish.put_nowait(work)

    async def _finish_all(self) -> None:
        while True:
            work = await self._to_finish.get()
            await self._confirm(work)
            self._metrics.stage("publish", time.monotonic() - work.sent)
            self._observe_output(work)
            if self._services.tracing is not None:
                self._trace(work, self._services.tracing)
            self.watermark = work.record.offset + 1
            self._scored -= 1
            self._count(-1, -work.record.size)
            self._changed.set()

    async def _confirm(self, work: _Work) -> None:
        """Wait for the output; when its batch was refused as too large, send it alone, else bury it."""
        if work.published is None or work.output is None:
            raise LedgerError(f"{work.record.source} was to be finished without an output")
        try:
            await work.published
        except TooLargeError:
            self._metrics.retried()
            try:
                await self._services.publisher.send_alone(work.output)
            except TooLargeError as error:
                await self._bury(work, error)

    async def _bury(self, work: _Work, error: TooLargeError) -> None:
        """Publish a dead letter for what was refused; one that was refused itself goes with its value cut."""
        if work.entry is None:
            raise error
        publisher, outputs = self._services.publisher, self._services.outputs
        if work.entry.failure is None:
            failure = Failure("too_large", type(error).__name__, str(error))
            work.entry = replace(work.entry, decision=None, failure=failure)
            value, _ = self._ledger.put(work.entry)
            entry = self._changelog_record(work.entry.offset, value)
            self._changelog.confirmed(await publisher.send_alone(entry))
            work.output = outputs.build(work.record, work.entry)
            with suppress(TooLargeError):
                await publisher.send_alone(work.output)
                return
        work.output = outputs.build_cut(work.record, work.entry)
        await publisher.send_alone(work.output)

    def _observe_output(self, work: _Work) -> None:
        timestamp = work.record.timestamp_ms
        end_to_end = None if timestamp < 0 else time.time() - timestamp / 1000
        entry = work.entry
        if entry is None:
            return
        header = entry.header
        if entry.failure is not None:
            self._metrics.buried(entry.failure.reason, end_to_end)
        elif header is not None:
            self._metrics.published(header.domain, entry.outcome, header.score, end_to_end)
        self._metrics.recent.finished(
            entry.outcome,
            work.record.source,
            score=None if header is None else asdict(header),
            failure=None if entry.failure is None else asdict(entry.failure),
            trace_id=entry.trace_id,
            objective=None if work.trace is None else work.trace.task.objective,
            end_to_end=end_to_end,
        )

    def _trace(self, work: _Work, tracing: Tracing) -> None:
        record, entry = work.record, work.entry
        if entry is None or work.output is None:
            return
        score = entry.header
        embedded = None if work.embedding is None else work.embedding.result()
        tracing.finished(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            headers=record.headers,
            value=record.value,
            taken=work.taken,
            embedded=None if embedded is None else (embedded.started, embedded.finished),
            sent=work.sent,
            output=work.output.topic,
            verdict={
                "outcome": entry.outcome,
                "score": None if score is None else score.score,
                "domain": None if score is None else score.domain,
                "reason": None if entry.failure is None else entry.failure.reason,
                "redelivered": work.entry_value is None,
            },
        )

    async def _tombstone(self, offsets: list[int]) -> None:
        """Delete entries from the changelog; one that comes to nothing is deleted at the next start."""
        for offset in offsets:
            delivery = await self._send(self._changelog_record(offset, None))
            delivery.add_done_callback(self._tombstoned)

    def _tombstoned(self, delivery: asyncio.Future[int]) -> None:
        if not delivery.cancelled() and delivery.exception() is None:
            self._changelog.confirmed(delivery.result())

    async def _send(self, record: OutputRecord) -> asyncio.Future[int]:
        delivery = await self._services.publisher.send(record)
        delivery.add_done_callback(_look)
        return delivery

    def _changelog_record(self, offset: int, value: bytes | None) -> OutputRecord:
        return OutputRecord(
            topic=self._services.changelog_topic,
            partition=self.partition,
            timestamp_ms=-1,
            key=b"%d" % offset,
            value=value,
            headers=(),
        )

    def _count(self, records: int, size: int) -> None:
        self._in_flight += records
        self._in_flight_bytes += size
        self._metrics.in_flight(records, size)

    async def _change(self) -> None:
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


def _look(done: asyncio.Future[Any]) -> None:
    """Look at a future's error: when the lane stops at one, nobody waits for those behind it."""
    if not done.cancelled():
        done.exception()
