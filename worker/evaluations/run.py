"""Read scored traces and send each score once as an event of the agent's span.

What is read and what is sent are committed in one transaction, so a crash neither loses nor repeats an event.
A trace that its worker published again is skipped, as long as it is among the last of its raw partition.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from worker.errors import TopicError
from worker.evaluations.event import otlp_logs, span_of
from worker.kafka.consumer import BatchConsumer
from worker.kafka.reader import Record
from worker.kafka.rights import evaluation_rights, require_rights
from worker.kafka.topics import TopicAdmin, evaluations_group
from worker.kafka.transactions import GroupOffset, TransactionalPublisher
from worker.policies.records import read_record
from worker.scoring import ScoredRecord, bounded_id
from worker.settings import Settings

logger = logging.getLogger(__name__)

MESSAGE_BYTES = 65_536
"""More than an event takes: its texts are bounded."""

LOG_INTERVAL = 60.0
"""Seconds between two log lines of the counts."""


@dataclass
class Counts:
    """The records read so far.

    Attributes:
        sent: evaluations sent.
        without_span: traces without ``metadata.span_context``, which have no span to send a score to.
        repeats: records that repeat an earlier one.
        foreign: records that were not written by a worker.
    """

    sent: int = 0
    without_span: int = 0
    repeats: int = 0
    foreign: int = 0


class Evaluations:
    """Turns scored records into events.

    Args:
        service: ``service.name`` of the worker.
        window: how many of the last records of an output topic and a raw partition are compared for repeats.

    Attributes:
        counts: the records read so far.
    """

    def __init__(self, service: str, window: int) -> None:
        self.counts = Counts()
        self._service = service
        self._window = window
        self._seen: dict[tuple[str, str], OrderedDict[tuple[str, str], None]] = {}

    def event(self, record: Record) -> tuple[bytes, bytes] | None:
        """Return key and value of a record's event; None if it has none, which is counted."""
        scored = read_record(record)
        if scored is None:
            self.counts.foreign += 1
            return None
        if not self._is_new(record.topic, scored):
            self.counts.repeats += 1
            return None
        span = span_of(record.value)
        if span is None:
            self.counts.without_span += 1
            return None
        self.counts.sent += 1
        return span.trace_id.encode(), otlp_logs(scored, span, self._service, time.time_ns())

    def _is_new(self, topic: str, scored: ScoredRecord) -> bool:
        partition, _, offset = scored.source.rpartition("/")
        seen = self._seen.setdefault((topic, partition), OrderedDict())
        # The offset alone is not unique: offsets start over when a raw topic is recreated.
        identity = offset, bounded_id(scored.id)
        if identity in seen:
            return False
        seen[identity] = None
        if len(seen) > self._window:
            seen.popitem(last=False)
        return True


async def run_evaluations(settings: Settings, stop: asyncio.Event) -> Counts:
    """Send evaluations until told to stop.

    Args:
        settings: the brokers, the group and the topics.
        stop: set to stop after the current batch.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: the brokers reject the login, the certificate or an operation.
        TopicError: an output topic is missing.
        DeliveryError: a broker rejected an event, or another process took over.
    """
    await require_rights(settings.kafka, evaluation_rights(settings))
    names = (settings.topics.contribute, settings.topics.rejected)
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topics = await admin.describe(names)
        if missing := [name for name in names if name not in topics]:
            raise TopicError(f"missing: {', '.join(missing)}; `kp-worker topics` creates them")
        await admin.create_evaluations(topics[names[0]].partitions)
    group = evaluations_group(settings.kafka.group)
    evaluations = Evaluations(settings.kafka.group, settings.limits.uncommitted_records)
    async with (
        # First, since it ends an earlier process' transaction, which may move the positions.
        TransactionalPublisher(settings.kafka, group, MESSAGE_BYTES) as publisher,
        BatchConsumer(settings.kafka, group, names, settings.limits.batch_bytes) as consumer,
    ):
        logger.info("sending the scores of %s to %s", " and ".join(names), settings.topics.evaluations)
        logged_at = time.monotonic()
        while not stop.is_set():
            if records := await consumer.batch():
                await _send(publisher, settings.topics.evaluations, group, evaluations, records)
                if time.monotonic() - logged_at >= LOG_INTERVAL:
                    logged_at = time.monotonic()
                    log_counts(evaluations.counts)
    return evaluations.counts


async def _send(
    publisher: TransactionalPublisher,
    topic: str,
    group: str,
    evaluations: Evaluations,
    records: Sequence[Record],
) -> None:
    async with publisher.transaction(*offsets_after(records, group)) as send:
        events = [event for record in records if (event := evaluations.event(record)) is not None]
        deliveries = [await send(topic, value, key=key, partition=None) for key, value in events]
        await asyncio.gather(*deliveries)


def offsets_after(records: Sequence[Record], group: str) -> list[GroupOffset]:
    """Return the offsets after records that are in offset order in each partition."""
    last = {(record.topic, record.partition): record.offset for record in records}
    return [GroupOffset(group, topic, number, offset + 1) for (topic, number), offset in last.items()]


def log_counts(counts: Counts) -> None:
    """Log the counts."""
    logger.info(
        "%d scores sent; skipped %d traces without a span, %d repeats, %d records not written by a worker",
        *(counts.sent, counts.without_span, counts.repeats, counts.foreign),
    )
