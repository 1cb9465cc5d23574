"""The rights of the policy tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from worker.kafka.preflight.rights import Right, topic_rights
from worker.kafka.topics import policies_topic_name
from worker.settings import Settings


def kept_policy_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker policy show`` and ``history`` need."""
    yield from topic_rights(policies_topic_name(settings.kafka.group), "Read", "DescribeConfigs")


def label_rights(name: str) -> Iterator[Right]:
    """Yield the rights for reading labels from a topic."""
    yield from topic_rights(name, "Read", "DescribeConfigs")


def republishing_rights(names: Iterable[str]) -> Iterator[Right]:
    """Yield the rights for publishing rescored traces."""
    for name in names:
        yield from topic_rights(name, "Write", "DescribeConfigs")
