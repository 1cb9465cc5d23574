"""Choose the offset from which a partition is read: the group's position, unless it no longer holds."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from knowledgepulse_kafka.client_types import CommittedPosition, Place
from knowledgepulse_kafka.records import Position
from knowledgepulse_kafka.transactional_publisher import TOPIC_ID
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.stream.unread_offsets import PassedOver

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """Where to read a partition from.

    Attributes:
        offset: the offset of the first record; None for the partition's beginning.
        leader_epoch: the epoch of the record before; -1 if unknown.
        passed_over: the offsets before the group's position that no worker has read; None if there are none.
        has_lost_ledger: whether the changelog lacks entries of the records before.
    """

    offset: int | None
    leader_epoch: int = -1
    passed_over: PassedOver | None = None
    has_lost_ledger: bool = False


def start_of(at: Place, committed: CommittedPosition | None, changelog: Changelog, topic_id: bytes) -> Start:
    """Return where to read a partition from.

    A worker commits the group's position together with that in the changelog, and names the topic in it. A
    position that names no topic was set by someone else: an operator, or a client in the workers' group. It
    is obeyed. A worker's own position before that in the changelog is a former one: a coordinator was elected
    that lacks the last (``unclean.leader.election.enable``).

    Args:
        at: the topic and the partition number.
        committed: the group's position; None if it has none.
        changelog: the partition's recovered changelog.
        topic_id: the id of the raw topic; empty if unknown.
    """
    number, topic = at.partition, at.topic
    if topic_id and _was_recreated(committed, changelog, topic_id):
        logger.warning(
            "partition %d: %s was recreated, or is another cluster's copy; reading it from its beginning",
            *(number, topic),
        )
        return Start(None)
    kept = changelog.position
    if committed is not None and _lacks_entries(changelog, committed, topic_id):
        logger.warning(
            "partition %d: the changelog lacks the entries before offset %d, the group's position in %s, "
            "since it was deleted or has lost its end; the next records are compared with %d entries",
            *(number, committed.offset, topic, len(changelog.entries)),
        )
        return Start(committed.offset, has_lost_ledger=True)
    if kept is None or not kept.topic_id or kept.topic_id != topic_id:
        is_new = kept is None and not changelog.entries  # otherwise, the ledger is of an earlier release
        passed_over = _passed_over(at, committed, None) if is_new and topic_id else None
        return Start(None if committed is None else committed.offset, passed_over=passed_over)
    return _start_with_ledger(at, committed, kept)


def _start_with_ledger(at: Place, committed: CommittedPosition | None, kept: Position) -> Start:
    """Return where to read a partition from whose ledger names the topic and a position."""
    if committed is None:
        # Brokers delete the positions of a group that was without members for a week
        # (``offsets.retention.minutes``). A new group has no ledger of this topic.
        logger.warning(
            "partition %d: the group has no position in %s, for it has expired or was deleted; "
            "continuing from offset %d, as the ledger says",
            *(at.partition, at.topic, kept.offset),
        )
    elif _is_workers(committed) and committed.offset < kept.offset:
        logger.warning(
            "partition %d: the group's coordinator has lost the last positions in %s that workers committed, "
            "after %d; continuing from offset %d, as the ledger says",
            *(at.partition, at.topic, committed.offset, kept.offset),
        )
    elif committed.offset != kept.offset:  # an operator has set the group's position
        return Start(committed.offset, passed_over=_passed_over(at, committed, kept.offset))
    return Start(kept.offset, kept.leader_epoch)


def _lacks_entries(changelog: Changelog, committed: CommittedPosition, topic_id: bytes) -> bool:
    """Return whether a changelog ends before a position that a worker has committed together with it."""
    if not topic_id or not _is_workers(committed) or not committed.offset:
        return False
    kept = changelog.position
    if kept is None:
        return not changelog.entries  # otherwise, the ledger is of an earlier release
    return kept.topic_id == topic_id and kept.offset < committed.offset


def _is_workers(committed: CommittedPosition) -> bool:
    """Return whether a worker has committed a position, and not an operator's tool or another client."""
    return bool(committed.metadata.startswith(TOPIC_ID))


def _passed_over(at: Place, committed: CommittedPosition | None, start: int | None) -> PassedOver | None:
    if committed is None or _is_workers(committed) or committed.offset <= (start or 0):
        return None
    return PassedOver(at, start, committed.offset)


def _was_recreated(committed: CommittedPosition | None, changelog: Changelog, topic_id: bytes) -> bool:
    """Return whether a position belongs to a deleted topic of the same name.

    The position's metadata decides. Without any, the workers' own position does, or the ledger entry before
    it. A commit identifies its topic only by name, so it may arrive after the topic was recreated.
    """
    if committed is None:
        return False
    if _is_workers(committed):
        return bool(committed.metadata != TOPIC_ID + topic_id.hex())
    last = changelog.position or changelog.newest_before(committed.offset)
    return last is not None and last.topic_id not in (b"", topic_id)
