"""Read scored traces and send each score once, as an event and as a child of the agent's span.

The events, the spans and the offsets of their traces are committed in one transaction, so a crash neither
loses nor repeats a score.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.rights import READ, WRITE, Right, topic_rights
from knowledgepulse_kafka.session import Session, commit_repeatedly, positions_after
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.records.output_headers import trace_of
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.backends.all_backends import connected
from knowledgepulse_worker.tools.backends.backend_options import Destination
from knowledgepulse_worker.tools.common.group_program import group_program
from knowledgepulse_worker.tools.common.retries import StoppedError
from knowledgepulse_worker.tools.common.scored_records import read_scored_record
from knowledgepulse_worker.tools.evaluations.backend_scores import wait_for_backend, write_scores
from knowledgepulse_worker.tools.evaluations.evaluation_event import otlp_logs, otlp_spans, span_of
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics

logger = logging.getLogger(__name__)

_BATCH_BYTES = 1_048_576
"""The size limit of a batch: under a quota, brokers would delay a second batch of a transaction."""


@dataclass
class Evaluations:
    """Turns scored records into events and spans.

    Attributes:
        service: the worker's ``service.name``.
        topics: the topics of events and of spans.
        metrics: counts the records by result.
    """

    service: str
    topics: tuple[str, str]
    metrics: EvaluationMetrics

    async def send(self, records: Sequence[Record]) -> list[OutputRecord]:
        """Return the events and the spans of records, for the transaction."""
        return [output for record in records for output in self.outputs(record)]

    def outputs(self, record: Record) -> list[OutputRecord]:
        """Return the event and the span of a record; nothing if the record is skipped. Count either."""
        scored = read_scored_record(record)
        if scored is None:
            self.metrics.skip_foreign(record)
            return []
        span = span_of(trace_of(record))
        if span is None:
            self.metrics.results["without_span"].inc()
            return []
        self.metrics.results["sent"].inc()
        now_ns = time.time_ns()
        values = [export(scored, span, self.service, now_ns) for export in (otlp_logs, otlp_spans)]
        return [
            OutputRecord(topic, None, NO_TIMESTAMP, span.trace_id.encode(), value, ())
            for topic, value in zip(self.topics, values, strict=True)
        ]


def evaluation_topics(settings: Settings) -> tuple[str, str]:
    """Return the topics of events and of spans."""
    return settings.topics.evaluations, settings.topics.evaluation_spans


def evaluations_group(group: str) -> str:
    """Return the consumer group and the transactional id of ``kp-worker evaluations``."""
    return f"{group}-evaluations"


def evaluation_rights(settings: Settings, destination: Destination | None = None) -> Iterator[Right]:
    """Yield the rights that ``kp-worker evaluations`` needs; with a destination, only those to read.

    Only the broker can check two more: Create on the topics of evaluations, if they are missing, and Write on
    the transactional id.
    """
    yield from topic_rights(READ, *settings.topics.scored)
    if destination is None:
        yield from topic_rights(WRITE, *evaluation_topics(settings))
    yield Right("Read", "group", evaluations_group(settings.kafka.group))


async def run_evaluations(
    settings: Settings, destination: Destination | None, stop: asyncio.Event
) -> dict[str, int]:
    """Send evaluations until told to stop, and finish the current batch; return the outputs by result.

    Args:
        settings: the brokers, the topics and the port of the metrics.
        destination: the backend that gets the scores; None writes to the topics of evaluations.
        stop: is set when the command is to stop.

    Raises:
        StartError: the port of the metrics is in use.
        NoBrokerError: the brokers cannot be reached.
        SecurityError: the brokers reject the login, the certificate or an operation.
        TopicError: an output topic is missing.
        DeliveryError: a broker rejected an event, or another process took over.
    """
    names = settings.topics.scored
    async with permitted_admin(settings, evaluation_rights(settings, destination)) as admin:
        topics = await admin.required(names)
        targets = evaluation_topics(settings) if destination is None else ()
        for name in targets:
            await admin.create_if_missing(name, topics[names[0]].partitions, {})
        limits = [topic.max_message_bytes for topic in (await admin.required(targets)).values()]
    group = evaluations_group(settings.kafka.group)
    metrics = EvaluationMetrics(group=settings.kafka.group)
    evaluations = Evaluations(settings.kafka.group, evaluation_topics(settings), metrics)
    batch_bytes = min([_BATCH_BYTES, *limits])
    async with group_program(settings, metrics, group, names, batch_bytes=batch_bytes) as session:
        target = " and ".join(targets) if destination is None else destination.name
        logger.info("sending the scores of %s to %s", " and ".join(names), target)
        if destination is None:
            await send_scores(evaluations.send, metrics, session, stop)
        else:
            wait = partial(wait_for_backend, metrics, stop)
            async with connected(*destination, patience=None, wait=wait) as backend:
                await send_scores(partial(write_scores, backend, metrics), metrics, session, stop)
    return metrics.counts()


async def send_scores(
    send: Callable[[Sequence[Record]], Awaitable[Sequence[OutputRecord]]],
    metrics: EvaluationMetrics,
    session: Session,
    stop: asyncio.Event,
) -> None:
    """Send the scores of each batch, and commit its positions, until told to stop.

    Args:
        send: sends scores, and returns what is to be published in the transaction with the positions. After a
            crash, what it has sent is sent again.
        metrics: show the lag.
        session: reads the scored traces.
        stop: is set when the command is to stop.

    Raises:
        RefusedError: a broker rejected an event or a span.
    """
    with suppress(StoppedError):
        while not stop.is_set():
            if records := await session.poll():
                await commit_repeatedly(session, await send(records), positions_after(records))
            metrics.lag.set(await session.lag())
