"""A member of the worker's consumer group: aiokafka's consumer, as the source uses it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import NoError, NotCoordinatorForGroupError, RebalanceInProgressError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest

from worker.kafka.connection import client_arguments
from worker.kafka.lease import Lease, heartbeat_interval
from worker.kafka.record_batches import MAX_POLL_RECORDS, install
from worker.settings import KafkaSettings

FETCH_BYTES = 131_072
"""Bytes fetched of a partition at a time; a larger record comes alone (KIP-74).

Larger fetches fragment the heap, and are no faster.
"""
# By then a broker answers a fetch even when it has nothing.
_FETCH_MAX_WAIT_MS = 100
# The watchdog looks after a worker that polls too seldom; the client would leave the group without a word.
_NEVER_MS = 2**31 - 1
# The coordinator knows the member: all is well, or a rebalance is under way.
_IS_KNOWN = (NoError.errno, RebalanceInProgressError.errno)


class GroupConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka says no types
    """Reads committed records, and renews the lease while the group's coordinator knows this member.

    Args:
        kafka: how to reach the brokers, and the group.
        batch_bytes: the largest batch that is decoded, inflated.
        lease: renewed by the coordinator's answers.
        rebalance_timeout: seconds that a rebalance gives its members to finish.
    """

    def __init__(
        self, kafka: KafkaSettings, batch_bytes: int, lease: Lease, rebalance_timeout: float
    ) -> None:
        install(batch_bytes)
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

    async def start(self) -> None:
        """Connect."""
        await super().start()
        # The client has no hook for the coordinator's answers.
        coordinator = self._coordinator
        coordinator._send_req = self._observed(coordinator._send_req)  # noqa: SLF001

    @property
    def is_member(self) -> bool:
        """Whether the group knows this worker, as far as the client has heard."""
        return self._coordinator is not None and cast("int", self._coordinator.generation) >= 0

    def check_membership(self) -> None:
        """Check that the client still takes part in its group; a fetch does so, too.

        Raises:
            KafkaError: it was refused, or failed for good.
        """
        if self._coordinator is not None:
            self._coordinator.check_errors()

    def _observed(self, send: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def send_and_observe(request: Any) -> Any:
            asked_at = time.monotonic()
            answer = await send(request)
            if isinstance(request, HeartbeatRequest | SyncGroupRequest) and answer.error_code in _IS_KNOWN:
                self._lease.renew(asked_at)
            if isinstance(request, OffsetFetchRequest):
                self._require_positions(answer)
            return answer

        return send_and_observe

    def _require_positions(self, answer: Any) -> None:
        """Raise the error of an answer without positions, which the client retries.

        The client ignores it, and takes the group for one without positions: it would read partitions from
        their beginning whenever a coordinator that has just been elected is still loading the group.
        """
        error_code = getattr(
            answer, "error_code", NoError.errno
        )  # before version 2 each partition has its own
        if error_code == NotCoordinatorForGroupError.errno:
            self._coordinator.coordinator_dead()
        if error_code != NoError.errno:
            raise for_code(error_code)
