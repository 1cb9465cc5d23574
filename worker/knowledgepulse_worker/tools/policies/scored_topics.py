"""What the tools read from topics: scored traces, and the policies that were ever in force."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from knowledgepulse_kafka.rights import READ, topic_rights
from knowledgepulse_kafka.topic_reader import Reader, Record, TopicReader, read_topic
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.kafka.policy_topic import KeptPolicy, read_policies
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.kafka.worker_topics import policies_topic_name
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import REMEDY, Settings
from knowledgepulse_worker.tools.common.base64_headers import (
    has_base64_headers,
    warn_if_base64_headers,
    warn_of_base64_headers,
)
from knowledgepulse_worker.tools.common.scored_records import is_named, read_counted
from knowledgepulse_worker.tools.terminal.arguments import Period
from knowledgepulse_worker.tools.terminal.console import TopicProgressCallback, topic_progress

FOLLOW_PAUSE = 0.5
"""Seconds between two looks at topics that are followed."""

REMEMBERED = 100_000
"""The number of traces that are remembered while topics are followed: some 30 MB, however long that is."""


async def require_topics(
    settings: Settings, names: Sequence[str], operations: Sequence[str] = READ, remedy: str = REMEDY
) -> list[Topic]:
    """Return topics that exist and allow the operations, by default reading.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
        TopicError: a topic is missing.
    """
    async with permitted_admin(settings, topic_rights(operations, *names)) as admin:
        topics = await admin.required(names, remedy)
    return [topics[name] for name in names]


class ScoredTopics:
    """Read scored records up to the current end of their topics."""

    def __init__(self, reader: Reader, topics: Sequence[Topic], progress: TopicProgressCallback) -> None:
        self.topics = topics
        self.foreign = 0  # number of skipped records that were not written by a worker
        self.repeats = 0  # number of skipped records that repeat an earlier one
        self._reader, self._progress = reader, progress

    async def read(self, period: Period) -> AsyncIterator[tuple[Record, ScoredRecord]]:
        """Yield the scored records of a period by topic, partition and offset, the first of each raw record.

        Others repeat it: releases before 0.3.0 could publish an output again after a crash, an operator may
        set the workers' group back, and ``kp-worker policy rescore --live`` publishes to the same topics.
        """
        # Source alone is not unique: offsets start over when a raw topic is recreated.
        seen: set[tuple[str, str]] = set()
        async for record, scored in self._with_repeats(period):
            if (scored.source, scored.id) in seen:
                self.repeats += 1
            else:
                seen.add((scored.source, scored.id))
                yield record, scored

    async def follow(self, period: Period) -> AsyncIterator[ScoredRecord]:
        """Yield the scored records of a period, and then those that arrive, until it is closed.

        As in :meth:`read`, the first of each raw record, among the last :data:`REMEMBERED`.
        """
        read: dict[tuple[str, int], int] = {}
        seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        while True:
            for topic, partition in [(each, n) for each in self.topics for n in range(each.partitions)]:
                held = await self._reader.bounds(topic.name, partition)
                start = read.get((topic.name, partition))
                if start is None and period.since_ms is not None:
                    start = await self._reader.first_since(topic.name, partition, period.since_ms)
                    start = held.stop if start is None else start
                read[topic.name, partition] = held.stop
                new = range(max(start or 0, held.start), held.stop)
                async for record in self._reader.read(topic.name, partition, new):
                    if record.timestamp not in period:
                        continue
                    scored = read_counted(record)
                    if scored is None:
                        warn_if_base64_headers(record.topic, record.headers)
                    elif (scored.source, scored.id) not in seen:
                        seen[scored.source, scored.id] = None
                        if len(seen) > REMEMBERED:
                            seen.popitem(last=False)
                        yield scored
            await asyncio.sleep(FOLLOW_PAUSE)

    async def find(self, name: str) -> list[ScoredRecord]:
        """Return the different records with this name, or at this position of a raw or scored topic."""
        traces: list[ScoredRecord] = []
        async for record, scored in self._with_repeats(Period()):
            position = f"{record.topic}/{record.partition}/{record.offset}"
            is_wanted = name in (scored.source, position) or is_named(scored, name)
            if is_wanted and scored not in traces:
                traces.append(scored)
        return traces

    async def _with_repeats(self, period: Period) -> AsyncIterator[tuple[Record, ScoredRecord]]:
        for topic in self.topics:
            progress, base64 = partial(self._progress, topic.name), 0
            async for record in read_topic(self._reader, topic, period.since_ms, progress):
                if record.timestamp not in period:
                    continue
                scored = read_counted(record)
                if scored is None:
                    self.foreign += 1
                    base64 += has_base64_headers(record.headers)
                else:
                    yield record, scored
            warn_of_base64_headers(topic.name, base64)


@asynccontextmanager
async def open_scored_topics(settings: Settings) -> AsyncIterator[ScoredTopics]:
    """Open the topics of scored traces, and show how far they are read; see :func:`require_topics`."""
    topics = await require_topics(settings, settings.topics.scored)
    async with TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
        with topic_progress() as progress:
            yield ScoredTopics(reader, topics, progress)


async def follow_scored_topics(
    settings: Settings, period: Period, show: Callable[[ScoredRecord], None], stop: asyncio.Event
) -> None:
    """Show the scored traces of the topics, and those that arrive, until a stop is requested."""
    topics = await require_topics(settings, settings.topics.scored)

    async def show_all() -> None:
        async with TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
            async for scored in ScoredTopics(reader, topics, lambda *_: None).follow(period):
                show(scored)

    showing, stopping = asyncio.create_task(show_all()), asyncio.create_task(stop.wait())
    await asyncio.wait({showing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if showing.done():
        showing.result()  # which raises what ended it
    showing.cancel()
    with suppress(asyncio.CancelledError):
        await showing


async def policy_history(settings: Settings) -> list[KeptPolicy]:
    """Return the policies in the order in which they last came into force; at least one.

    Raises:
        InputError: no policy has come into force yet; see also :func:`require_topics`.
    """
    topic = policies_topic_name(settings.kafka.group)
    await require_topics(settings, [topic])
    async with TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
        history = await read_policies(reader, topic)
    if not history:
        raise InputError(f"{topic} contains no policies: no worker of this group has started yet")
    return history
