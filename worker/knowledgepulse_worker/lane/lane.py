"""A lane: one partition's pipeline, from a raw record to its outcome in the next transaction.

Each step happens in offset order:

1. take: once there is room, by number and by bytes. The record is decoded, and its embedding requested.
2. score (``record_scorer``): once the embedding is there, against the vectors of the records before it.
3. complete: the output is built, the vector gets its place in the ledger (``ledger``), and a redacted copy
   is requested if there is to be one.
4. commit (``commit``): one transaction for all lanes publishes what is complete, and commits its positions.

Until it is committed, nothing that a lane does has happened: a successor scores from the last commit, and
gets the same scores.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from knowledgepulse_kafka.errors import retrieve_exception
from knowledgepulse_kafka.records import NO_TIMESTAMP, UNTIMED, OutputRecord, Position, RawRecord
from knowledgepulse_kafka.throttle import Throttles
from knowledgepulse_worker.embedding.base import Embedder
from knowledgepulse_worker.embedding.batcher import Batcher, EmbeddedText
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.lane.ledger import Changelog, Ledger, LedgerContent, valid_content
from knowledgepulse_worker.lane.record_scorer import RecordScorer, bounded_failure, failed
from knowledgepulse_worker.lane.replacements import Replacements
from knowledgepulse_worker.lane.reporter import Reporter
from knowledgepulse_worker.lane.stages import DecodedRecord, RecordOutcome, TakenRecord, UndecodableRecord
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.shadow import ShadowComparison
from knowledgepulse_worker.policy import PolicyInForce
from knowledgepulse_worker.records.decode import check_readable, decode_scorable
from knowledgepulse_worker.records.ledger_records import (
    POSITION_KEY,
    DomainScores,
    Entry,
    Failure,
    decode_vector,
    encode_position,
    encode_scores,
    scores_key,
    scores_version,
)
from knowledgepulse_worker.records.suspects import Suspects
from knowledgepulse_worker.scoring import (
    AddedScore,
    PartitionState,
    RecentScores,
    VectorCache,
    embedding_text,
)
from knowledgepulse_worker.settings import Settings

logger = logging.getLogger(__name__)

LARGE_LEDGER = 2_000
"""``cache.max_elements`` above which a ledger is opened in a thread.

Opening the largest ledger takes seconds, which must not delay the group's heartbeats.
"""


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
        suspects: the records that may kill the process.
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
    suspects: Suspects = field(default_factory=Suspects)
    throttles: Throttles = field(default_factory=Throttles)

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
        changelog: the partition's committed entries.
        services: dependencies shared by all lanes.
        on_failure: called on a fatal error; the process must then end.
        request_commit: asks for a commit soon.

    Attributes:
        taken: the offset below which every record has been taken.
        topic_id: the id of the topic that the records come from.
        in_flight: the number of records that are taken and not committed.
        in_flight_bytes: their size.
    """

    def __init__(
        self,
        first: RawRecord,
        changelog: Changelog,
        services: Services,
        on_failure: Callable[[BaseException], None],
        request_commit: Callable[[], None],
    ) -> None:
        self.partition = first.partition
        self.topic_id = first.topic_id
        self.taken = first.offset
        self._changelog = changelog
        self._services = services
        self._limits = services.settings.limits
        self._metrics = services.metrics
        self._suspects = services.suspects
        self._on_failure = on_failure
        self._request_commit = request_commit
        cache = services.settings.cache
        self._state = PartitionState(VectorCache(cache.max_elements, cache.dimensions, cache.ttl))
        self._scorer = RecordScorer(self._state, services.embedder, services.metrics)
        self._ledger = Ledger(cache.max_elements)
        self._obsolete: list[bytes] = []
        self._waiting: deque[TakenRecord] = deque()
        self._outcomes: deque[RecordOutcome] = deque()
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Fill the novelty cache and the last scores from the ledger."""
        cache = self._services.settings.cache
        read = partial(
            valid_content,
            dict(self._changelog.entries),
            dict(self._changelog.scores),
            next_offset=self.taken,
            topic_id=self.topic_id,
            model=self._services.model,
            dimensions=cache.dimensions,
            max_elements=cache.max_elements,
        )
        is_large = cache.max_elements > LARGE_LEDGER
        content: LedgerContent = await asyncio.to_thread(read) if is_large else read()
        if content.reason is not None:
            logger.warning(
                "partition %d: invalid entries cut from the ledger: %s", self.partition, content.reason
            )
            self._metrics.lanes.cache_reset(content.reason)
        if content.uncommitted:
            logger.warning(
                "partition %d: %d records are scored again, because an earlier release had not committed "
                "them; outputs that it had published already are published once more",
                self.partition,
                content.uncommitted,
            )
        for entry in content.entries.values():
            if entry.vector is not None:
                self._state.cache.add(
                    decode_vector(entry.vector), id=entry.trace_id, at=entry.timestamp_ms / 1000
                )
        self._state.scores = RecentScores(content.scores)
        self._ledger = Ledger(cache.max_elements, deque(content.entries))
        self._obsolete = content.obsolete

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
        await self._wait_for_room(record)
        if self._is_closed:
            return 0.0
        if not self._begin(record, taken_at):
            return 0.0
        if not alone:
            return await self._process(record, taken_at)
        async with self._suspects.alone(record.location):
            blocked = await self._process(record, taken_at)
            await self.wait_scored()
        return blocked

    def take_at_once(self, record: RawRecord) -> bool:
        """Take the next record if it has nothing to wait for; return whether it was taken.

        Without an embedder, that are nearly all records, and the coroutines of :meth:`take` would cost as
        much as scoring one.
        """
        if self._services.batcher is not None or self._is_closed or not self._has_room(record):
            return False
        taken_at = time.monotonic()
        if self._begin(record, taken_at):
            self._wait_for_score(self._decode(record, taken_at))
        return True

    def _begin(self, record: RawRecord, taken_at: float) -> bool:
        """Take a record; return whether it is to be read."""
        self.taken = record.offset + 1
        self._adjust_in_flight(1, record.size)
        location = record.location
        if self._suspects.is_skipped(location):
            self._skip(record, taken_at)
            return False
        self._suspects.announce(location)
        return True

    async def _process(self, record: RawRecord, taken_at: float) -> float:
        started = time.monotonic()
        taken = self._decode(record, taken_at)
        blocked = time.monotonic() - started
        taken = await self._request_embedding(taken)
        if self._is_closed:
            _cancel_embedding(taken)
        else:
            self._wait_for_score(taken)
        return blocked

    def _wait_for_score(self, taken: TakenRecord) -> None:
        self._waiting.append(taken)
        self._score_ready()
        if self._is_half_full():
            self._request_commit()

    @property
    def waits_for_commit(self) -> bool:
        """Whether the oldest record that is not committed is complete."""
        return bool(self._outcomes) and self._outcomes[0].is_complete

    def complete(self) -> list[RecordOutcome]:
        """Return the records to commit next, in order, up to one whose redacted copy is missing."""
        complete = []
        for outcome in self._outcomes:
            if not outcome.is_complete:
                break
            complete.append(outcome)
        return complete

    def position_record(self, position: Position) -> OutputRecord:
        """Return the record that keeps a position in the changelog, which refuses it for no timestamp."""
        record = self._changelog_record(POSITION_KEY, encode_position(position))
        return replace(record, timestamp_ms=UNTIMED)

    def tombstones(self) -> list[OutputRecord]:
        """Return the records that delete invalid entries, which belong to the first transaction."""
        return [self._changelog_record(key, None) for key in self._obsolete]

    def scores_records(self, complete: Sequence[RecordOutcome]) -> list[OutputRecord]:
        """Return the records that keep the last scores of the domains to which these records add any."""
        newest: dict[str, tuple[int, AddedScore] | None] = {}
        for outcome in complete:
            if (added := outcome.added) is not None:
                if added.forgotten is not None:
                    newest[added.forgotten] = None
                newest[added.domain] = outcome.record.offset, added
        return [
            self._changelog_record(scores_key(domain), last and self._last_scores(*last))
            for domain, last in newest.items()
        ]

    def committed(self, count: int, written: Iterable[tuple[int, OutputRecord]]) -> None:
        """Finish the first records, which a transaction has committed; do nothing once closed.

        Args:
            count: the number of records.
            written: the published records with their offsets.
        """
        if not self._outcomes:
            return
        self._obsolete.clear()
        for offset, record in written:
            if record.topic == self._services.changelog_topic:
                self._note_lost_entries(offset)
                self._changelog.committed(offset, record.key or b"", record.value)
        batch = [self._outcomes.popleft() for _ in range(count)]
        self._adjust_in_flight(-count, -sum(outcome.record.size for outcome in batch))
        self._services.reporter.committed(batch)
        self._changed.set()

    def _note_lost_entries(self, offset: int) -> None:
        """Log and count a changelog that lacks the entries before: it takes a record at an offset it had."""
        if self._changelog.end is None or offset >= self._changelog.end:
            return
        logger.warning(
            "partition %d: %s was created again, or has lost its end: once this worker ends, records are "
            "compared only with those from now on",
            *(self.partition, self._services.changelog_topic),
        )
        self._metrics.lanes.cache_reset("lost")

    @property
    def cached(self) -> int:
        """The number of vectors in the novelty cache."""
        return self._state.cache.size

    def cuts(self) -> dict[str, float]:
        """Return the lowest scores that pass by the shares of the policy in force, by domain."""
        return self._state.scores.cuts(self._services.policy.policy.profiles)

    def position_after(self, outcome: RecordOutcome) -> Position:
        """Return the position after a record."""
        return Position(outcome.record.offset + 1, self.topic_id, outcome.record.leader_epoch)

    async def wait_idle(self) -> None:
        """Wait until everything taken is committed, or the lane closes."""
        while self.in_flight and not self._is_closed:
            self._request_commit()
            await self._wait_for_change()

    async def wait_scored(self) -> None:
        """Wait until everything taken is scored, or the lane closes."""
        while self._waiting:
            await self._wait_for_change()

    def close(self) -> None:
        """Stop at once; the partition's next owner reads the records that are not committed."""
        self._stop()
        for outcome in self._outcomes:
            if outcome.redacting is not None:
                outcome.redacting.cancel()
        self._outcomes.clear()
        self._adjust_in_flight(-self.in_flight, -self.in_flight_bytes)

    # --- take

    async def _wait_for_room(self, record: RawRecord) -> None:
        while not self._is_closed and not self._has_room(record):
            if self._outcomes:
                self._request_commit()
            await self._wait_for_change()

    def _is_half_full(self) -> bool:
        """Return whether a commit now makes room before the lane has to wait for it."""
        limits = self._limits
        return 2 * len(self._outcomes) >= self.in_flight and (
            2 * self.in_flight >= limits.in_flight_records
            or 2 * self.in_flight_bytes >= limits.in_flight_bytes
        )

    def _has_room(self, record: RawRecord) -> bool:
        return self.in_flight == 0 or (
            self.in_flight < self._limits.in_flight_records
            and self.in_flight_bytes + record.size <= self._limits.in_flight_bytes
        )

    def _skip(self, record: RawRecord, taken_at: float) -> None:
        """Step over a record that is alone in flight, without an output."""
        logger.critical(
            "%s: SKIPPED without an output: every attempt killed the worker (limits.skip_poison)",
            record.source,
        )
        self._metrics.traces.skipped_poison()
        failure = self._poison_failure(record)
        self._outcomes.append(failed(UndecodableRecord(record, taken_at, failure), failure))
        self._request_commit()

    def _decode(self, record: RawRecord, taken_at: float) -> TakenRecord:
        if failure := self._obstacle(record):
            return UndecodableRecord(record, taken_at, failure)
        started = time.monotonic()
        try:
            decoded = decode_scorable(record.value, self._limits.trace_bytes)
        except InvalidRecordError as error:
            return UndecodableRecord(record, taken_at, bounded_failure(error.reason, error))
        finally:
            self._metrics.traces.stage("decode", time.monotonic() - started)
        return DecodedRecord(record, taken_at, decoded.trace, decoded.score_place, embedding=None)

    def _obstacle(self, record: RawRecord) -> Failure | None:
        """Return why a record can only become a dead letter, whatever its value."""
        if self._suspects.is_dead_letter(record.location):
            logger.error(
                "%s: dead-lettered as poison: it killed %d workers in a row",
                record.source,
                self._limits.poison_attempts,
            )
            return self._poison_failure(record)
        try:
            check_readable(record)
        except InvalidRecordError as error:
            return bounded_failure(error.reason, error)
        return None

    def _poison_failure(self, record: RawRecord) -> Failure:
        attempts = self._limits.poison_attempts
        return Failure(
            "poison",
            InvalidRecordError.__name__,
            f"{attempts} processes in a row died at this record (limits.poison_attempts)",
        )

    async def _request_embedding(self, taken: TakenRecord) -> TakenRecord:
        if not isinstance(taken, DecodedRecord) or self._services.batcher is None:
            return taken
        text = embedding_text(taken.trace, self._services.settings.embedding.trace_text)
        embedding = await self._services.batcher.submit(text)
        embedding.add_done_callback(self._embedded)
        return DecodedRecord(taken.record, taken.taken_at, taken.trace, taken.score_place, embedding)

    # --- score and complete

    def _embedded(self, embedding: asyncio.Future[EmbeddedText]) -> None:
        retrieve_exception(embedding)
        self._score_ready()

    def _score_ready(self) -> None:
        """Score the records whose predecessors are scored and whose embedding is there."""
        try:
            while self._waiting and (taken := self._waiting[0]).is_ready:
                self._outcomes.append(self._score(taken))
                self._waiting.popleft()
                self._changed.set()
        except Exception as error:  # noqa: BLE001 - called by a future, which would only log it
            self._suspects.close(blames_records=True)
            self._stop()
            self._on_failure(error)

    def _score(self, taken: TakenRecord) -> RecordOutcome:
        if isinstance(taken, UndecodableRecord):
            outcome = failed(taken, taken.failure)
        else:
            outcome = self._scorer.score(taken, self._services.policy)
        outcome.ledger_record = self._ledger_record(outcome.entry)
        self._build_output(outcome)
        return outcome

    def _build_output(self, outcome: RecordOutcome) -> None:
        """Build the output, and request the redacted copy of a contributed trace."""
        output = self._services.replacements.build(outcome)
        redaction = self._services.replacements.redaction
        if redaction is not None and outcome.entry.decision == "contribute":
            copying = redaction.copy(outcome.record, outcome.entry, output)
            outcome.redacting = asyncio.create_task(copying)
            outcome.redacting.add_done_callback(partial(self._copied, outcome))

    def _ledger_record(self, entry: Entry) -> OutputRecord | None:
        return None if entry.vector is None else self._changelog_record(*self._ledger.put(entry))

    def _changelog_record(self, key: bytes, value: bytes | None) -> OutputRecord:
        return OutputRecord(
            topic=self._services.changelog_topic,
            partition=self.partition,
            timestamp_ms=NO_TIMESTAMP,
            key=key,
            value=value,
            headers=(),
        )

    def _last_scores(self, offset: int, added: AddedScore) -> bytes:
        last = added.last_scores()
        model = self._services.model
        return encode_scores(DomainScores(offset, self.topic_id, model, last, scores_version(last)))

    def _copied(self, outcome: RecordOutcome, copying: asyncio.Task[OutputRecord]) -> None:
        if copying.cancelled():
            return
        if (error := copying.exception()) is not None:
            self._on_failure(error)
            return
        outcome.redacted_copy = copying.result()
        self._services.replacements.fit_copy(outcome)
        self._changed.set()

    # --- the lane's own

    def _stop(self) -> None:
        """Take and score no more records, and release whoever waits."""
        self._is_closed = True
        self._changed.set()
        for taken in self._waiting:
            _cancel_embedding(taken)
        self._waiting.clear()

    def _adjust_in_flight(self, records: int, size: int) -> None:
        self.in_flight += records
        self.in_flight_bytes += size

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _cancel_embedding(taken: TakenRecord) -> None:
    if isinstance(taken, DecodedRecord) and taken.embedding is not None:
        taken.embedding.cancel()
