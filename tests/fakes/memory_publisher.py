"""An in-memory publisher whose confirmations and rejections a test controls."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace

from knowledgepulse_worker.errors import DeliveryError, TimestampError, TooLargeError
from knowledgepulse_worker.records.record import NO_TIMESTAMP, OutputRecord


@dataclass(frozen=True, slots=True)
class _Sent:
    record: OutputRecord
    alone: bool
    delivery: asyncio.Future[int]
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryPublisher:
    """Implements :class:`~knowledgepulse_worker.records.publisher.Publisher` in memory.

    Records are confirmed at once, except on topics on hold, where they wait in order until a test confirms
    them; only then is their result decided. As with a real broker, a sender that stops waiting for the
    confirmation does not recall its record. After a failed record, no record is confirmed any more.

    Args:
        partitions: the partition count of every topic.

    Attributes:
        confirmed: every confirmed record, in order of confirmation, with its partition.
        refused_in_batch: topics that reject a record as too large unless it is sent alone.
        refused: topics that reject every record as too large.
        refusing_timestamps: topics that reject every timestamp except the current time.
        refusing_current_time: topics that reject the current time in a batch, as with a wrong clock.
        failing: topics that confirm nothing.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.confirmed: list[OutputRecord] = []
        self.refused_in_batch: set[str] = set()
        self.refused: set[str] = set()
        self.refusing_timestamps: set[str] = set()
        self.refusing_current_time: set[str] = set()
        self.failing: set[str] = set()
        self._partitions = partitions
        self._ends: Counter[tuple[str, int | None]] = Counter()
        self._on_hold: set[str] = set()
        self._has_failed = False
        self._waiting: list[_Sent] = []

    async def send(self, record: OutputRecord) -> asyncio.Future[int]:
        """See :meth:`Publisher.send`."""
        return self._hand_over(record, alone=False)

    async def send_alone(self, record: OutputRecord) -> int:
        """See :meth:`Publisher.send_alone`."""
        return await self._hand_over(record, alone=True)

    async def flush(self) -> None:
        """See :meth:`Publisher.flush`."""
        for sent in list(self._waiting):
            await sent.ended.wait()

    def restart(self) -> None:
        """Behave like the client of a later process, which confirms everything."""
        self._has_failed = False
        self.failing.clear()

    def records(self, *topics: str) -> list[OutputRecord]:
        """Return the confirmed records of the topics."""
        return [record for record in self.confirmed if record.topic in topics]

    def waiting(self, *topics: str) -> list[OutputRecord]:
        """Return the records sent to the topics but not yet confirmed."""
        return [sent.record for sent in self._waiting if sent.record.topic in topics]

    def hold(self, *topics: str) -> None:
        """Stop confirming records of the topics."""
        self._on_hold.update(topics)

    def release(self, *topics: str) -> None:
        """Confirm the waiting records of the topics, and all later ones."""
        self._on_hold.difference_update(topics)
        self.confirm(*topics, count=len(self._waiting))

    def confirm(self, *topics: str, count: int = 1) -> None:
        """Confirm the first waiting records of the topics, which stay on hold."""
        for sent in [sent for sent in self._waiting if sent.record.topic in topics][:count]:
            self._waiting.remove(sent)
            self._decide(sent)

    def _hand_over(self, record: OutputRecord, *, alone: bool) -> asyncio.Future[int]:
        delivery: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        sent = _Sent(self._with_partition(record), alone, delivery)
        if record.topic in self._on_hold:
            self._waiting.append(sent)
        else:
            self._decide(sent)
        return delivery

    def _with_partition(self, record: OutputRecord) -> OutputRecord:
        if record.partition is not None:
            return record
        return replace(record, partition=zlib.crc32(record.key or b"") % self._partitions)

    def _decide(self, sent: _Sent) -> None:
        sent.ended.set()
        error = self._error(sent)
        if error is None:
            topic_partition = sent.record.topic, sent.record.partition
            self.confirmed.append(sent.record)
            self._ends[topic_partition] += 1
            if not sent.delivery.done():
                sent.delivery.set_result(self._ends[topic_partition] - 1)
        elif not sent.delivery.done():
            sent.delivery.set_exception(error)

    def _error(self, sent: _Sent) -> DeliveryError | None:
        topic = sent.record.topic
        if topic in self.refused or (topic in self.refused_in_batch and not sent.alone):
            return TooLargeError(f"{topic}: too large")
        has_own_time = sent.record.timestamp_ms != NO_TIMESTAMP
        if (topic in self.refusing_timestamps and has_own_time) or (
            topic in self.refusing_current_time and not has_own_time and not sent.alone
        ):
            return TimestampError(f"{topic}: timestamp rejected")
        self._has_failed |= topic in self.failing
        return DeliveryError(f"{topic}: not confirmed") if self._has_failed else None
