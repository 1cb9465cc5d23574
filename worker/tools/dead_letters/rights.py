"""The rights of reading and replaying dead letters."""

from __future__ import annotations

from collections.abc import Iterator

from worker.kafka.preflight.rights import Right, topic_rights
from worker.kafka.topics import replays_topic_name
from worker.settings import Settings


def dead_letter_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker dead-letters list`` and ``show`` need."""
    for name in (settings.topics.dead_letter, replays_topic_name(settings.kafka.group)):
        yield from topic_rights(name, "Read", "DescribeConfigs")


def replay_rights(settings: Settings) -> Iterator[Right]:
    """Yield the additional rights that ``kp-worker dead-letters replay`` needs.

    Only the broker can check two more: Create on the replays topic, if it is missing, and Write on the
    transactional id.
    """
    yield from topic_rights(settings.topics.raw, "Write", "DescribeConfigs")
    yield from topic_rights(replays_topic_name(settings.kafka.group), "Write")
