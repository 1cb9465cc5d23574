"""Send contributed traces to the registry, one after another, until told to stop.

The offset is committed in one transaction with the answer, once the registry has answered for good. Whether
it has a trace already is asked first: after a crash between its answer and the commit, nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from knowledgepulse_schemas.headers import last_header
from knowledgepulse_worker.http.metrics_port import serving_metrics
from knowledgepulse_worker.kafka.preflight.rights import require_rights
from knowledgepulse_worker.kafka.sole_reader import SoleReader
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.topic_reader import Record
from knowledgepulse_worker.kafka.topics import contributions_topic_name
from knowledgepulse_worker.kafka.transactional_publisher import GroupOffset, TransactionalPublisher
from knowledgepulse_worker.records.scored import read_record
from knowledgepulse_worker.scoring import bounded_id
from knowledgepulse_worker.settings import RegistrySettings, Settings
from knowledgepulse_worker.terminal.printable import printable
from knowledgepulse_worker.tools.contributions.contribution_metrics import ContributionMetrics
from knowledgepulse_worker.tools.contributions.contributions_topic import (
    Contribution,
    contribution_rights,
    create_topic,
    source_topic,
)
from knowledgepulse_worker.tools.contributions.knowledge_unit import Unit, unit_of
from knowledgepulse_worker.tools.contributions.registry_client import Answer, RegistryClient, TryAgain
from knowledgepulse_worker.tools.contributions.request_pace import Sleep

logger = logging.getLogger(__name__)

MESSAGE_BYTES = 65_536
"""More than what became of a trace takes: its texts are bounded."""

LONGEST_WAIT = 60.0
"""Seconds between two requests of a registry that does not answer."""

HOUR = 3600.0

_T = TypeVar("_T")


class Stopped(Exception):  # noqa: N818 - it is no error
    """The command is to stop, and waits for nothing more."""


@dataclass
class Persistence:
    """Asks again until there is an answer for good: never at once, and ever more rarely."""

    sleep: Sleep
    metrics: ContributionMetrics  # counts what is asked again
    clock: Callable[[], float] = time.monotonic
    _refusals: deque[float] = field(default_factory=lambda: deque(maxlen=2))

    async def ask(self, request: Callable[[], Awaitable[_T]]) -> _T:
        """Return what a request returns once it does not raise TryAgain."""
        wait = 0.5
        while True:
            try:
                return await request()
            except TryAgain as error:
                self.metrics.retries[error.reason].inc()
                wait = min(2 * wait, LONGEST_WAIT)
                seconds = wait * random.uniform(0.75, 1) if error.seconds is None else error.seconds  # noqa: S311 - no secret
                if error.reason == "limited":
                    seconds = self._after_refusal(seconds)
                logger.warning("%s: %s; again in %.0f s", error.reason, printable(str(error)), seconds)
                await self.sleep(seconds)

    def _after_refusal(self, seconds: float) -> float:
        """Return how long to wait after a refusal: a third one within an hour would revoke the key."""
        now = self.clock()
        self._refusals.append(now)
        if len(self._refusals) < 2:
            return seconds
        return max(seconds, self._refusals[0] + HOUR - now)


@dataclass
class Sender:
    """Finds out what becomes of each record."""

    registry: RegistrySettings  # whose agent contributes, and what may leave
    client: RegistryClient
    persistence: Persistence

    async def send(self, record: Record) -> Contribution:
        """Return what became of a record; sends it if it may leave, and the registry has it not yet.

        Raises:
            SecurityError: the registry refuses the key.
            SettingsError: at the address is no registry.
        """
        scored = read_record(record)
        if scored is None and last_header(record.headers, "kp-redaction-error") is not None:
            source = last_header(record.headers, "kp-source") or b""
            return self._held("", source.decode("utf-8", "replace"), "not_redacted")
        if scored is None:
            return self._held("", f"{record.topic}/{record.partition}/{record.offset}", "foreign")
        unit = unit_of(record.value, scored, self.registry)
        if not isinstance(unit, Unit):
            return self._held(scored.id, scored.source, unit)
        answer = await self.persistence.ask(lambda: self._answer(unit))
        return Contribution(
            trace_id=unit.id,
            source=bounded_id(scored.source),
            result=answer.verdict,
            registry=self.registry.url or "",
            status=answer.status,
            message=answer.message,
            idempotency_key=unit.idempotency_key,
        )

    async def _answer(self, unit: Unit) -> Answer:
        if await self.client.has(unit.id):
            return Answer("duplicate", 200)
        return await self.client.contribute(unit)

    def _held(self, trace_id: str, source: str, result: str) -> Contribution:
        return Contribution(bounded_id(trace_id), bounded_id(source), result, self.registry.url or "")


async def run_sender(settings: Settings, stop: asyncio.Event) -> dict[str, int]:
    """Send contributed traces until told to stop, after the request in hand.

    Returns:
        How many traces had which result, and how many requests were repeated why.

    Raises:
        StartError: the port of the metrics is in use.
        SettingsError: the registry's settings are incomplete, or its address is wrong.
        SecurityError: the registry refuses the key, or the brokers an operation.
        NoBrokerError: the brokers cannot be reached.
        TopicError: the topic is missing.
        DeliveryError: a broker rejected an answer, or another process took over.
    """

    async def sleep(seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            return
        raise Stopped

    metrics = ContributionMetrics()
    client = RegistryClient(settings.registry, sleep)
    source = source_topic(settings)
    answers = group = contributions_topic_name(settings.kafka.group)  # the transactional id, too
    await require_rights(settings.kafka, contribution_rights(settings))
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        await admin.required([source])
        await create_topic(admin, answers)
    persistence = Persistence(sleep, metrics)
    async with (
        TransactionalPublisher(settings.kafka, group, MESSAGE_BYTES) as publisher,
        SoleReader(settings.kafka, group, [source], settings.limits.batch_bytes) as reader,
        serving_metrics(settings.web, metrics.render, lambda: reader.not_ready),
        client,
    ):
        sender = Sender(settings.registry, client, persistence)
        try:
            await persistence.ask(client.check)
            logger.info("sending %s to %s", source, settings.registry.url)
            while not stop.is_set():
                for record in await reader.batch():
                    if not reader.is_current:  # a killed process has left the group: the rest is read again
                        break
                    contribution = await sender.send(record)
                    after = GroupOffset(record.topic, record.partition, record.offset + 1)
                    async with publisher.transaction(after, group=reader.group) as send:
                        key, value = contribution.key, contribution.encode()
                        await (await send(answers, value, key=key, partition=None))
                    metrics.results[contribution.result].inc()
                metrics.lag.set(await reader.lag())
        except Stopped:
            logger.info("stopping")
    return metrics.counts()
