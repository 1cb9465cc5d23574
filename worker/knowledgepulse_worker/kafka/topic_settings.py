"""Follow the settings of the topics, which an operator may change while a worker runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress

from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.errors import EXPECTED
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.worker_topics import (
    changelog_topic_name,
    differences,
    obstacles,
    policies_topic_name,
)
from knowledgepulse_worker.settings import Settings

logger = logging.getLogger(__name__)

FOLLOW_INTERVAL = 20.0
"""Seconds between two look-ups of the topics."""


async def follow_topics(settings: Settings, topics: dict[str, Topic]) -> None:
    """Look up the topics: what they accept decides whether an output becomes a dead letter.

    Settings that would stop a worker at its start, or that are not recommended, are logged when they appear.

    Args:
        settings: the effective settings.
        topics: the topics as they were, which are brought up to date.

    Raises:
        TopicError: the changelog had fewer partitions than the raw topic and has grown, so that a new process
            would read more partitions.
    """
    present: dict[str, Topic] = {}
    with suppress(*EXPECTED):
        # The worker's other clients tell of quotas.
        async with TopicAdmin(settings.kafka, settings.topics, Throttle()) as admin:
            present = await admin.existing(*(topics.keys() - {admin.replays}))
    if not present:
        return
    raw, changelog = topics[settings.topics.raw], topics[changelog_topic_name(settings.kafka.group)]
    count = present[changelog.name].partitions
    if changelog.partitions < raw.partitions and count > changelog.partitions:
        raise TopicError(f"{changelog.name} now has {count} partitions instead of {changelog.partitions}")
    known = set(_problems(settings, topics))
    for problem in _problems(settings, present):
        if problem not in known:
            logger.warning("%s", problem)
    topics.update(present)


def _problems(settings: Settings, topics: Mapping[str, Topic]) -> Iterator[str]:
    group = settings.kafka.group
    dead_letter, changelog = topics[settings.topics.dead_letter], topics[changelog_topic_name(group)]
    yield from obstacles(dead_letter, changelog, topics[policies_topic_name(group)])
    yield from differences(topics, settings.topics)
