"""The rights that the worker and `kp-worker topics` need."""

from __future__ import annotations

from collections.abc import Iterator

from knowledgepulse_kafka.rights import READ, READ_AND_WRITE, WRITE, Right, topic_rights
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name, policies_topic_name
from knowledgepulse_worker.settings import Settings


def worker_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker run`` needs.

    Only the broker can check one more: Write on the transactional ids that begin with
    :func:`worker_id_prefix`.
    """
    topics, group = settings.topics, settings.kafka.group
    yield from topic_rights(READ, topics.raw)
    yield from topic_rights(WRITE, *topics.outputs, *topics.copies)
    yield from topic_rights(READ_AND_WRITE, changelog_topic_name(group), policies_topic_name(group))
    yield Right("Read", "group", group)


def worker_id_prefix(group: str) -> str:
    """Return the prefix of the transactional ids of a group's workers."""
    return f"{group}-run-"


def creation_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker topics`` needs, except Create, which only the broker can check."""
    topics, group = settings.topics, settings.kafka.group
    names = (topics.raw, *topics.outputs, *topics.copies)
    own = (changelog_topic_name(group), policies_topic_name(group))
    yield from topic_rights(("Describe", "DescribeConfigs"), *names, *own)
