"""Read a consumer group's stable offsets, and commit offsets in a transaction as a member (KIP-447).

aiokafka's own requests read offsets that a transaction may still replace, and commit offsets for any client
that names the group. The requests in this module need Kafka 2.5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from aiokafka import TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaError,
    NoError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.producer.sender import Sender, TxnOffsetCommitHandler
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.own_request import OwnRequest
from knowledgepulse_kafka.private_parts import (
    OFFSETS_GROUP,
    OFFSETS_SENDER,
    OFFSETS_TO_COMMIT,
    PENDING_OFFSETS,
    SEND_TO_COORDINATOR,
    SENDER_TRANSACTION,
)

_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)
_FORMER_MEMBER = {IllegalGenerationError, UnknownMemberIdError}


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A consumer group and the member that commits for it.

    Attributes:
        group: the group's name.
        member: the member's id; empty for a producer outside the group, which the brokers do not check.
        generation: the generation of the membership; -1 for a producer outside the group.
        is_assigned_by_brokers: whether the brokers assign the partitions, and not a member.
    """

    group: str
    member: str = ""
    generation: int = -1
    is_assigned_by_brokers: bool = False


class UnstableOffsetsError(BrokerResponseError):  # type: ignore[misc]  # aiokafka is untyped
    """An open transaction holds offsets of the group."""

    errno = 88
    message = "UNSTABLE_OFFSET_COMMIT"
    retriable = True


async def fetch_stable_offsets(
    coordinator: GroupCoordinator, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Fetch a group's offsets; None for a partition without one.

    Partitions are left out while an open transaction may replace their offsets.

    Raises:
        KafkaError: the coordinator cannot answer, for now (a retriable error) or permanently.
    """
    topics = _by_topic({tp: tp.partition for tp in partitions})
    request = StableOffsetsRequest(coordinator.group_id, topics, True, {})
    response = await SEND_TO_COORDINATOR.of(coordinator)(request)
    _require(coordinator, response.error_code)
    positions = {}
    for topic, offsets, _ in response.topics:
        for partition, offset, _epoch, metadata, error_code, _ in offsets:
            if error_code == UnstableOffsetsError.errno:
                continue
            _require(coordinator, error_code)
            position = OffsetAndMetadata(offset, metadata) if offset >= 0 else None
            positions[TopicPartition(topic, partition)] = position
    return positions


async def fetch_all_offsets(
    coordinator: GroupCoordinator, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Fetch a group's offsets, as the client's own method does; partitions without an offset are left out.

    Unlike that method, this function raises a retriable error while the coordinator is loading the group or
    holds offsets of an open transaction. The client then asks again.

    Raises:
        KafkaError: the coordinator cannot answer, for now or permanently.
    """
    positions = await fetch_stable_offsets(coordinator, partitions)
    if len(positions) < len(partitions):
        raise UnstableOffsetsError
    return {tp: position for tp, position in positions.items() if position is not None}


def _require(coordinator: GroupCoordinator, error_code: int) -> None:
    if error_code == NoError.errno:
        return
    if error_code == NotCoordinatorForGroupError.errno:
        coordinator.coordinator_dead()
    raise for_code(error_code)


def commits_for_members(latest: Mapping[int, int]) -> bool:
    """Return whether a broker can commit offsets for a member, given the latest versions of its APIs."""
    return latest.get(MemberOffsetsRequest.API_KEY, 0) >= MemberOffsetsRequest.API_VERSION


class OffsetsHandler(TxnOffsetCommitHandler):  # type: ignore[misc]  # aiokafka is untyped
    """Commits a group's offsets in the open transaction as a member of the group.

    The transaction of a former member is aborted, since its partitions may have other owners.
    """

    def __init__(
        self, sender: Sender, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        super().__init__(sender, offsets, group.group)
        self._group = group

    def create_request(self) -> MemberOffsetsRequest:
        """Return the request."""
        transaction = SENDER_TRANSACTION.of(OFFSETS_SENDER.of(self))
        offsets: dict[TopicPartition, Any] = {
            tp: (tp.partition, position.offset, -1, position.metadata, {})
            for tp, position in OFFSETS_TO_COMMIT.of(self).items()
        }
        return MemberOffsetsRequest(
            transaction.transactional_id,
            self._group.group,
            transaction.producer_id,
            transaction.producer_epoch,
            self._group.generation,
            self._group.member,
            None,
            _by_topic(offsets),
            {},
        )

    def handle_response(self, response: Any) -> float | None:
        """Return the seconds to wait before sending the request again; None to send it no more."""
        errors = [(topic, [answer[:2] for answer in partitions]) for topic, partitions, _ in response.errors]
        codes = {for_code(code) for _, partitions in errors for _, code in partitions}
        if GroupAuthorizationFailedError in codes:
            refuse_offsets(OFFSETS_SENDER.of(self), GroupAuthorizationFailedError(OFFSETS_GROUP.of(self)))
            return None
        if TopicAuthorizationFailedError in codes:  # to read the topic, whose positions these are
            refuse_offsets(OFFSETS_SENDER.of(self), TopicAuthorizationFailedError())
            return None
        if codes & _FORMER_MEMBER:
            refuse_offsets(OFFSETS_SENDER.of(self), CommitFailedError("the group has rebalanced since"))
            return None
        return super().handle_response(_Answer(errors))  # type: ignore[no-any-return]


def refuse_offsets(sender: Sender, error: KafkaError) -> None:
    """Fail the offsets that wait to be committed, so that the caller aborts the transaction.

    The client's own ``error_transaction`` forgets the transaction's partitions. The abort is then never sent,
    and the next transaction commits the records that should have been aborted.
    """
    *_, waiting = PENDING_OFFSETS.of(SENDER_TRANSACTION.of(sender)).popleft()
    waiting.set_exception(error)


@dataclass
class _Answer:
    """The part of a response that aiokafka's handler reads."""

    errors: list[tuple[str, list[tuple[int, int]]]]


def _by_topic(values: Mapping[TopicPartition, Any]) -> list[tuple[str, list[Any], dict[int, bytes]]]:
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    for partition, value in sorted(values.items()):
        topics[partition.topic].append(value)
    return [(topic, of_partitions, {}) for topic, of_partitions in topics.items()]


def _by_partition(*fields: tuple[str, Any]) -> CompactArray:
    """Return the schema of fields by topic and partition."""
    partitions = CompactArray(("partition", Int32), *fields, _TAGS)
    return CompactArray(("topic", _TEXT), ("partitions", partitions), _TAGS)


_OFFSET = (("offset", Int64), ("leader_epoch", Int32), ("metadata", _TEXT))


class StableOffsetsResponse_v7(Response):  # type: ignore[misc]  # noqa: N801 - aiokafka's naming
    """The response to OffsetFetch, version 7."""

    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("topics", _by_partition(*_OFFSET, ("error_code", Int16))),
        ("error_code", Int16),
        _TAGS,
    )


class StableOffsetsRequest(OwnRequest, RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    """Requests OffsetFetch for offsets that no open transaction may still replace."""

    NEEDS = "stable offsets of a group need Kafka 2.5 or later"
    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION: ClassVar[bool] = True
    RESPONSE_TYPE = StableOffsetsResponse_v7
    SCHEMA = Schema(
        ("group", _TEXT),
        ("topics", CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)),
        ("require_stable", Boolean),
        _TAGS,
    )


class _MemberOffsetsResponse_v3(Response):  # type: ignore[misc]  # noqa: N801 - aiokafka's naming
    API_KEY = 28
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("errors", _by_partition(("error_code", Int16))), _TAGS)


class MemberOffsetsRequest(OwnRequest, RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    """Requests TxnOffsetCommit with the member and its generation."""

    NEEDS = "offsets of a group's member need Kafka 2.5 or later in a transaction"
    API_KEY = 28
    API_VERSION = 3
    FLEXIBLE_VERSION: ClassVar[bool] = True
    RESPONSE_TYPE = _MemberOffsetsResponse_v3
    SCHEMA = Schema(
        ("transactional_id", _TEXT),
        ("group", _TEXT),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation", Int32),
        ("member", _TEXT),
        ("instance", _TEXT),
        ("topics", _by_partition(*_OFFSET)),
        _TAGS,
    )
