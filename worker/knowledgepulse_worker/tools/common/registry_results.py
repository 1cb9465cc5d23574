"""The records of the topic of contributions: the result for each trace, keyed by the trace's id."""

from __future__ import annotations

import time
from collections.abc import Collection

import msgspec

from knowledgepulse_kafka.topic_reader import TopicReader, read_topic
from knowledgepulse_worker.kafka.foreign_records import skipping_foreign_records
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.worker_topics import contributions_topic_name
from knowledgepulse_worker.scoring import ScoredRecord, bounded_id
from knowledgepulse_worker.settings import Settings


class RegistryResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result for a trace.

    Attributes:
        trace_id: the trace's id, also in the registry; empty if the record has none.
        source: the header `kp-source`, or the record's own location if it has none.
        result: the registry's answer, the reason for not sending the trace, or `deleted`.
        registry: the registry's address.
        status: the registry's HTTP status; 0 if it was not asked.
        message: the registry's error message.
        idempotency_key: the key with which the trace was sent.
        at: milliseconds since the epoch.
    """

    trace_id: str
    source: str
    result: str
    registry: str
    status: int = 0
    message: str = ""
    idempotency_key: str = ""
    at: int = msgspec.field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def key(self) -> bytes:
        """The record's key."""
        return bounded_id(self.trace_id).encode("utf-8", "replace")

    def encode(self) -> bytes:
        """Return the record's value."""
        return msgspec.json.encode(self)


_decode = msgspec.json.Decoder(RegistryResult).decode


async def read_contributions(settings: Settings, records: Collection[ScoredRecord]) -> list[RegistryResult]:
    """Return the contributions of traces, oldest first; empty if no trace was ever sent.

    A redacted copy may have a different id from its trace, but it has the same source.
    """
    name = contributions_topic_name(settings.kafka.group)
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topic = (await admin.describe([name])).get(name)
    if topic is None:
        return []
    async with TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
        read = [record async for record in read_topic(reader, topic, None, lambda _read, _total: None)]
    with skipping_foreign_records(name) as foreign:
        decoded = [foreign.decoded(record, lambda record: _decode(record.value or b"")) for record in read]
    held = list(filter(None, decoded))
    sources, ids = {record.source for record in records}, {record.id for record in records}
    ids |= {result.trace_id for result in held if result.source in sources and result.trace_id}
    return [result for result in held if result.source in sources or result.trace_id in ids]
