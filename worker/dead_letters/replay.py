"""Replay: dead letters go back to the raw topic, each once.

A dead letter stays in its topic when it is replayed, so another topic, ``<kafka.group>-replays``, remembers
which were: a record for each, keyed by its identity, with its new place in the raw topic as the value. The
replayed record and this one are written in one transaction, with a transactional id of the group. So, for
those who read committed records, as the worker does, a replay that was killed has published what it
remembers and nothing else; and of two that run at once, the one that began first is fenced off.

Limits: who reads uncommitted records from the raw topic sees those of a replay that failed; and a topic of
replays that is deleted forgets them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced, TransactionalIdAuthorizationFailed
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import RecordMetadata

from worker.dead_letters.letter import DeadLetter, Selection
from worker.dead_letters.topic import open_dead_letters
from worker.errors import DeliveryError, TopicError, WorkerError
from worker.kafka.connection import client_arguments
from worker.kafka.publisher import FRAMING_BYTES
from worker.kafka.reader import Told
from worker.kafka.rights import (
    Right,
    dead_letter_rights,
    missing_rights,
    replay_rights,
    require_rights,
)
from worker.kafka.topics import Topic, TopicAdmin
from worker.settings import KafkaSettings, Settings

BATCH_RECORDS = 100
BATCH_BYTES = 1_048_576
# An open transaction holds back the raw topic's readers; that of a process that was killed, for so long.
TRANSACTION_TIMEOUT_MS = 10_000
_CLIENT_BATCH_BYTES = 16_384

Stays = Literal["replayed before", "too many attempts", "cut", "empty", "too large"]
"""Why a dead letter stays where it is."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a dead letter.

    Attributes:
        letter: the dead letter.
        to: its place in the raw topic; empty when it has none.
        stays: why it was not replayed; None when it was.
    """

    letter: DeadLetter
    to: str = ""
    stays: Stays | None = None


Publish = Callable[[Sequence[DeadLetter]], Awaitable[list[str]]]
"""Publishes all or none; returns their places in the raw topic, in order."""


class RawTopic:
    """Publishes dead letters to the raw topic, together with what is to be remembered.

    An asynchronous context manager. Once it is entered, no earlier replay can publish any more, and what it
    had published is either confirmed or gone.

    Args:
        kafka: how to reach the brokers; the group names the transactional id.
        raw: the topic.
        replays: the name of the topic that remembers.
    """

    def __init__(self, kafka: KafkaSettings, raw: Topic, replays: str) -> None:
        self._kafka = kafka
        self._raw = raw
        self._replays = replays
        self._producer = AIOKafkaProducer(
            **client_arguments(kafka),
            transactional_id=replays,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=int(kafka.request_timeout * 1000),
            # A batch is refused as a whole, so none but one of a single record may come near the limit.
            max_batch_size=min(_CLIENT_BATCH_BYTES, raw.max_message_bytes),
            max_request_size=raw.max_message_bytes + FRAMING_BYTES,
        )

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(self._kafka.request_timeout):
                await self._producer.start()
        except (KafkaError, TimeoutError) as error:
            await self._producer.stop()
            raise self._explained(error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._producer.stop()

    async def publish(self, letters: Sequence[DeadLetter]) -> list[str]:
        """Publish all or none; returns their places, in order.

        Raises:
            DeliveryError: the brokers did not confirm all of it. They have none of it; or, where their word
                on the commit got lost, perhaps all, which the next replay then knows.
        """
        try:
            async with self._producer.transaction():
                deliveries = [await self._send(letter) for letter in letters]
                places = [
                    f"{to.topic}/{to.partition}/{to.offset}" for to in await asyncio.gather(*deliveries)
                ]
                marks = [
                    await self._remember(letter, place) for letter, place in zip(letters, places, strict=True)
                ]
                await asyncio.gather(*marks)
        except KafkaError as error:
            raise self._explained(error) from error
        return places

    async def _send(self, letter: DeadLetter) -> asyncio.Future[RecordMetadata]:
        record = letter.record
        delivery: asyncio.Future[RecordMetadata] = await self._producer.send(
            self._raw.name,
            value=record.value,
            key=record.key,
            partition=_partition(letter, self._raw),
            headers=letter.replay_headers(),
        )
        delivery.add_done_callback(_look)
        return delivery

    async def _remember(self, letter: DeadLetter, place: str) -> asyncio.Future[RecordMetadata]:
        delivery: asyncio.Future[RecordMetadata] = await self._producer.send(
            self._replays, place.encode(), key=letter.identity, partition=0
        )
        delivery.add_done_callback(_look)
        return delivery

    def _explained(self, error: KafkaError | TimeoutError) -> WorkerError:
        if isinstance(error, TransactionalIdAuthorizationFailed):
            return missing_rights([Right("Write", "transactional-id", self._replays)])
        if isinstance(error, ProducerFenced):
            return DeliveryError(
                f"{self._raw.name}: another replay of the group {self._kafka.group} took over, or a "
                f"transaction took longer than {TRANSACTION_TIMEOUT_MS // 1000} s; nothing was published but "
                "what was told; run it again"
            )
        if isinstance(error, TimeoutError):
            return DeliveryError(
                f"{self._raw.name}: no transaction could be begun in {self._kafka.request_timeout:g} s "
                "(kafka.request_timeout); a broker that stands alone needs transaction.state.log."
                "replication.factor=1 and transaction.state.log.min.isr=1"
            )
        return DeliveryError(f"{self._raw.name}: {type(error).__name__}: {error}")


async def replay(
    settings: Settings, selection: Selection, max_attempts: int, *, dry_run: bool, told: Told
) -> AsyncIterator[Outcome]:
    """Replay what is meant, and yield what became of each once it is certain.

    A record goes back with its own key, value and headers, and ``kp-attempt`` counted one up. Its time is
    that of the replay: one older than the raw topic's retention could be deleted before it is scored. It goes
    to the partition that it came from, since novelty is partition-local; where the raw topic does not have
    that, its key decides.

    Args:
        settings: the brokers, the group and the topics.
        selection: which dead letters.
        max_attempts: one that was replayed so often stays.
        dry_run: publish nothing, remember nothing.
        told: told of progress.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
        TopicError: a topic is missing.
        DeliveryError: a broker did not take a record.
    """
    await require_rights(settings.kafka, [*dead_letter_rights(settings), *replay_rights(settings)])
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topics = await admin.existing()
        if settings.topics.raw not in topics:
            raise TopicError(f"missing: {settings.topics.raw}; `kp-worker topics` creates it")
        if not dry_run:
            await admin.create_replays()
    raw = topics[settings.topics.raw]
    async with AsyncExitStack() as stack:
        publish = _rehearse(raw)
        if not dry_run:
            publish = (await stack.enter_async_context(RawTopic(settings.kafka, raw, admin.replays))).publish
        # Only now that no other replay can publish is it certain what was replayed.
        letters = await stack.enter_async_context(open_dead_letters(settings))
        replayed = await letters.replayed()
        async for batch in _batches(letters.select(selection, told)):
            ready = []
            for letter in batch:
                stays = why_it_stays(letter, raw, max_attempts)
                if letter.identity in replayed:
                    yield Outcome(letter, replayed[letter.identity], "replayed before")
                elif stays:
                    yield Outcome(letter, stays=stays)
                else:
                    ready.append(letter)
                    replayed[letter.identity] = raw.name  # one that was published twice is replayed once
            for letter, place in zip(ready, await publish(ready) if ready else [], strict=True):
                yield Outcome(letter, place)


def _look(delivery: asyncio.Future[RecordMetadata]) -> None:
    """Look at an error: when a later send fails, nobody waits for the earlier ones."""
    if not delivery.cancelled():
        delivery.exception()


def _rehearse(raw: Topic) -> Publish:
    async def publish(letters: Sequence[DeadLetter]) -> list[str]:
        partitions = [_partition(letter, raw) for letter in letters]
        return [raw.name if partition is None else f"{raw.name}/{partition}" for partition in partitions]

    return publish


async def _batches(letters: AsyncIterator[DeadLetter]) -> AsyncIterator[list[DeadLetter]]:
    batch: list[DeadLetter] = []
    async for letter in letters:
        batch.append(letter)
        if len(batch) == BATCH_RECORDS or sum(one.record.size for one in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    yield batch


def why_it_stays(letter: DeadLetter, raw: Topic, max_attempts: int) -> Stays | None:
    """Return what keeps a dead letter from being replayed; None when nothing does."""
    record = letter.record
    if letter.is_cut:
        return "cut"
    if not record.value:
        return "empty"
    if letter.attempts >= max_attempts:
        return "too many attempts"
    size = DefaultRecordBatchBuilder.estimate_size_in_bytes(record.key, record.value, letter.replay_headers())
    return "too large" if size > raw.max_message_bytes else None


def _partition(letter: DeadLetter, raw: Topic) -> int | None:
    return letter.record.partition if letter.record.partition < raw.partitions else None
