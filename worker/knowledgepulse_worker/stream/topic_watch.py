"""Watch the topics that the worker writes to: one may be deleted, and the changelog may grow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from knowledgepulse_worker.errors import TopicError, WorkerError
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.topics import Topic, changelog_topic_name, missing_topics
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.stream.watchdog import INTERVAL

_CHANGELOG_INTERVAL = 10.0


async def watch_topics(missing: Callable[[], Sequence[str]]) -> None:
    """Look for missing topics.

    Args:
        missing: returns the missing topics.

    Raises:
        TopicError: a topic was deleted, and the client would wait for it without end.
    """
    while True:
        await asyncio.sleep(INTERVAL)
        if names := missing():
            raise missing_topics(names)


async def watch_changelog(settings: Settings, topics: Mapping[str, Topic]) -> None:
    """Look for added partitions of the changelog, unless it had enough at the start.

    Args:
        settings: the effective settings.
        topics: the topics as they were at the start.

    Raises:
        TopicError: the changelog has grown, so a new process would read more partitions.
    """
    raw, changelog = topics[settings.topics.raw], topics[changelog_topic_name(settings.kafka.group)]
    while changelog.partitions < raw.partitions:
        await asyncio.sleep(_CHANGELOG_INTERVAL)
        count = 0
        with suppress(WorkerError):
            async with TopicAdmin(settings.kafka, settings.topics) as admin:
                count = (await admin.required([changelog.name]))[changelog.name].partitions
        if count > changelog.partitions:
            raise TopicError(f"{changelog.name} now has {count} partitions instead of {changelog.partitions}")
