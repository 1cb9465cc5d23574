"""A publisher without a broker: what is sent stays in memory, and a test says what becomes of it."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from dataclasses import dataclass, replace

from worker.errors import DeliveryError, TimestampError, TooLargeError
from worker.lane.records import NO_TIMESTAMP, OutputRecord


@dataclass(frozen=True, slots=True)
class _Sent:
    record: OutputRecord
    alone: bool
    delivery: asyncio.Future[int]


class MemoryPublisher:
    """Implements :class:`~worker.lane.publisher.Publisher` in memory.

    Every record is confirmed at once, except those of topics on hold: they wait, in order, until they are
    confirmed or lost. What becomes of a record is decided only then. As with a real broker, a sender that no
    longer waits for the confirmation does not call its record back.

    Args:
        partitions: how many each topic has.

    Attributes:
        confirmed: every confirmed record, in the order of the confirmations, with its partition.
        refused_in_batch: topics that find a record too large unless it is sent alone.
        refused: topics that find every record too large.
        refusing_times: topics that take no timestamp but the current one.
        refusing_now: topics that do not take the current one, as where a clock is wrong; alone, such a record
            goes without a timestamp.
        failing: topics that confirm nothing.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.confirmed: list[OutputRecord] = []
        self.refused_in_batch: set[str] = set()
        self.refused: set[str] = set()
        self.refusing_times: set[str] = set()
        self.refusing_now: set[str] = set()
        self.failing: set[str] = set()
        self._partitions = partitions
        self._ends: Counter[tuple[str, int | None]] = Counter()
        self._on_hold: set[str] = set()
        self._waiting: list[_Sent] = []

    async def send(self, record: OutputRecord) -> asyncio.Future[int]:
        """See :meth:`Publisher.send`."""
        return self._hand_over(record, alone=False)

    async def send_alone(self, record: OutputRecord) -> int:
        """See :meth:`Publisher.send_alone`."""
        return await self._hand_over(record, alone=True)

    def records(self, *topics: str) -> list[OutputRecord]:
        """Return the confirmed records of some topics."""
        return [record for record in self.confirmed if record.topic in topics]

    def waiting(self, *topics: str) -> list[OutputRecord]:
        """Return the records of some topics that are sent but not confirmed."""
        return [sent.record for sent in self._waiting if sent.record.topic in topics]

    def hold(self, *topics: str) -> None:
        """Confirm nothing of these topics from now on."""
        self._on_hold.update(topics)

    def release(self, *topics: str) -> None:
        """Confirm what waits of these topics, and what comes."""
        self._on_hold.difference_update(topics)
        self.confirm(*topics, count=len(self._waiting))

    def confirm(self, *topics: str, count: int = 1) -> None:
        """Confirm the first records that wait of these topics, which stay on hold."""
        for sent in [sent for sent in self._waiting if sent.record.topic in topics][:count]:
            self._waiting.remove(sent)
            self._decide(sent)

    def lose(self) -> None:
        """Forget what waits: its sender was killed before the broker had it."""
        self._waiting.clear()

    def _hand_over(self, record: OutputRecord, *, alone: bool) -> asyncio.Future[int]:
        delivery: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        sent = _Sent(self._placed(record), alone, delivery)
        if record.topic in self._on_hold:
            self._waiting.append(sent)
        else:
            self._decide(sent)
        return delivery

    def _placed(self, record: OutputRecord) -> OutputRecord:
        if record.partition is not None:
            return record
        return replace(record, partition=zlib.crc32(record.key or b"") % self._partitions)

    def _decide(self, sent: _Sent) -> None:
        error = self._error(sent)
        if error is None:
            place = sent.record.topic, sent.record.partition
            self.confirmed.append(sent.record)
            self._ends[place] += 1
            if not sent.delivery.done():
                sent.delivery.set_result(self._ends[place] - 1)
        elif not sent.delivery.done():
            sent.delivery.set_exception(error)

    def _error(self, sent: _Sent) -> DeliveryError | None:
        topic = sent.record.topic
        if topic in self.refused or (topic in self.refused_in_batch and not sent.alone):
            return TooLargeError(f"{topic}: too large")
        has_own_time = sent.record.timestamp_ms != NO_TIMESTAMP
        if (topic in self.refusing_times and has_own_time) or (
            topic in self.refusing_now and not has_own_time and not sent.alone
        ):
            return TimestampError(f"{topic}: not its time")
        return DeliveryError(f"{topic}: not confirmed") if topic in self.failing else None
