"""The group of evaluations, and the rights of the command."""

from __future__ import annotations

from collections.abc import Iterator

from knowledgepulse_worker.kafka.preflight.rights import Right, scored_rights, topic_rights
from knowledgepulse_worker.settings import Settings


def evaluations_group(group: str) -> str:
    """Return the consumer group and the transactional id of ``kp-worker evaluations``."""
    return f"{group}-evaluations"


def evaluation_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker evaluations`` needs.

    Only the broker can check two more: Create on the topic of evaluations, if it is missing, and Write on the
    transactional id.
    """
    yield from scored_rights(settings)
    yield from topic_rights(settings.topics.evaluations, "Write", "DescribeConfigs")
    yield Right("Read", "group", evaluations_group(settings.kafka.group))
