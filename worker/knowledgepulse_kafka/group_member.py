"""A member of a consumer group, which extends aiokafka's consumer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError, NoError, RebalanceInProgressError
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.client_factory import adapted, client_arguments
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.connection_diagnosis import explanation
from knowledgepulse_kafka.errors import BrokerError
from knowledgepulse_kafka.fetch_by_id import FetchById
from knowledgepulse_kafka.fetch_pacing import pace_fetches
from knowledgepulse_kafka.group_offsets import GroupMetadata, fetch_all_offsets, fetch_stable_offsets
from knowledgepulse_kafka.group_type import require_group_of_consumers
from knowledgepulse_kafka.leader_epochs import epoch_ends
from knowledgepulse_kafka.private_parts import (
    CONSUMER_CLIENT,
    COORDINATOR,
    COORDINATOR_BACKOFF_MS,
    FETCH_OFFSETS,
    SEND_TO_COORDINATOR,
    SUBSCRIPTION,
)
from knowledgepulse_kafka.record_batches import MAX_POLL_RECORDS, decode_within
from knowledgepulse_kafka.request_waits import Waits
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.throttling import CONSUMER_QUOTA, logged_throttle
from knowledgepulse_kafka.topics import gone

HEARTBEATS = 4
"""Heartbeats in a session timeout."""

FETCH_BYTES = 131_072
"""Bytes fetched per partition and request; a larger record is fetched alone (KIP-74).

Larger fetches fragment the heap and are no faster.
"""
# The broker answers a fetch after this time even without records.
_FETCH_MAX_WAIT_MS = 100
# The client notices added partitions when it refreshes its metadata.
_METADATA_MAX_AGE_MS = 20_000
# A client that polls too rarely would leave the group in silence.
_NEVER_MS = 2**31 - 1
# Members do not read it.
_ASSIGNMENT_DATA = b"knowledgepulse-worker"
# With these codes the coordinator still knows the member.
_IS_KNOWN = (NoError.errno, RebalanceInProgressError.errno)
# It stands for no committed offset, and the client keeps the position that was sought.
_SOUGHT = OffsetAndMetadata(-1, "")

CommittedPositions: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | None]
"""The committed positions of partitions; None where a group has none."""


class TransactionalAssignor(StickyPartitionAssignor):  # type: ignore[misc]  # aiokafka is untyped
    """The sticky assignor, under a name of its own.

    A group's members agree on an assignor, so the group refuses members that do not commit in transactions.

    A consumer with ``group.protocol=consumer`` (KIP-848) names no assignor. Brokers would admit it, upgrade
    the group and assign the partitions themselves. They refuse this if the members' assignments carry data of
    the assignor, which an upgrade would lose (KAFKA-18134). In a group that such a consumer has joined first,
    brokers admit these members and assign the partitions, whatever the assignor
    (``GroupMetadata.is_assigned_by_brokers``).
    """

    name = "sticky-transactional"

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignment of each member, with data."""
        return {
            member: ConsumerProtocolMemberAssignment(plain.version, plain.assignment, _ASSIGNMENT_DATA)
            for member, plain in super().assign(cluster, members).items()
        }


class GroupMember(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka is untyped
    """Reads committed records as a member of a group.

    Args:
        config: the connection and the group.
        batch_bytes: the largest batch to decode, inflated.
        rebalance_timeout: seconds that a rebalance allows its members to finish.
        throttle: notes the times for which brokers throttle the client; by default, it logs them.

    Attributes:
        waits: what the member waits for.
        answered_at: when the group's coordinator last answered this member (``time.monotonic``).
        group: the group with this member and the generation of its assignment. During a rebalance, the
            client's own generation is ahead, and records of the former assignment still arrive.
    """

    def __init__(
        self,
        config: Config,
        batch_bytes: int,
        rebalance_timeout: float,
        throttle: Throttle | None = None,
    ) -> None:
        self.waits = Waits(explain=partial(explanation, config))
        super().__init__(
            **client_arguments(config),
            group_id=config.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=_FETCH_MAX_WAIT_MS,
            metadata_max_age_ms=_METADATA_MAX_AGE_MS,
            session_timeout_ms=int(config.session_timeout * 1000),
            heartbeat_interval_ms=int(config.session_timeout * 1000 / HEARTBEATS),
            rebalance_timeout_ms=int(rebalance_timeout * 1000),
            max_poll_interval_ms=_NEVER_MS,
            max_poll_records=MAX_POLL_RECORDS,
            partition_assignment_strategy=(TransactionalAssignor,),
        )
        adapted(self, throttle or logged_throttle(CONSUMER_QUOTA), self.waits)
        self._config = config
        self._batch_bytes = batch_bytes
        self.answered_at = time.monotonic()
        self.group = GroupMetadata(config.group)
        self._has_leader = True
        self._fetches: FetchById

    async def start(self) -> None:
        """Connect.

        Raises:
            BrokerError: the group's id is that of a group of another type.
            KafkaError: the brokers refuse the client, or cannot be reached.
        """
        await super().start()
        try:
            await require_group_of_consumers(CONSUMER_CLIENT.of(self), self._config)
        except BrokerError:
            await self.stop()
            raise
        decode_within(self, self._batch_bytes)
        client = CONSUMER_CLIENT.of(self)
        self._fetches = FetchById(client.send, self._answered)
        client.send = self._fetches.send
        pace_fetches(self)
        coordinator = COORDINATOR.of(self)
        SEND_TO_COORDINATOR.replace(coordinator, self._observed(SEND_TO_COORDINATOR.of(coordinator)))
        FETCH_OFFSETS.replace(coordinator, partial(fetch_all_offsets, coordinator))

    @property
    def generation(self) -> int:
        """The group's generation, which every rebalance increments; negative without a membership."""
        coordinator = COORDINATOR.of(self)
        return -1 if coordinator is None else cast("int", coordinator.generation)

    @property
    def is_member(self) -> bool:
        """Whether this is a group member, as far as the client knows."""
        return self.generation >= 0

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed positions; partitions without one are left out.

        A position that an open transaction may still replace is awaited.
        """
        positions = dict[TopicPartition, OffsetAndMetadata | None]()
        async for stable in self.stable_positions(partitions):
            positions.update(stable)
        return {tp: position for tp, position in positions.items() if position is not None}

    async def stable_positions(
        self, partitions: Iterable[TopicPartition]
    ) -> AsyncIterator[CommittedPositions]:
        """Yield the group's committed positions in groups, each once no open transaction may replace it.

        A process that dies in a transaction leaves it open for seconds, and another client for as long as it
        likes; the other partitions need not wait.

        Raises:
            KafkaError: the coordinator refuses.
        """
        coordinator = COORDINATOR.of(self)
        awaited = set(partitions)
        while awaited:
            await coordinator.ensure_coordinator_known()
            try:
                positions = await fetch_stable_offsets(coordinator, awaited)
            except KafkaError as error:
                if not error.retriable:
                    raise
                positions = {}
            if positions:
                awaited -= positions.keys()
                yield positions
            if awaited:
                await asyncio.sleep(COORDINATOR_BACKOFF_MS.of(coordinator) / 1000)  # as the client's own

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset of the next fetch, and have the client await no committed offset for it.

        While it does, it fetches from no partition with the same leader.
        """
        super().seek(partition, offset)
        state = SUBSCRIPTION.of(self).subscription.assignment.state_value(partition)
        state.update_committed(_SOUGHT)

    def read_by_id(self, topic: str, topic_id: bytes) -> None:
        """Fetch a topic by its id from now on (KIP-516), so that no record of its successor is returned."""
        self._fetches.read(topic, topic_id)

    @property
    def is_read_by_id(self) -> bool:
        """Whether all records are fetched by a topic's id; brokers before Kafka 3.1 cannot do it."""
        return bool(self._fetches.ids) and not self._fetches.names_only

    @property
    def has_lost_topic(self) -> bool:
        """Whether a leader does not know the topic by its id."""
        return self._fetches.has_lost_topic

    def _answered(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a broker has answered for partitions, even where it has nothing new."""
        assignment = SUBSCRIPTION.of(self).subscription.assignment
        now_ms = int(time.time() * 1000)
        for state in map(assignment.state_value, partitions) if assignment is not None else ():
            if state is not None:
                state.timestamp = now_ms

    def has_more(self, partition: TopicPartition) -> bool:
        """Return whether the last fetch told of committed records behind those that were returned."""
        assignment = SUBSCRIPTION.of(self).subscription.assignment
        state = None if assignment is None else assignment.state_value(partition)
        if state is None or state.lso is None or not state.has_valid_position:
            return False
        return cast("bool", state.position < state.lso)

    async def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets at which leader epochs end in the partitions' logs, where that is known.

        See :func:`~knowledgepulse_kafka.leader_epochs.epoch_ends`.
        """
        return await epoch_ends(CONSUMER_CLIENT.of(self), epochs)

    async def gone(self, names: Collection[str]) -> list[str]:
        """Return those of some topics that do not exist for this member, as a broker says."""
        return await gone(CONSUMER_CLIENT.of(self), names)

    def check_membership(self) -> None:
        """Check that the client is still in its group, as every fetch does.

        Raises:
            KafkaError: the group rejected the member, or the client failed permanently.
        """
        if (coordinator := COORDINATOR.of(self)) is not None:
            coordinator.check_errors()

    def _observed(self, send: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def send_and_observe(request: Any) -> Any:
            response = await send(request)
            if isinstance(request, HeartbeatRequest | SyncGroupRequest) and response.error_code in _IS_KNOWN:
                self.answered_at = time.monotonic()
            if isinstance(request, JoinGroupRequest) and response.error_code == NoError.errno:
                self._has_leader = bool(response.leader_id)  # only a member that leads assigns partitions
            if isinstance(request, SyncGroupRequest) and response.error_code == NoError.errno:
                self.group = GroupMetadata(
                    self.group.group,
                    COORDINATOR.of(self).member_id,
                    self.generation,
                    is_assigned_by_brokers=not self._has_leader,
                )
            return response

        return send_and_observe
