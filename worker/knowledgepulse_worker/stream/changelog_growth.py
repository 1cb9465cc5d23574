"""Wait for the changelog's missing partitions, if this worker has no right to add them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from knowledgepulse_worker.errors import TopicError, WorkerError
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.topics import Topic, changelog_topic_name
from knowledgepulse_worker.settings import Settings

_INTERVAL = 10.0


async def watch_changelog(settings: Settings, topics: Mapping[str, Topic]) -> None:
    """Look for added partitions, unless each partition of the raw topic had a ledger at the start.

    Args:
        settings: the effective settings.
        topics: the topics as they were at the start.

    Raises:
        TopicError: the changelog has grown, so a new process would read more partitions.
    """
    raw, changelog = topics[settings.topics.raw], topics[changelog_topic_name(settings.kafka.group)]
    while changelog.partitions < raw.partitions:
        await asyncio.sleep(_INTERVAL)
        count = 0
        with suppress(WorkerError):
            async with TopicAdmin(settings.kafka, settings.topics) as admin:
                count = (await admin.required([changelog.name]))[changelog.name].partitions
        if count > changelog.partitions:
            raise TopicError(f"{changelog.name} now has {count} partitions instead of {changelog.partitions}")
