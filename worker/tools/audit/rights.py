"""The rights of an audit."""

from __future__ import annotations

from collections.abc import Iterator

from worker.kafka.preflight.rights import Right, outputs, topic_rights
from worker.kafka.topics import changelog_topic_name, policies_topic_name
from worker.settings import Settings


def audit_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker audit`` needs."""
    group = settings.kafka.group
    for name in (
        settings.topics.raw,
        *outputs(settings),
        changelog_topic_name(group),
        policies_topic_name(group),
    ):
        yield from topic_rights(name, "Read", "DescribeConfigs")
    yield Right("Describe", "group", group)
