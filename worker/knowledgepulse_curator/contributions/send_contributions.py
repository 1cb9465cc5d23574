"""Send contributed traces to the registry, one after another, until told to stop.

The offset is committed in one transaction with the registry's final answer. Before a trace is sent, the
registry is asked whether it already has it, so that nothing is sent twice after a crash between the answer
and the commit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from knowledgepulse_curator.contributions.contribution_metrics import ContributionMetrics
from knowledgepulse_curator.contributions.contributions_topic import (
    contribution_rights,
    create_topic,
    source_topic,
)
from knowledgepulse_curator.contributions.knowledge_unit import KnowledgeUnit, unit_of
from knowledgepulse_curator.contributions.registry_client import RegistryAnswer, RegistryClient
from knowledgepulse_curator.contributions.request_pace import SleepFunction
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.session import Session, commit_repeatedly, positions_after
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_schemas.headers import last_header
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.kafka.worker_topics import contributions_topic_name
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.records.output_headers import trace_of
from knowledgepulse_worker.scoring import bounded_id
from knowledgepulse_worker.settings import RegistrySettings, Settings
from knowledgepulse_worker.tools.common.base64_headers import has_base64_headers, warn_if_base64_headers
from knowledgepulse_worker.tools.common.group_program import group_program
from knowledgepulse_worker.tools.common.registry_results import RegistryResult
from knowledgepulse_worker.tools.common.retries import (
    NoAnswerError,
    StoppedError,
    sleep_until_stopped,
    until_answered,
)
from knowledgepulse_worker.tools.common.scored_records import read_scored_record

logger = logging.getLogger(__name__)

LONGEST_WAIT = 60.0
"""Longest pause in seconds between two requests to a registry that does not answer."""

HOUR = 3600.0

_T = TypeVar("_T")


@dataclass
class RequestRetrier:
    """Repeats a request until there is a final answer.

    Attributes:
        sleep: waits between requests.
        metrics: counts the repeated requests.
        clock: returns the monotonic time.
    """

    sleep: SleepFunction
    metrics: ContributionMetrics
    clock: Callable[[], float] = time.monotonic
    _refusals: deque[float] = field(default_factory=lambda: deque(maxlen=2))

    async def ask(self, request: Callable[[], Awaitable[_T]]) -> _T:
        """Return the result of a request once it does not raise a NoAnswerError."""
        return await until_answered(request, self._wait, longest=LONGEST_WAIT)

    async def _wait(self, seconds: float, error: NoAnswerError) -> None:
        self.metrics.retries[error.reason].inc()
        if error.reason == "limited":  # a third refusal within an hour revokes the key
            now = self.clock()
            self._refusals.append(now)
            if len(self._refusals) == 2:
                seconds = max(seconds, self._refusals[0] + HOUR - now)
        logger.warning("%s: %s; trying again in %.0f s", error.reason, printable(str(error)), seconds)
        await self.sleep(seconds)


@dataclass
class Sender:
    """Sends records to the registry.

    Attributes:
        registry: the agent that contributes, and the traces that may leave.
        client: sends the requests.
        persistence: repeats them.
    """

    registry: RegistrySettings
    client: RegistryClient
    persistence: RequestRetrier

    async def send(self, record: Record) -> RegistryResult:
        """Send a record if it may leave and the registry does not have it yet; return the result.

        Raises:
            AccessError: the registry refuses the key.
            SettingsError: there is no registry at the address.
        """
        scored = read_scored_record(record)
        if scored is None:
            return self._without_score(record)
        unit = unit_of(trace_of(record), scored, self.registry)
        if not isinstance(unit, KnowledgeUnit):
            return self._held(scored.id, scored.source, unit)
        answer = await self.persistence.ask(lambda: self._answer(unit))
        return RegistryResult(
            trace_id=unit.id,
            source=bounded_id(scored.source),
            result=answer.verdict,
            registry=self.registry.url or "",
            status=answer.status,
            message=answer.message,
            idempotency_key=unit.idempotency_key,
        )

    def _without_score(self, record: Record) -> RegistryResult:
        """Return the result for a record of others, or for one in place of a trace that was not redacted."""
        if has_base64_headers(record.headers) or last_header(record.headers, "kp-redaction-error") is None:
            warn_if_base64_headers(record.topic, record.headers)
            return self._held("", f"{record.topic}/{record.partition}/{record.offset}", "foreign")
        source = last_header(record.headers, "kp-source") or b""
        return self._held("", source.decode("utf-8", "replace"), "not_redacted")

    async def _answer(self, unit: KnowledgeUnit) -> RegistryAnswer:
        if await self.client.has(unit.id):
            return RegistryAnswer("duplicate", 200)
        return await self.client.contribute(unit)

    def _held(self, trace_id: str, source: str, result: str) -> RegistryResult:
        return RegistryResult(bounded_id(trace_id), bounded_id(source), result, self.registry.url or "")


async def run_sender(settings: Settings, stop: asyncio.Event) -> dict[str, int]:
    """Send contributed traces until told to stop, after the request in hand.

    Returns:
        The number of traces by result, and of repeated requests by reason.

    Raises:
        StartError: the port of the metrics is in use.
        SettingsError: the registry's settings are incomplete, or its address is wrong.
        AccessError: the registry refuses the key.
        SecurityError: the brokers refuse the login, the certificate or an operation.
        NoBrokerError: the brokers cannot be reached.
        TopicError: the topic is missing.
        DeliveryError: a broker rejected an answer, or another process took over.
    """
    metrics = ContributionMetrics(group=settings.kafka.group)
    sleep = partial(sleep_until_stopped, stop=stop)
    client = RegistryClient(settings.registry, sleep)
    source = source_topic(settings)
    answers = group = contributions_topic_name(settings.kafka.group)  # the transactional id, too
    async with permitted_admin(settings, contribution_rights(settings)) as admin:
        await admin.required([source])
        await create_topic(admin, answers)
    persistence = RequestRetrier(sleep, metrics)
    async with group_program(settings, metrics, group, [source]) as session, client:
        sender = Sender(settings.registry, client, persistence)
        try:
            await persistence.ask(client.check)
            logger.info("sending %s to %s", source, settings.registry.url)
            while not stop.is_set():
                await _send_each(await session.poll(), sender, session, answers, metrics)
                metrics.lag.set(await session.lag())
        except StoppedError:
            logger.info("stopping")
    return metrics.counts()


async def _send_each(
    records: Sequence[Record], sender: Sender, session: Session, answers: str, metrics: ContributionMetrics
) -> None:
    """Send records, and commit each with the registry's answer; those after a rebalance are read again."""
    for record in records:
        if not session.is_current:  # a killed process has left the group
            return
        contribution = await sender.send(record)
        answer = OutputRecord(answers, None, NO_TIMESTAMP, contribution.key, contribution.encode(), ())
        if not await commit_repeatedly(session, [answer], positions_after([record])):
            return
        metrics.results[contribution.result].inc()
