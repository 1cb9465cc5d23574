"""Read the topics and audit them partition by partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from knowledgepulse_kafka.record_batches import is_of_transaction
from knowledgepulse_kafka.records import OutputRecord, Position
from knowledgepulse_kafka.rights import READ, Right, topic_rights
from knowledgepulse_kafka.topic_reader import Record, TopicReader, raw_record
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.errors import LedgerError
from knowledgepulse_worker.kafka.foreign_records import ForeignRecords, skipping_foreign_records
from knowledgepulse_worker.kafka.policy_topic import read_policies
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name, policies_topic_name
from knowledgepulse_worker.policy import Policy, by_digest
from knowledgepulse_worker.records.ledger_records import DomainScores, Entry, read_record
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.audit.audit_report import AuditReport, PartitionReport
from knowledgepulse_worker.tools.audit.partition_audit import Bounds, PartitionAudit
from knowledgepulse_worker.tools.audit.source_index import SourceIndex
from knowledgepulse_worker.tools.common.base64_headers import warn_of_base64_headers
from knowledgepulse_worker.tools.terminal.console import TopicProgressCallback

# Small enough to show progress while texts are embedded.
_CHUNK = 128


async def audit(
    settings: Settings,
    *,
    embedder: Callable[[], Embedder | None] = lambda: None,
    progress: TopicProgressCallback = lambda _topic, _done, _total: None,
) -> AuditReport:
    """Audit a stream's outputs against its raw topic, up to the current ends of the topics.

    Workers may be running. The audit joins no group and writes only a temporary file, of about 0.4 kB per
    output and 2 kB per ledger entry.

    Args:
        settings: the worker's.
        embedder: creates the embedder for records whose vector is no longer in the changelog; called at most
            once, and only if there are such records. Without one, the novelty of these records, and of
            records compared with them, is not audited.
        progress: called while reading.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: the brokers reject the login, the certificate or an operation.
        TopicError: a topic is missing or cannot be read.
        LedgerError: the changelog contains an entry of a newer worker.
        EmbeddingError: the embedder cannot be created.
    """
    async with permitted_admin(settings, audit_rights(settings)) as admin:
        raw = settings.topics.raw
        topics = await admin.existing(raw, *settings.topics.outputs)
        committed = await admin.committed(topics[raw])
    async with TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
        # Opened in this order, the bounds include the outputs of all committed records, and their entries.
        log = _Log(reader, progress)
        for name in (*settings.topics.outputs, admin.changelog, raw):
            if name in topics:
                await log.open(topics[name])
        # A policy is kept before its first use, so by now those of all outputs within the bounds are.
        kept = await read_policies(reader, admin.policies) if admin.policies in topics else []
        policies = by_digest([settings.policy, *(version.policy for version in kept)])
        run = _Run(settings, policies, topics, log, cache(embedder))
        return await run.audit(committed, admin.changelog)


def audit_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker audit`` needs."""
    topics, group = settings.topics, settings.kafka.group
    own = (changelog_topic_name(group), policies_topic_name(group))
    yield from topic_rights(READ, topics.raw, *topics.outputs, *own)
    yield Right("Describe", "group", group)


class _Log:
    """The topics, within their bounds at the time of opening."""

    def __init__(self, reader: TopicReader, progress: TopicProgressCallback) -> None:
        self._reader = reader
        self._progress = progress
        self._bounds: dict[str, list[range]] = {}

    async def open(self, topic: Topic) -> None:
        self._bounds[topic.name] = [
            await self._reader.bounds(topic.name, number) for number in range(topic.partitions)
        ]

    def first_offsets(self, topic: str) -> list[int]:
        """Return the first offsets of a topic's partitions; above 0, a partition has been trimmed."""
        return [bounds.start for bounds in self._bounds[topic]]

    def ends(self, topic: str) -> list[int]:
        """Return the offsets behind the last records of a topic's partitions; none if it does not exist."""
        return [bounds.stop for bounds in self._bounds.get(topic, [])]

    async def read(self, topic: str) -> AsyncIterator[tuple[int, list[Record]]]:
        """Yield a topic's records in chunks, with their partition; nothing if the topic does not exist."""
        for partition in range(len(self._bounds.get(topic, []))):
            async for records in self.read_partition(topic, partition):
                yield partition, records

    async def read_partition(self, topic: str, partition: int) -> AsyncIterator[list[Record]]:
        """Yield a partition's records in chunks."""
        bounds = self._bounds[topic]
        done, total = sum(map(len, bounds[:partition])), sum(map(len, bounds))
        records = []
        async for record in self._reader.read(topic, partition, bounds[partition]):
            records.append(record)
            if len(records) == _CHUNK:
                yield records
                self._progress(topic, done + record.offset + 1 - bounds[partition].start, total)
                records = []
        if records:
            yield records
        self._progress(topic, done + len(bounds[partition]), total)


@dataclass
class _Run:
    settings: Settings
    policies: Mapping[str, Policy]
    topics: Mapping[str, Topic]
    log: _Log
    embedder: Callable[[], Embedder | None]

    async def audit(self, committed: list[int], changelog: str) -> AuditReport:
        topics = self.settings.topics
        with SourceIndex(topics, self.topics[topics.raw].partitions) as index:
            with skipping_foreign_records(changelog) as foreign:
                async for partition, records in self.log.read(changelog):
                    index.add_entries(partition, _entries(records, foreign))
            for name in self.settings.topics.outputs:
                async for _, records in self.log.read(name):
                    index.add_outputs(map(_output, records), map(is_of_transaction, records))
            index.complete()
            reports = [
                await self._audit_partition(partition, position, index)
                for partition, position in enumerate(committed)
            ]
            existing = [self.topics[name] for name in topics.outputs if name in self.topics]
            compacted = [topic.name for topic in existing if topic.is_compacted]
            for name, count in index.base64.items():
                warn_of_base64_headers(name, count)
            return AuditReport(topics.raw, reports, index.foreign, compacted)

    async def _audit_partition(self, partition: int, committed: int, index: SourceIndex) -> PartitionReport:
        raw = self.settings.topics.raw
        audit = PartitionAudit(
            partition,
            Bounds(self.log.first_offsets(raw)[partition], committed, self._outputs_from(partition, index)),
            self.settings,
            self.policies,
            index,
            Outputs(self.settings.topics, {name: topic.partitions for name, topic in self.topics.items()}),
            self.embedder,
        )
        async for records in self.log.read_partition(raw, partition):
            # In a thread, as this may load a model and embed texts.
            await asyncio.to_thread(audit.add, list(map(raw_record, records)))
        return await asyncio.to_thread(audit.finish)

    def _outputs_from(self, partition: int, index: SourceIndex) -> float:
        """Return the first source offset of a raw partition from which no outputs have been trimmed."""
        count = self.topics[self.settings.topics.raw].partitions
        firsts = [
            index.first_source(name, number, partition)
            for name in self.settings.topics.outputs
            for number, first in enumerate(self.log.first_offsets(name))
            if first > 0 and (number == partition or self.topics[name].partitions != count)
        ]
        return max(firsts, default=0)


def _entries(records: Iterable[Record], foreign: ForeignRecords) -> Iterator[tuple[Entry, bytes]]:
    """Yield the entries with their bytes.

    Tombstones are ignored: the ledger no longer needs the entry, but it is still evidence here.
    """
    for record in records:
        entry = foreign.decoded(record, _read)
        if isinstance(entry, Entry):
            yield entry, record.value


def _read(record: Record) -> Entry | Position | DomainScores | None:
    try:
        return read_record(record.key or b"", record.value)
    except LedgerError as error:
        place = f"{record.topic}: changelog partition {record.partition}, offset {record.offset}"
        raise LedgerError(f"{place}: {error}") from error


def _output(record: Record) -> OutputRecord:
    return OutputRecord(
        topic=record.topic,
        partition=record.partition,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
