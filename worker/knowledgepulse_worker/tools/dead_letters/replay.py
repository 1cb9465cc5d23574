"""Replay dead letters to the raw topic, each exactly once.

A replayed dead letter stays in its topic, so replays are recorded in another topic,
``<kafka.group>-replays``: one record per replay, keyed by the letter's identity, with its new location in the
raw topic as value. The replayed record and its replay record are written in one transaction, under a
transactional id of the group. For consumers with ``read_committed``, such as the worker, a killed replay has
therefore published exactly what it recorded; and of two concurrent replays, the first is fenced off.

Limits: consumers with ``read_uncommitted`` see the records of failed replays; deleting the replays topic
forgets all replays.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.rights import WRITE, Right, topic_rights
from knowledgepulse_kafka.topic_limits import record_bytes
from knowledgepulse_kafka.topic_reader import ProgressCallback
from knowledgepulse_kafka.topics import COMPACTED, Topic
from knowledgepulse_kafka.transactional_publisher import BATCH_BYTES, TransactionalPublisher
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.kafka.worker_topics import replays_topic_name
from knowledgepulse_worker.settings import KafkaSettings, Settings
from knowledgepulse_worker.tools.dead_letters.dead_letter_topic import dead_letter_rights, open_dead_letters
from knowledgepulse_worker.tools.dead_letters.letter import DeadLetter, Selection

TRANSACTION_RECORDS = 100
TRANSACTION_BYTES = BATCH_BYTES
"""Bytes after which a transaction is committed; under a quota, brokers would delay the end of larger ones."""
NoReplayReason = Literal[
    "replayed before", "of another topic", "too many attempts", "truncated", "empty", "too large"
]
"""Why a dead letter is not replayed."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The result for a dead letter that was selected for replay.

    Attributes:
        letter: the dead letter.
        to: its new location in the raw topic; empty if it has none.
        skipped: the reason for skipping it; None if it was replayed.
    """

    letter: DeadLetter
    to: str = ""
    skipped: NoReplayReason | None = None


class RawTopic(TransactionalPublisher):
    """Publishes dead letters to the raw topic, and records their replays.

    On entry, it fences off earlier replays: they cannot publish any more, and their transactions are either
    committed or aborted.

    ``replays``: the name of the replays topic, which is also the transactional id.
    """

    def __init__(self, kafka: KafkaSettings, raw: Topic, replays: str) -> None:
        super().__init__(kafka.client_config(), replays, min(BATCH_BYTES, raw.max_message_bytes))
        self._raw = raw
        self._replays = replays

    async def publish(self, letters: Sequence[DeadLetter]) -> list[str]:
        """Publish all letters in one transaction and return their locations, in order.

        Raises:
            DeliveryError: the transaction was not confirmed. It was aborted; or, if the response to the
                commit was lost, it may be committed, which the next replay will find out.
        """
        async with self.transaction() as write:
            replayed = [
                OutputRecord(
                    topic=self._raw.name,
                    partition=_partition(letter, self._raw),
                    timestamp_ms=NO_TIMESTAMP,
                    key=letter.record.key,
                    value=letter.record.value,
                    headers=tuple(letter.replay_headers()),
                )
                for letter in letters
            ]
            locations = [f"{self._raw.name}/{to.partition}/{to.offset}" for to in await write(replayed)]
            replays = [
                OutputRecord(self._replays, 0, NO_TIMESTAMP, letter.identity, location.encode(), ())
                for letter, location in zip(letters, locations, strict=True)
            ]
            await write(replays)
        return locations


async def replay(
    settings: Settings, selection: Selection, max_attempts: int, *, dry_run: bool, progress: ProgressCallback
) -> AsyncIterator[Replay]:
    """Replay the selected dead letters and yield each result once it is final.

    A record keeps its key, value and headers; ``kp-attempt`` is incremented. Its timestamp is the time of the
    replay, as a record older than the raw topic's retention could be deleted before it is scored. It returns
    to its original partition, since novelty is partition-local; if the raw topic has no such partition, the
    key decides.

    Letters that were already replayed ``max_attempts`` times are skipped.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: the brokers reject the login, the certificate or an operation.
        TopicError: a topic is missing.
        DeliveryError: a broker rejected a record.
    """
    async with permitted_admin(settings, [*dead_letter_rights(settings), *replay_rights(settings)]) as admin:
        raw = (await admin.existing(settings.topics.raw))[settings.topics.raw]
        if not dry_run:
            await admin.create_if_missing(admin.replays, 1, COMPACTED)
    async with AsyncExitStack() as stack:
        if not dry_run:
            topic = await stack.enter_async_context(RawTopic(settings.kafka, raw, admin.replays))
        # Read the replays only now: other replays are fenced off, so the list is final.
        letters = await stack.enter_async_context(open_dead_letters(settings))
        replayed = await letters.replayed()
        async for batch in _batches(letters.select(selection, progress)):
            ready = []
            for letter in batch:
                reason = skip_reason(letter, raw, max_attempts)
                if letter.identity in replayed:
                    yield Replay(letter, replayed[letter.identity], "replayed before")
                elif reason:
                    yield Replay(letter, skipped=reason)
                else:
                    ready.append(letter)
                    replayed[letter.identity] = raw.name  # so that duplicates are replayed once
            if dry_run:
                places = [(raw.name, _partition(letter, raw)) for letter in ready]
                locations = [name if number is None else f"{name}/{number}" for name, number in places]
            else:
                locations = await topic.publish(ready) if ready else []
            for letter, location in zip(ready, locations, strict=True):
                yield Replay(letter, location)


def replay_rights(settings: Settings) -> Iterator[Right]:
    """Yield the additional rights that ``kp-worker dead-letters replay`` needs.

    Only the broker can check two more: Create on the replays topic, if it is missing, and Write on the
    transactional id.
    """
    yield from topic_rights(WRITE, settings.topics.raw)
    yield from topic_rights(["Write"], replays_topic_name(settings.kafka.group))


async def _batches(letters: AsyncIterator[DeadLetter]) -> AsyncIterator[list[DeadLetter]]:
    batch: list[DeadLetter] = []
    async for letter in letters:
        batch.append(letter)
        if (
            len(batch) == TRANSACTION_RECORDS
            or sum(letter.record.size for letter in batch) >= TRANSACTION_BYTES
        ):
            yield batch
            batch = []
    yield batch


def skip_reason(letter: DeadLetter, raw: Topic, max_attempts: int) -> NoReplayReason | None:
    """Return why a dead letter cannot be replayed; None if it can."""
    record = letter.record
    if record.topic != raw.name:
        return "of another topic"
    if letter.is_truncated:
        return "truncated"
    if not record.value:
        return "empty"
    if letter.attempts >= max_attempts:
        return "too many attempts"
    size = record_bytes(record.key, record.value, letter.replay_headers())
    return "too large" if size > raw.max_message_bytes else None


def _partition(letter: DeadLetter, raw: Topic) -> int | None:
    return letter.record.partition if letter.record.partition < raw.partitions else None
