"""A member of a consumer group, which extends aiokafka's consumer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import IllegalGenerationError, NoError, RebalanceInProgressError
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.kafka.connection import client_arguments
from knowledgepulse_worker.kafka.lease import Lease, heartbeat_interval
from knowledgepulse_worker.kafka.wire.group_offsets import GroupMetadata, fetch_stable_offsets
from knowledgepulse_worker.kafka.wire.record_batches import MAX_POLL_RECORDS, decoding
from knowledgepulse_worker.settings import KafkaSettings

FETCH_BYTES = 131_072
"""Bytes fetched per partition and request; a larger record is fetched alone (KIP-74).

Larger fetches fragment the heap and are no faster.
"""
# The broker answers a fetch after this time even without records.
_FETCH_MAX_WAIT_MS = 100
# The watchdog detects a worker that polls too rarely; the client would silently leave the group.
_NEVER_MS = 2**31 - 1
# With these codes the coordinator still knows the member.
_IS_KNOWN = (NoError.errno, RebalanceInProgressError.errno)


class GroupMember(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka is untyped
    """Reads committed records and renews the lease while the group's coordinator knows this member.

    Args:
        kafka: the connection and the group.
        batch_bytes: the largest batch to decode, inflated.
        lease: renewed by the coordinator's responses.
        rebalance_timeout: seconds that a rebalance allows its members to finish.

    Attributes:
        group: the group with this member and the generation of its assignment. During a rebalance, the
            client's own generation is ahead, and records of the former assignment still arrive.
    """

    def __init__(
        self, kafka: KafkaSettings, batch_bytes: int, lease: Lease, rebalance_timeout: float
    ) -> None:
        super().__init__(
            **client_arguments(kafka),
            group_id=kafka.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=_FETCH_MAX_WAIT_MS,
            session_timeout_ms=int(kafka.session_timeout * 1000),
            heartbeat_interval_ms=int(heartbeat_interval(kafka.session_timeout) * 1000),
            rebalance_timeout_ms=int(rebalance_timeout * 1000),
            max_poll_interval_ms=_NEVER_MS,
            max_poll_records=MAX_POLL_RECORDS,
            partition_assignment_strategy=(StickyPartitionAssignor,),
        )
        self._lease = lease
        self._batch_bytes = batch_bytes
        self._commits_as = -1
        self.group = GroupMetadata(kafka.group)

    async def start(self) -> None:
        """Connect."""
        with decoding(self._batch_bytes):
            await super().start()
        # The client has no hook for the coordinator's responses.
        coordinator = self._coordinator
        coordinator._send_req = self._observed(coordinator._send_req)  # noqa: SLF001
        coordinator._do_fetch_commit_offsets = partial(fetch_stable_offsets, coordinator)  # noqa: SLF001

    @property
    def generation(self) -> int:
        """The group's generation, which every rebalance increments; negative without a membership."""
        return -1 if self._coordinator is None else cast("int", self._coordinator.generation)

    @property
    def is_member(self) -> bool:
        """Whether this worker is a group member, as far as the client knows."""
        return self.generation >= 0

    async def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the group's committed position with its metadata, which the client's own method omits."""
        found = await self._coordinator.fetch_committed_offsets([partition])
        return cast("OffsetAndMetadata | None", found.get(partition))

    async def commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit positions as a member of the current generation.

        The client repeats an unanswered commit, even as a member of a later generation. A worker that was
        suspended meanwhile would then move the group back to before its successor's position.

        Raises:
            CommitFailedError: the partitions may have other owners.
            IllegalStateError: a partition is not assigned.
            KafkaError: the coordinator refused the commit.
        """
        self._commits_as = self.generation
        await super().commit(positions)

    def check_membership(self) -> None:
        """Check that the client is still in its group, as every fetch does.

        Raises:
            KafkaError: the group rejected the member, or the client failed permanently.
        """
        if self._coordinator is not None:
            self._coordinator.check_errors()

    def _observed(self, send: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def send_and_observe(request: Any) -> Any:
            if isinstance(request, OffsetCommitRequest) and self.generation != self._commits_as:
                raise IllegalGenerationError("the group has rebalanced since")
            sent_at = time.monotonic()
            response = await send(request)
            if isinstance(request, HeartbeatRequest | SyncGroupRequest) and response.error_code in _IS_KNOWN:
                self._lease.renew(sent_at)
            if isinstance(request, SyncGroupRequest) and response.error_code == NoError.errno:
                self.group = GroupMetadata(self.group.group, self._coordinator.member_id, self.generation)
            return response

        return send_and_observe
