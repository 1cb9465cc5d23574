"""The dead-letter topic and its replays topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.rights import READ, Right, topic_rights
from knowledgepulse_kafka.topic_reader import ProgressCallback, Record, TopicReader, read_topic
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.kafka.worker_topics import replays_topic_name
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.base64_headers import has_base64_headers, warn_of_base64_headers
from knowledgepulse_worker.tools.dead_letters.letter import DeadLetter, Selection


@dataclass
class DeadLetters:
    """Reads dead letters up to the topic's current end.

    Attributes:
        reader: reads the topics.
        topic: the dead-letter topic.
        replays: the replays topic; None if it does not exist.
        foreign: the number of records that no worker wrote.
    """

    reader: TopicReader
    topic: Topic
    replays: Topic | None
    foreign: int = 0

    async def select(
        self, selection: Selection, progress: ProgressCallback = lambda _read, _total: None
    ) -> AsyncIterator[DeadLetter]:
        """Yield the selected dead letters, by partition and offset."""
        base64 = 0
        async for record in read_topic(self.reader, self.topic, selection.period.since_ms, progress):
            letter = DeadLetter.read(record)
            self.foreign += letter is None
            base64 += letter is None and has_base64_headers(record.headers)
            if letter is not None and letter in selection:
                yield letter
        warn_of_base64_headers(self.topic.name, base64)

    async def record_at(self, partition: int, offset: int) -> Record:
        """Return one record; raise a TopicError if no such record exists."""
        name, count = self.topic.name, self.topic.partitions
        if partition >= count:
            raise TopicError(f"{name} has no partition {partition}, only 0 to {count - 1}")
        bounds = await self.reader.bounds(name, partition)
        if offset in bounds:
            async for record in self.reader.read(name, partition, range(offset, offset + 1)):
                return record
        offsets = f"{bounds.start} to {bounds.stop - 1}" if bounds else "none"
        raise TopicError(f"{name} has no record {partition}/{offset}; offsets in this partition: {offsets}")

    async def replayed(self) -> dict[bytes, str]:
        """Return the new locations in the raw topic of all replayed dead letters, by identity."""
        if self.replays is None:
            return {}
        name = self.replays.name
        offsets = await self.reader.bounds(name, 0)
        return {record.key: record.value.decode() async for record in self.reader.read(name, 0, offsets)}


def dead_letter_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker dead-letters list`` and ``show`` need."""
    yield from topic_rights(READ, settings.topics.dead_letter, replays_topic_name(settings.kafka.group))


@asynccontextmanager
async def open_dead_letters(settings: Settings) -> AsyncIterator[DeadLetters]:
    """Connect and open the dead-letter topic.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: the brokers reject the login, the certificate or an operation.
        TopicError: the dead-letter topic does not exist.
    """
    async with permitted_admin(settings, dead_letter_rights(settings)) as admin:
        topics = await admin.existing(settings.topics.dead_letter)
    async with TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
        yield DeadLetters(reader, topics[settings.topics.dead_letter], topics.get(admin.replays))
