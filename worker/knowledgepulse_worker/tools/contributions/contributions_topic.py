"""The topic of what became of each trace: one record each, with the trace's id as key."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Literal

import msgspec

from knowledgepulse_worker.kafka.foreign_records import skipping_foreign_records
from knowledgepulse_worker.kafka.preflight.rights import Right, topic_rights
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.topic_reader import TopicReader, read_topic
from knowledgepulse_worker.kafka.topics import contributions_topic_name
from knowledgepulse_worker.redaction.departure import Held
from knowledgepulse_worker.scoring import ScoredRecord, bounded_id
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.contributions.registry_client import Verdict

Result = Literal[Verdict, Held, "invalid", "not_redacted", "foreign"]
"""What became of a record: the registry's answer, or why it was not sent."""


class Contribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a trace."""

    trace_id: str  # also its id in the registry; empty if the record has none
    source: str  # `kp-source`, or where the record is if it has none
    result: str  # a Result, or `deleted`
    registry: str  # the registry's address
    status: int = 0  # the registry's HTTP status; 0 if it was not asked
    message: str = ""  # the registry's own words
    idempotency_key: str = ""  # that it was sent with
    # In milliseconds since the epoch.
    at: int = msgspec.field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def key(self) -> bytes:
        """The record's key."""
        return bounded_id(self.trace_id).encode("utf-8", "replace")

    def encode(self) -> bytes:
        """Return the record's value."""
        return msgspec.json.encode(self)


_decode = msgspec.json.Decoder(Contribution).decode


def source_topic(settings: Settings) -> str:
    """Return the topic that is sent: the redacted copies, where there are some."""
    return settings.topics.redacted or settings.topics.contribute


def contribution_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker contributions`` needs.

    Only the broker can check two more: Create on the topic of contributions, if it is missing, and Write on
    the transactional id.
    """
    yield from topic_rights(source_topic(settings), "Read", "DescribeConfigs")
    name = contributions_topic_name(settings.kafka.group)
    yield from topic_rights(name, "Write", "DescribeConfigs")
    yield Right("Read", "group", name)


async def create_topic(admin: TopicAdmin, name: str) -> None:
    """Create the topic of contributions if it is missing; it keeps its records forever."""
    await admin.create_if_missing(name, 1, {"retention.ms": "-1"})


async def read_contributions(settings: Settings, records: Collection[ScoredRecord]) -> list[Contribution]:
    """Return what became of traces, oldest first; nothing if none was ever sent.

    A redacted copy may have another id than its trace, but has its source.
    """
    name = contributions_topic_name(settings.kafka.group)
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topic = (await admin.describe([name])).get(name)
    if topic is None:
        return []
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        held = [one async for one in read_topic(reader, topic, None, lambda _read, _total: None)]
    all_of_them = []
    with skipping_foreign_records(name) as foreign:
        for record in held:
            try:
                all_of_them.append(_decode(record.value or b""))
            except msgspec.MsgspecError as error:
                foreign.skip(record, error)
    sources, ids = {one.source for one in records}, {one.id for one in records}
    ids |= {one.trace_id for one in all_of_them if one.source in sources and one.trace_id}
    return [one for one in all_of_them if one.source in sources or one.trace_id in ids]
