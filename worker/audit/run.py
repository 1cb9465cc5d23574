"""Read the topics as they are, and audit them partition by partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from worker.audit.index import SourceIndex
from worker.audit.partition import Bounds, PartitionAudit
from worker.audit.report import PartitionReport, Report
from worker.audit.vectors import Texts
from worker.embedding import Embedder
from worker.errors import TopicError
from worker.kafka.reader import Record, TopicReader, raw_record
from worker.kafka.rights import audit_rights, require_rights
from worker.kafka.topics import Topic, TopicAdmin
from worker.lane.outputs import Outputs
from worker.lane.records import OutputRecord
from worker.settings import Settings

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told of a topic, how many of its offsets have been read, and how many there are."""

# Few enough that progress shows where texts are embedded again.
_AT_ONCE = 128


async def audit(
    settings: Settings,
    *,
    embedder: Callable[[], Embedder | None] | None = None,
    tolerance: float | None = None,
    progress: Progress = lambda _topic, _done, _total: None,
) -> Report:
    """Hold a stream's outputs against its raw topic, up to where the topics end now.

    Workers may run meanwhile. It joins no group and writes nothing but a temporary file, of about 0.4 kB for
    an output and 2 kB for a ledger entry.

    Args:
        settings: the worker's: topics, group, cache, policy and limits tell what is right.
        embedder: makes the embedder for records whose vector is no longer in the changelog; called at most
            once, and only when there is such a record. None: the novelty of these, and of those that were
            compared with them, is counted instead of audited.
        tolerance: how much a novelty may differ that is recomputed with such an embedding; None: 1e-6 where
            all is float32, 0.002 where something is not. A novelty that is recomputed from the changelog's
            vectors alone is held to 1e-9.
        progress: told as reading goes on.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
        TopicError: a topic is missing, or cannot be read.
        LedgerError: the changelog holds what is no ledger entry.
        EmbeddingError: the embedder cannot be made.
    """
    await require_rights(settings.kafka, audit_rights(settings))
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topics, changelog, outputs = await admin.existing(), admin.changelog, admin.outputs
        raw = settings.topics.raw
        missing = [name for name in (raw, *outputs) if name not in topics]
        if missing:
            raise TopicError(f"missing: {', '.join(missing)}; `kp-worker topics` creates them")
        committed = await admin.committed(topics[raw])
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        # In this order, what is committed has its outputs within their bounds, and these their entries.
        log = _Log(reader, progress)
        for name in (*outputs, changelog, raw):
            if name in topics:
                await log.open(topics[name])
        run = _Run(settings, topics, log, Texts(embedder), tolerance)
        return await run.audit(committed, changelog)


class _Log:
    """The topics between the bounds that they have when they are opened."""

    def __init__(self, reader: TopicReader, progress: Progress) -> None:
        self._reader = reader
        self._progress = progress
        self._bounds: dict[str, list[range]] = {}

    async def open(self, topic: Topic) -> None:
        self._bounds[topic.name] = [
            await self._reader.bounds(topic.name, number) for number in range(topic.partitions)
        ]

    def begins(self, topic: str) -> list[int]:
        """Return where a topic's partitions begin; one above 0 has been trimmed."""
        return [bounds.start for bounds in self._bounds[topic]]

    async def read(self, topic: str) -> AsyncIterator[tuple[int, list[Record]]]:
        """Yield a topic's partitions and records, some at a time; nothing of a topic that is not there."""
        for partition in range(len(self._bounds.get(topic, []))):
            async for records in self.read_partition(topic, partition):
                yield partition, records

    async def read_partition(self, topic: str, partition: int) -> AsyncIterator[list[Record]]:
        """Yield a partition's records, some at a time."""
        bounds = self._bounds[topic]
        done, total = sum(map(len, bounds[:partition])), sum(map(len, bounds))
        records = []
        async for record in self._reader.read(topic, partition, bounds[partition]):
            records.append(record)
            if len(records) == _AT_ONCE:
                yield records
                self._progress(topic, done + record.offset + 1 - bounds[partition].start, total)
                records = []
        if records:
            yield records
        self._progress(topic, done + len(bounds[partition]), total)


class _Run:
    def __init__(
        self,
        settings: Settings,
        topics: dict[str, Topic],
        log: _Log,
        texts: Texts,
        tolerance: float | None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._log = log
        self._texts = texts
        self._tolerance = tolerance
        self._builder = Outputs(settings.topics, {name: topic.partitions for name, topic in topics.items()})
        names = settings.topics
        self._outputs = (names.contribute, names.rejected, names.dead_letter)

    async def audit(self, committed: list[int], changelog: str) -> Report:
        topics, window = self._settings.topics, self._settings.limits.uncommitted_records
        with SourceIndex(topics, self._topics[topics.raw].partitions, window) as index:
            async for partition, records in self._log.read(changelog):
                index.add_entries(partition, [(record.key, record.value) for record in records])
            for name in self._outputs:
                async for _, records in self._log.read(name):
                    index.add_outputs(map(_output, records))
            index.complete()
            reports = [
                await self._audit_partition(partition, position, index)
                for partition, position in enumerate(committed)
            ]
            return Report(topics.raw, reports, index.foreign)

    async def _audit_partition(self, partition: int, committed: int, index: SourceIndex) -> PartitionReport:
        raw = self._settings.topics.raw
        audit = PartitionAudit(
            partition,
            Bounds(self._log.begins(raw)[partition], committed, self._outputs_from(partition, index)),
            self._settings,
            index,
            self._builder,
            self._texts,
            self._tolerance,
        )
        async for records in self._log.read_partition(raw, partition):
            # In a thread, as it may load a model and embed.
            await asyncio.to_thread(audit.add, list(map(raw_record, records)))
        return await asyncio.to_thread(audit.finish)

    def _outputs_from(self, partition: int, index: SourceIndex) -> float:
        """Return the source offset from which on no output of a raw partition was trimmed."""
        count = self._topics[self._settings.topics.raw].partitions
        firsts = [
            index.first_source(name, number, partition)
            for name in self._outputs
            for number, begin in enumerate(self._log.begins(name))
            if begin > 0 and (number == partition or self._topics[name].partitions != count)
        ]
        return max(firsts, default=0)


def _output(record: Record) -> OutputRecord:
    return OutputRecord(
        topic=record.topic,
        partition=record.partition,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
