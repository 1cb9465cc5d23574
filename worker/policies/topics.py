"""Scored traces from the topics that workers publish to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from worker.errors import TopicError
from worker.kafka.reader import Reader, Record, TopicReader, read_topic
from worker.kafka.rights import require_rights, scored_rights
from worker.kafka.topics import Topic, TopicAdmin
from worker.policies.records import ScoredRecord, read_record
from worker.settings import Settings

Progress = Callable[[str, int, int], None]
"""Called with progress: a topic, the offsets read, and their total."""


@dataclass(frozen=True, slots=True)
class Period:
    """A range of record timestamps; open where a bound is None."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def since_ms(self) -> int | None:
        """Milliseconds since the epoch."""
        return None if self.since is None else round(self.since.timestamp() * 1000)

    def __contains__(self, timestamp_ms: int) -> bool:
        return (self.since_ms is None or timestamp_ms >= self.since_ms) and (
            self.until is None or timestamp_ms < self.until.timestamp() * 1000
        )


class ScoredTopics:
    """Read scored records, up to the end that the topics have at the time.

    Args:
        reader: connected.
        topics: those that scored records are published to.
        progress: called as reading proceeds.

    Attributes:
        topics: those to read.
        foreign: records passed over because no worker wrote them.
        repeats: records passed over because they repeat an earlier one, as after a crash.
    """

    def __init__(self, reader: Reader, topics: Sequence[Topic], progress: Progress) -> None:
        self.foreign = 0
        self.repeats = 0
        self._reader = reader
        self.topics = topics
        self._progress = progress

    async def read(self, period: Period) -> AsyncIterator[tuple[Record, ScoredRecord]]:
        """Yield the scored records of a period, each once, by topic, partition and offset."""
        # The id as well: the offsets of a raw topic that was recreated begin again.
        seen: set[tuple[str, str]] = set()
        for topic in self.topics:
            told = partial(self._progress, topic.name)
            async for record in read_topic(self._reader, topic, period.since_ms, told):
                if record.timestamp not in period:
                    continue
                scored = read_record(record)
                if scored is None:
                    self.foreign += 1
                elif (scored.source, scored.id) in seen:
                    self.repeats += 1
                else:
                    seen.add((scored.source, scored.id))
                    yield record, scored

    async def find(self, name: str) -> list[ScoredRecord]:
        """Return the records of a trace id, of a place in the raw topic, or of the place where they are."""
        found: dict[tuple[str, str], ScoredRecord] = {}
        for topic in self.topics:
            async for record in read_topic(self._reader, topic, None, partial(self._progress, topic.name)):
                scored = read_record(record)
                place = f"{record.topic}/{record.partition}/{record.offset}"
                if scored is not None and name in (scored.id, scored.source, place):
                    found.setdefault((scored.source, scored.id), scored)
        return list(found.values())


@asynccontextmanager
async def open_scored_topics(settings: Settings, progress: Progress) -> AsyncIterator[ScoredTopics]:
    """Connect, and look for `contribute` and `rejected`.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
        TopicError: a topic is missing.
    """
    await require_rights(settings.kafka, scored_rights(settings))
    names = (settings.topics.contribute, settings.topics.rejected)
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topics = await admin.existing()
    missing = [name for name in names if name not in topics]
    if missing:
        raise TopicError(f"missing: {', '.join(missing)}; `kp-worker topics` creates them")
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        yield ScoredTopics(reader, [topics[name] for name in names], progress)
