"""A lane's part of the ledger: what it begins with, and the records that keep it in the changelog."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from knowledgepulse_kafka.records import NO_TIMESTAMP, UNTIMED, OutputRecord, Position, RawRecord
from knowledgepulse_worker.lane.ledger import Changelog, EntryKeys, LedgerContent, valid_content
from knowledgepulse_worker.lane.stages import Completed
from knowledgepulse_worker.observe.lane_metrics import LaneMetrics
from knowledgepulse_worker.records.ledger_records import (
    POSITION_KEY,
    DomainScores,
    Entry,
    decode_vector,
    encode_position,
    encode_scores,
    scores_key,
    scores_version,
)
from knowledgepulse_worker.scoring import AddedScore, PartitionState, RecentScores, VectorCache
from knowledgepulse_worker.settings import CacheSettings

logger = logging.getLogger(__name__)

LARGE_LEDGER = 2_000
"""``cache.max_elements`` above which a ledger is opened in a thread.

Opening the largest ledger takes seconds, which must not delay the group's heartbeats.
"""


class PartitionLedger:
    """A partition's ledger, from the first record of a lane on.

    Args:
        first: the lane's first record.
        changelog: the partition's committed entries.
        topic: the name of the changelog topic.
        cache: the size of the novelty cache.
        model: the embedder's identity; empty without one.
        metrics: counts what is cut or lost.

    Attributes:
        state: what the next trace is scored against, as the ledger keeps it.
        topic: the name of the changelog topic.
    """

    def __init__(
        self,
        first: RawRecord,
        changelog: Changelog,
        *,
        topic: str,
        cache: CacheSettings,
        model: str,
        metrics: LaneMetrics,
    ) -> None:
        self.state = PartitionState(VectorCache(cache.max_elements, cache.dimensions, cache.ttl))
        self._first = first
        self._changelog = changelog
        self.topic = topic
        self._cache = cache
        self._model = model
        self._metrics = metrics
        self._keys = EntryKeys(cache.max_elements)
        self._obsolete: list[bytes] = []

    async def open(self) -> None:
        """Fill the novelty cache and the last scores."""
        cache = self._cache
        read = partial(
            valid_content,
            dict(self._changelog.entries),
            dict(self._changelog.scores),
            next_offset=self._first.offset,
            topic_id=self._first.topic_id,
            model=self._model,
            dimensions=cache.dimensions,
            max_elements=cache.max_elements,
        )
        content = await asyncio.to_thread(read) if cache.max_elements > LARGE_LEDGER else read()
        self._tell(content)
        for entry in content.entries.values():
            if entry.vector is not None:
                self.state.cache.add(
                    decode_vector(entry.vector), id=entry.trace_id, at=entry.timestamp_ms / 1000
                )
        self.state.scores = RecentScores(content.scores)
        self._keys = EntryKeys(cache.max_elements, deque(content.entries))
        self._obsolete = content.obsolete

    def _tell(self, content: LedgerContent) -> None:
        """Log and count what was cut, and what brokers have deleted."""
        partition = self._first.partition
        if content.reason is not None:
            logger.warning("partition %d: invalid entries cut from the ledger: %s", partition, content.reason)
            self._metrics.cache_reset(content.reason)
        if self._changelog.lacks_entries(self._cache.max_elements):
            logger.warning(
                "partition %d: the records of %s before offset %d were deleted, as with "
                "cleanup.policy=delete, and entries with them; the next records are compared with %d entries",
                *(partition, self.topic, self._changelog.begin, len(content.entries)),
            )
            self._metrics.cache_reset("lost")

    def put(self, entry: Entry) -> OutputRecord | None:
        """Give an entry its place; return the record that keeps it, or None if it has no vector."""
        return None if entry.vector is None else self._record(*self._keys.put(entry))

    def tombstones(self) -> list[OutputRecord]:
        """Return the records that delete invalid entries, which belong to the first transaction."""
        return [self._record(key, None) for key in self._obsolete]

    def scores_records(self, complete: Sequence[Completed]) -> list[OutputRecord]:
        """Return the records that keep the last scores of the domains to which these records add any."""
        newest: dict[str, tuple[int, AddedScore] | None] = {}
        for completed in complete:
            if (added := completed.scored.added) is not None:
                if added.forgotten is not None:
                    newest[added.forgotten] = None
                newest[added.domain] = completed.scored.record.offset, added
        return [
            self._record(scores_key(domain), last and self._last_scores(*last))
            for domain, last in newest.items()
        ]

    def position_record(self, position: Position) -> OutputRecord:
        """Return the record that keeps a position in the changelog, which refuses it for no timestamp."""
        return replace(self._record(POSITION_KEY, encode_position(position)), timestamp_ms=UNTIMED)

    def committed(self, written: Iterable[tuple[int, OutputRecord]]) -> None:
        """Take note of the records that a transaction has committed, with their offsets."""
        self._obsolete.clear()
        for offset, record in written:
            if self._changelog.end is not None and offset < self._changelog.end:
                logger.warning(
                    "partition %d: %s was created again, or has lost its end: once this worker ends, records "
                    "are compared only with those from now on",
                    *(self._first.partition, self.topic),
                )
                self._metrics.cache_reset("lost")
            self._changelog.committed(offset, record.key or b"", record.value)

    def _record(self, key: bytes, value: bytes | None) -> OutputRecord:
        return OutputRecord(
            topic=self.topic,
            partition=self._first.partition,
            timestamp_ms=NO_TIMESTAMP,
            key=key,
            value=value,
            headers=(),
        )

    def _last_scores(self, offset: int, added: AddedScore) -> bytes:
        last, model = added.last_scores(), self._model
        return encode_scores(DomainScores(offset, self._first.topic_id, model, last, scores_version(last)))
