"""What the sender needs of topics: its source, its rights, and the topic of the results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from knowledgepulse_curator.contributions.registry_client import FinalAnswer
from knowledgepulse_kafka.rights import READ, WRITE, Right, topic_rights
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.worker_topics import contributions_topic_name
from knowledgepulse_worker.policy import CONTRIBUTE
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.egress_rule import HoldReason

Result = Literal[FinalAnswer, HoldReason, "invalid", "not_redacted", "foreign"]
"""The result for a record: the registry's answer, or the reason for not sending it."""


def source_topic(settings: Settings) -> str:
    """Return the topic that is sent: that of the redacted copies if it is set, otherwise `contribute`."""
    return settings.topics.redacted or settings.topics.of(CONTRIBUTE)


def contribution_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker contributions`` needs.

    Only the broker can check two more: Create on the topic of contributions, if it is missing, and Write on
    the transactional id.
    """
    yield from topic_rights(READ, source_topic(settings))
    name = contributions_topic_name(settings.kafka.group)
    yield from topic_rights(WRITE, name)
    yield Right("Read", "group", name)


async def create_topic(admin: TopicAdmin, name: str) -> None:
    """Create the topic of contributions if it is missing; it keeps its records forever."""
    await admin.create_if_missing(name, 1, {"retention.ms": "-1"})
