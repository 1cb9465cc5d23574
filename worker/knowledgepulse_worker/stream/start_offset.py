"""Choose the offset from which a partition is read: the group's position, unless it no longer holds."""

from __future__ import annotations

import logging

from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.kafka.transactional_publisher import TOPIC_ID
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.stream.partition import Partition

logger = logging.getLogger(__name__)


def set_start(partition: Partition, changelog: Changelog, topic_id: bytes) -> None:
    """Set the offset that is expected first in a partition; None for its beginning.

    Args:
        partition: the partition, with the group's position.
        changelog: the partition's recovered changelog.
        topic_id: the id of the raw topic; empty if unknown.
    """
    number, topic = partition.at.partition, partition.at.topic
    if topic_id and _was_recreated(partition.committed, changelog, topic_id):
        logger.warning("partition %d: %s was recreated; reading it from its beginning", number, topic)
        partition.expected = None
        return
    kept = changelog.source
    if kept is None or not kept.topic_id or kept.topic_id != topic_id:
        return
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


def _was_recreated(position: OffsetAndMetadata | None, changelog: Changelog, topic_id: bytes) -> bool:
    """Return whether a position belongs to a deleted topic of the same name.

    The position's metadata decides, or the ledger entry before it if there is none. A commit identifies its
    topic only by name, so it may arrive after the topic was recreated.
    """
    if position is None:
        return False
    if position.metadata.startswith(TOPIC_ID):
        return bool(position.metadata != TOPIC_ID + topic_id.hex())
    newest = changelog.newest_before(position.offset)
    return newest is not None and newest.topic_id not in (b"", topic_id)
