"""Read scored traces and send each score once as an event of the agent's span.

The events and the offsets of their traces are committed in one transaction, so a crash neither loses nor
repeats an event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from knowledgepulse_kafka.outcome import Refused, Throttled
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from knowledgepulse_kafka.rights import READ, WRITE, Right, require_rights, topic_rights
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.http.metrics_port import serving_metrics
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.records.scored import read_record
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.evaluations.evaluation_event import otlp_logs, span_of
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics

logger = logging.getLogger(__name__)

_BATCH_BYTES = 1_048_576
"""The size limit of a batch: under a quota, brokers would delay a second batch of a transaction."""


@dataclass
class Evaluations:
    """Turns scored records into events.

    Attributes:
        service: the worker's ``service.name``.
        metrics: counts the records by result.
    """

    service: str
    metrics: EvaluationMetrics

    def event(self, record: Record) -> tuple[bytes, bytes] | None:
        """Return key and value of a record's event; None if the record is skipped. Count either."""
        scored = read_record(record)
        if scored is None:
            self.metrics.results["foreign"].inc()
            return None
        span = span_of(record.value)
        if span is None:
            self.metrics.results["without_span"].inc()
            return None
        self.metrics.results["sent"].inc()
        return span.trace_id.encode(), otlp_logs(scored, span, self.service, time.time_ns())


def evaluations_group(group: str) -> str:
    """Return the consumer group and the transactional id of ``kp-worker evaluations``."""
    return f"{group}-evaluations"


def evaluation_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker evaluations`` needs.

    Only the broker can check two more: Create on the topic of evaluations, if it is missing, and Write on the
    transactional id.
    """
    yield from topic_rights(READ, *settings.topics.scored)
    yield from topic_rights(WRITE, settings.topics.evaluations)
    yield Right("Read", "group", evaluations_group(settings.kafka.group))


async def run_evaluations(settings: Settings, stop: asyncio.Event) -> dict[str, int]:
    """Send evaluations until told to stop, and finish the current batch; return the outputs by result.

    Raises:
        StartError: the port of the metrics is in use.
        NoBrokerError: the brokers cannot be reached.
        SecurityError: the brokers reject the login, the certificate or an operation.
        TopicError: an output topic is missing.
        DeliveryError: a broker rejected an event, or another process took over.
    """
    await require_rights(settings.kafka.client_config(), evaluation_rights(settings))
    names = settings.topics.scored
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topics = await admin.required(names)
        evaluations_topic = settings.topics.evaluations
        await admin.create_if_missing(evaluations_topic, topics[names[0]].partitions, {})
        batch_bytes = (await admin.required([evaluations_topic]))[evaluations_topic].max_message_bytes
    group = evaluations_group(settings.kafka.group)
    metrics = EvaluationMetrics()
    evaluations = Evaluations(settings.kafka.group, metrics)
    async with (
        Session(
            replace(settings.kafka.client_config(), group=group),
            names,
            group,
            decoded_bytes=settings.limits.batch_bytes,
            batch_bytes=min(_BATCH_BYTES, batch_bytes),
        ) as session,
        serving_metrics(settings.web, metrics.render, lambda: session.not_ready),
    ):
        logger.info("sending the scores of %s to %s", " and ".join(names), settings.topics.evaluations)
        await send_evaluations(evaluations, settings, session, stop)
    return metrics.counts()


async def send_evaluations(
    evaluations: Evaluations,
    settings: Settings,
    session: Session,
    stop: asyncio.Event,
) -> None:
    """Send the evaluations of each batch in one transaction, until told to stop.

    Raises:
        RefusedError: a broker rejected an event.
    """
    while not stop.is_set():
        if records := await session.poll():
            events = [event for record in records if (event := evaluations.event(record)) is not None]
            topic = settings.topics.evaluations
            outputs = [OutputRecord(topic, None, NO_TIMESTAMP, key, value, ()) for key, value in events]
            while isinstance(outcome := await session.commit(outputs, positions_after(records)), Throttled):
                logger.info("%s; the transaction is repeated", outcome.reason)
            if isinstance(outcome, Refused):
                raise outcome.error
        evaluations.metrics.lag.set(await session.lag())


def positions_after(records: Sequence[Record]) -> dict[tuple[str, int], Position]:
    """Return the positions after records that are in offset order in each partition."""
    return {(record.topic, record.partition): Position(record.offset + 1) for record in records}
