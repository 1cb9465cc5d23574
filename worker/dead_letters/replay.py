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

from worker.dead_letters.letter import DeadLetter, Selection
from worker.dead_letters.topic import open_dead_letters
from worker.errors import TopicError
from worker.kafka.publisher import record_bytes
from worker.kafka.reader import ProgressCallback
from worker.kafka.rights import dead_letter_rights, replay_rights, require_rights
from worker.kafka.topics import Topic, TopicAdmin
from worker.kafka.transactions import TransactionalPublisher
from worker.settings import KafkaSettings, Settings

BATCH_RECORDS = 100
BATCH_BYTES = 1_048_576
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
    """Publishes dead letters to the raw topic, and their replays to the topic that remembers them.

    An asynchronous context manager. Once it is entered, no earlier replay can publish any more, and what it
    had published is either confirmed or gone.

    Args:
        kafka: how to reach the brokers.
        raw: the topic.
        replays: the name of the topic that remembers; also the transactional id.
    """

    def __init__(self, kafka: KafkaSettings, raw: Topic, replays: str) -> None:
        self._raw = raw
        self._replays = replays
        self._publisher = TransactionalPublisher(kafka, replays, raw.max_message_bytes)

    async def __aenter__(self) -> Self:
        await self._publisher.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._publisher.__aexit__(kind, error, traceback)

    async def publish(self, letters: Sequence[DeadLetter]) -> list[str]:
        """Publish all or none in one transaction; return their places, in order.

        Raises:
            DeliveryError: the brokers did not confirm all of it. They have none of it; or, where their answer
                to the commit got lost, perhaps all, which the next replay then knows.
        """
        async with self._publisher.transaction() as send:
            deliveries = [
                await send(
                    self._raw.name,
                    letter.record.value,
                    key=letter.record.key,
                    partition=_partition(letter, self._raw),
                    headers=letter.replay_headers(),
                )
                for letter in letters
            ]
            places = [f"{to.topic}/{to.partition}/{to.offset}" for to in await asyncio.gather(*deliveries)]
            marks = [
                await send(self._replays, place.encode(), key=letter.identity, partition=0)
                for letter, place in zip(letters, places, strict=True)
            ]
            await asyncio.gather(*marks)
        return places


async def replay(
    settings: Settings, selection: Selection, max_attempts: int, *, dry_run: bool, told: ProgressCallback
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
    size = record_bytes(record.key, record.value, letter.replay_headers())
    return "too large" if size > raw.max_message_bytes else None


def _partition(letter: DeadLetter, raw: Topic) -> int | None:
    return letter.record.partition if letter.record.partition < raw.partitions else None
