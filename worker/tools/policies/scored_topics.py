"""Scored traces from the workers' output topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from knowledgepulse_worker.kafka.preflight.rights import scored_rights
from knowledgepulse_worker.kafka.topic_reader import Reader, Record, TopicReader, read_topic
from knowledgepulse_worker.kafka.topics import Topic
from knowledgepulse_worker.records.content import content_of
from knowledgepulse_worker.records.scored import read_record
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.terminal.progress import TopicProgressCallback, topic_progress
from knowledgepulse_worker.tools.policies.labels import native_id_of
from knowledgepulse_worker.tools.policies.rights import require_topics


@dataclass(frozen=True, slots=True)
class Period:
    """A range of record timestamps; None is an open bound."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def since_ms(self) -> int | None:
        """Start in milliseconds since the epoch."""
        return None if self.since is None else round(self.since.timestamp() * 1000)

    def __contains__(self, timestamp_ms: int) -> bool:
        return (self.since_ms is None or timestamp_ms >= self.since_ms) and (
            self.until is None or timestamp_ms < self.until.timestamp() * 1000
        )


class ScoredTopics:
    """Read scored records up to the current end of their topics.

    Attributes:
        foreign: number of skipped records that were not written by a worker.
        repeats: number of skipped records that repeat an earlier one, as after a crash.
    """

    def __init__(self, reader: Reader, topics: Sequence[Topic], progress: TopicProgressCallback) -> None:
        self.foreign = 0
        self.repeats = 0
        self._reader = reader
        self.topics = topics
        self._progress = progress

    async def read(self, period: Period) -> AsyncIterator[tuple[Record, ScoredRecord]]:
        """Yield the scored records of a period without repeats, by topic, partition and offset."""
        # Source alone is not unique: offsets start over when a raw topic is recreated.
        seen: set[tuple[str, str]] = set()
        for topic in self.topics:
            progress = partial(self._progress, topic.name)
            async for record in read_topic(self._reader, topic, period.since_ms, progress):
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
        """Return the records with this trace id, or this position of the raw or of the scored record."""
        found: dict[tuple[str, str], ScoredRecord] = {}
        for topic in self.topics:
            async for record in read_topic(self._reader, topic, None, partial(self._progress, topic.name)):
                scored = read_record(record)
                position = f"{record.topic}/{record.partition}/{record.offset}"
                if scored is None:
                    continue
                scored = replace(scored, content=content_of(record.value or b""))
                if name in (scored.id, scored.source, position, native_id_of(scored)):
                    found.setdefault((scored.source, scored.id), scored)
        return list(found.values())


@asynccontextmanager
async def open_scored_topics(settings: Settings) -> AsyncIterator[ScoredTopics]:
    """Open `contribute` and `rejected`, and show how far they are read; see :func:`require_topics`."""
    names = (settings.topics.contribute, settings.topics.rejected)
    topics = await require_topics(
        settings, names, scored_rights(settings), "; `kp-worker topics` creates them"
    )
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        with topic_progress() as progress:
            yield ScoredTopics(reader, topics, progress)
