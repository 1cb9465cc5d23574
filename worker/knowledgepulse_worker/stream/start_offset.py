"""Choose the offset from which a partition is read: the group's position, unless it no longer holds."""

from __future__ import annotations

import logging

from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.kafka.transactional_publisher import TOPIC_ID
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.stream.gaps import PassedOver
from knowledgepulse_worker.stream.partition import Partition

logger = logging.getLogger(__name__)


def set_start(partition: Partition, changelog: Changelog, topic_id: bytes) -> PassedOver | None:
    """Set the offset that is expected first in a partition; None for its beginning.

    A worker commits the group's position together with that in the changelog, and names the topic in it. A
    position beyond that which names no topic was set by someone else: an operator, or a client in the
    workers' group. It is obeyed.

    Args:
        partition: the partition, with the group's position.
        changelog: the partition's recovered changelog.
        topic_id: the id of the raw topic; empty if unknown.

    Returns:
        the offsets before the group's position that no worker has read; None if there are none.
    """
    number, topic = partition.at.partition, partition.at.topic
    if topic_id and _was_recreated(partition.committed, changelog, topic_id):
        logger.warning("partition %d: %s was recreated; reading it from its beginning", number, topic)
        partition.expected = None
        return None
    kept = changelog.source
    if kept is None or not kept.topic_id or kept.topic_id != topic_id:
        is_new = kept is None and not changelog.entries  # otherwise, the ledger is of an earlier release
        return _passed_over(partition, None) if is_new and topic_id else None
    partition.done = kept.offset
    if partition.committed is None:
        # Brokers delete the positions of a group that was without members for a week
        # (``offsets.retention.minutes``). A new group has no ledger of this topic.
        logger.warning(
            "partition %d: the group has no position in %s, for it has expired or was deleted; "
            "continuing from offset %d, as the ledger says",
            *(number, topic, kept.offset),
        )
        partition.expected = kept.offset
    if partition.expected == kept.offset:  # otherwise, an operator has set the group's position
        partition.epoch = kept.leader_epoch
    return _passed_over(partition, kept.offset)


def _passed_over(partition: Partition, start: int | None) -> PassedOver | None:
    position = partition.committed
    if position is None or position.metadata.startswith(TOPIC_ID) or position.offset <= (start or 0):
        return None
    return PassedOver(partition.at, start, position.offset)


def _was_recreated(position: OffsetAndMetadata | None, changelog: Changelog, topic_id: bytes) -> bool:
    """Return whether a position belongs to a deleted topic of the same name.

    The position's metadata decides. Without any, the workers' own position does, or the ledger entry before
    it. A commit identifies its topic only by name, so it may arrive after the topic was recreated.
    """
    if position is None:
        return False
    if position.metadata.startswith(TOPIC_ID):
        return bool(position.metadata != TOPIC_ID + topic_id.hex())
    last = changelog.source or changelog.newest_before(position.offset)
    return last is not None and last.topic_id not in (b"", topic_id)
