"""A lane: one partition's pipeline, from a raw record to its outcome in the next transaction.

Each step happens in offset order:

1. take: once there is room, by number and by bytes (``in_flight``). The record is read (``record_reader``),
   and its embedding requested.
2. score (``record_scorer``): once the embedding is there, against the vectors of the records before it.
3. complete: the output is built, the vector gets its place in the ledger (``partition_ledger``), and a
   redacted copy is requested if there is to be one.
4. commit (``commit``): one transaction for all lanes publishes what is complete, and commits its positions.

Until it is committed, nothing that a lane does has happened: a successor scores from the last commit, and
gets the same scores.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, takewhile
from operator import attrgetter

from msgspec.structs import replace

from knowledgepulse_kafka.errors import retrieve_exception
from knowledgepulse_kafka.records import OutputRecord, RawRecord
from knowledgepulse_kafka.throttle import Throttles
from knowledgepulse_worker.embedding.base import Embedder
from knowledgepulse_worker.embedding.batcher import Batcher, EmbeddedText
from knowledgepulse_worker.lane.in_flight import InFlight
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.partition_ledger import PartitionLedger
from knowledgepulse_worker.lane.record_reader import RecordReader
from knowledgepulse_worker.lane.record_scorer import RecordScorer, failed
from knowledgepulse_worker.lane.replacements import Replacements
from knowledgepulse_worker.lane.reporter import Reporter
from knowledgepulse_worker.lane.stages import Completed, DecodedRecord, TakenRecord, UndecodableRecord
from knowledgepulse_worker.lane.uncommitted import Uncommitted
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.policy import PolicyInForce
from knowledgepulse_worker.process.quarantine import Quarantine
from knowledgepulse_worker.scoring import LOOK_UPS
from knowledgepulse_worker.settings import Settings


@dataclass(frozen=True)
class Services:
    """The dependencies from which a worker is assembled and which all its lanes share.

    Attributes:
        settings: the effective settings.
        policy: the policy in force.
        batcher: embeds the texts; None without an embedder, in which case novelty is 0.5.
        replacements: builds outputs and redacted copies, and replaces those that their topics do not accept.
        changelog_topic: the name of the changelog topic.
        metrics: observes everything.
        shadow: compares the decisions with those of the shadow policy.
        reporter: reports the committed records.
        quarantine: the records that may kill the process.
        throttles: the times for which brokers throttle the clients.
    """

    settings: Settings
    policy: PolicyInForce
    batcher: Batcher | None
    replacements: Replacements
    changelog_topic: str
    metrics: Metrics
    shadow: ShadowComparison
    reporter: Reporter
    quarantine: Quarantine = field(default_factory=Quarantine)
    throttles: Throttles = field(default_factory=Throttles)

    @property
    def embedder(self) -> Embedder | None:
        """The batcher's embedder."""
        return None if self.batcher is None else self.batcher.embedder

    @property
    def model(self) -> str:
        """The embedder's identity; empty without one."""
        return "" if self.embedder is None else self.embedder.identity

    @cached_property
    def reader(self) -> RecordReader:
        """What reads the records."""
        return RecordReader(self.settings, self.quarantine, self.metrics.traces)


class Lane:
    """A partition's pipeline, created with its first record and closed when the partition is revoked.

    Args:
        first: the first record, still to be passed to :meth:`take`.
        changelog: the partition's committed entries.
        services: dependencies shared by all lanes.
        on_failure: called on a fatal error; the process must then end.
        request_commit: asks for a commit at once.
        on_complete: called when a record is complete behind no other that is not.

    Attributes:
        taken: the offset below which every record has been taken.
        topic_id: the id of the topic that the records come from.
        in_flight: the records that are taken and not committed.
        uncommitted: those of them that are scored.
        ledger: what the traces are scored against, and the records that keep it.
    """

    def __init__(
        self,
        first: RawRecord,
        changelog: Changelog,
        services: Services,
        on_failure: Callable[[BaseException], None],
        request_commit: Callable[[], None],
        on_complete: Callable[[], None],
    ) -> None:
        self.partition = first.partition
        self.topic_id = first.topic_id
        self.taken = first.offset
        self.in_flight = InFlight(services.settings.limits)
        self.uncommitted = Uncommitted()
        self.ledger = PartitionLedger(
            first,
            changelog,
            topic=services.changelog_topic,
            cache=services.settings.cache,
            model=services.model,
            metrics=services.metrics.lanes,
        )
        self._services = services
        self._on_failure = on_failure
        self._request_commit = request_commit
        self._on_complete = on_complete
        self._scorer = RecordScorer(self.ledger.state, services.embedder, services.metrics)
        self._waiting: deque[TakenRecord] = deque()
        self._is_closed = False
        self._changed = _Change()

    # --- take

    async def take(self, record: RawRecord, *, alone: bool = False) -> float:
        """Take the next record once there is room for it; return when its embedding is requested.

        Only as many records are decoded as the batcher has room for; all others wait in the source and in
        Kafka. Records arrive in offset order; compaction and transactions leave gaps. A closed lane ignores
        every record, since the partition's next owner reads it.

        Args:
            record: the record.
            alone: whether no other record is in progress in the process; return only once it is scored.

        Returns:
            the seconds for which this blocked the event loop.
        """
        taken_at = time.monotonic()
        while not self._is_closed and not self.in_flight.has_room(record.size):
            if self.uncommitted:
                self._request_commit()
            await self._changed.next()
        if self._is_closed or not self._begin(record, taken_at):
            return 0.0
        if not alone:
            return await self._process(record, taken_at)
        async with self._services.quarantine.alone(record.location):
            blocked = await self._process(record, taken_at)
            await self.wait_scored()
        return blocked

    def take_at_once(self, records: Iterable[RawRecord]) -> int:
        """Take the next records as far as they have nothing to wait for; return their number.

        Without an embedder, that are nearly all records, and the coroutines of :meth:`take` would cost as
        much as scoring one.
        """
        if self._services.batcher is not None or self._is_closed:
            return 0
        in_flight, read, count = self.in_flight, self._services.reader.read, 0
        with self._failing():
            for record in records:
                if not in_flight.has_room(record.size):
                    break
                count += 1
                if self._begin(record, taken_at := time.monotonic()):
                    self._complete(read(record, taken_at))
        if count:
            self._note_complete()
            if in_flight.is_half_full(len(self.uncommitted)):
                self._request_commit()
        return count

    def _begin(self, record: RawRecord, taken_at: float) -> bool:
        """Take a record; return whether it is to be read. One that is skipped is alone in flight."""
        self.taken = record.offset + 1
        self.in_flight.add(record.size)
        if (failure := self._services.reader.skipped(record)) is None:
            self._services.quarantine.announce(record.location)
            return True
        skipped = failed(UndecodableRecord(record, taken_at, failure), failure)
        self.uncommitted.append(Completed(skipped, skipped.entry))
        self._request_commit()
        return False

    async def _process(self, record: RawRecord, taken_at: float) -> float:
        batcher, reader = self._services.batcher, self._services.reader
        started = time.monotonic()
        taken = reader.read(record, taken_at)
        blocked = time.monotonic() - started
        if batcher is not None and isinstance(taken, DecodedRecord):
            embedding = await batcher.submit(reader.text(taken))
            embedding.add_done_callback(self._embedded)
            taken = replace(taken, embedding=embedding)
        if self._is_closed:
            _cancel_embedding(taken)
        else:
            self._waiting.append(taken)
            self._score_ready()
            if self.in_flight.is_half_full(len(self.uncommitted)):
                self._request_commit()
        return blocked

    # --- score

    def _embedded(self, embedding: asyncio.Future[EmbeddedText]) -> None:
        retrieve_exception(embedding)
        self._score_ready()

    def _score_ready(self) -> None:
        """Score the records whose predecessors are scored and whose embedding is there."""
        with self._failing():
            while self._waiting and self._waiting[0].is_ready:
                ready = [*islice(takewhile(attrgetter("is_ready"), self._waiting), LOOK_UPS)]
                self._scorer.expect(ready)
                for taken in ready:
                    self._complete(taken)
                    self._waiting.popleft()
                    self._changed.set()
                self._note_complete()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Take and score nothing more after an error, which ends the process; a future would only log it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._services.quarantine.close(blames_records=True)
            self._stop()
            self._on_failure(error)

    async def wait_scored(self) -> None:
        """Wait until everything taken is scored, or the lane closes."""
        while self._waiting:
            await self._changed.next()

    # --- complete

    def _complete(self, taken: TakenRecord) -> None:
        """Score a record and build what is published of it, in a task if there is to be a redacted copy."""
        if isinstance(taken, UndecodableRecord):
            scored = failed(taken, taken.failure)
        else:
            scored = self._scorer.score(taken, self._services.policy)
        replacements = self._services.replacements
        completed = replacements.complete(scored, taken.read, self.ledger.put(scored.entry))
        if (copying := replacements.copying(completed)) is None:
            self.uncommitted.append(completed)
        else:
            task = asyncio.create_task(copying)
            task.add_done_callback(self._copied)
            self.uncommitted.append(task)

    def _copied(self, task: asyncio.Task[Completed]) -> None:
        if task.cancelled():
            return
        if (error := task.exception()) is None:
            self._changed.set()
            self._note_complete()
        else:
            self._on_failure(error)

    def _note_complete(self) -> None:
        if self.waits_for_commit:
            self._on_complete()

    @property
    def is_scoring(self) -> bool:
        """Whether a record was taken that is not scored yet."""
        return bool(self._waiting)

    @property
    def waits_for_commit(self) -> bool:
        """Whether the oldest record that is not committed is complete."""
        return self.uncommitted.begins_complete

    def committed(self, batch: Sequence[Completed], written: Iterable[tuple[int, OutputRecord]]) -> None:
        """Finish the first records, which a transaction has committed; do nothing once closed.

        Args:
            batch: the records.
            written: the published records of the changelog with their offsets.
        """
        if not self.uncommitted:
            return
        self.ledger.committed(written)
        self.uncommitted.committed(len(batch))
        self.in_flight.release(batch)
        self._services.reporter.committed(batch)
        self._changed.set()

    async def wait_idle(self) -> None:
        """Wait until everything taken is committed, or the lane closes."""
        while self.in_flight.records and not self._is_closed:
            self._request_commit()
            await self._changed.next()

    def close(self) -> None:
        """Stop at once; the partition's next owner reads the records that are not committed."""
        self._stop()
        self.uncommitted.drop()
        self.in_flight.clear()

    def _stop(self) -> None:
        """Take and score no more records, and release whoever waits."""
        self._is_closed = True
        self._changed.set()
        for taken in self._waiting:
            _cancel_embedding(taken)
        self._waiting.clear()


class _Change(asyncio.Event):
    """Set whenever a lane changes."""

    async def next(self) -> None:
        """Wait for the next change."""
        self.clear()
        await self.wait()


def _cancel_embedding(taken: TakenRecord) -> None:
    if isinstance(taken, DecodedRecord) and taken.embedding is not None:
        taken.embedding.cancel()
