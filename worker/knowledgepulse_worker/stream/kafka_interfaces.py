"""The protocols through which the source uses Kafka: a member, transactions and the identity of a topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from knowledgepulse_kafka.aiokafka_types import ConsumerRebalanceListener, TopicPartition
from knowledgepulse_kafka.commit_outcome import CommitOutcome
from knowledgepulse_kafka.group_member import CommittedPositions
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import OutputRecord, Position
from knowledgepulse_kafka.request_waits import Waits
from knowledgepulse_kafka.topic_reader import Record


class Client(Protocol):
    """A group member, with the methods of ``GroupMember`` that the source uses."""

    group: GroupMetadata
    answered_at: float
    waits: Waits

    @property
    def is_member(self) -> bool: ...  # noqa: D102 - as documented there, like all of these
    async def start(self) -> None: ...  # noqa: D102
    async def stop(self) -> None: ...  # noqa: D102
    def subscribe(self, *, topics: Collection[str], listener: ConsumerRebalanceListener) -> None: ...  # noqa: D102
    def check_membership(self) -> None: ...  # noqa: D102
    def assignment(self) -> Collection[TopicPartition]: ...  # noqa: D102
    def partitions_for_topic(self, topic: str) -> set[int] | None: ...  # noqa: D102
    async def getmany(self, *, timeout_ms: int) -> Mapping[TopicPartition, Sequence[Record]]: ...  # noqa: D102
    def pause(self, *partitions: TopicPartition) -> None: ...  # noqa: D102
    def resume(self, *partitions: TopicPartition) -> None: ...  # noqa: D102
    def seek(self, partition: TopicPartition, offset: int) -> None: ...  # noqa: D102
    async def seek_to_beginning(self, *partitions: TopicPartition) -> object: ...  # noqa: D102
    async def position(self, partition: TopicPartition) -> int: ...  # noqa: D102
    async def beginning_offsets(  # noqa: D102
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]: ...
    def stable_positions(  # noqa: D102
        self, partitions: Iterable[TopicPartition]
    ) -> AsyncIterator[CommittedPositions]: ...
    async def epoch_ends(  # noqa: D102
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]: ...
    def highwater(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    def last_stable_offset(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    def last_poll_timestamp(self, partition: TopicPartition) -> int | None: ...  # noqa: D102


class Commit(Protocol):
    """Publishes and commits in a transaction, as ``TransactionalPublisher.commit`` does."""

    async def __call__(  # noqa: D102 - as documented there
        self,
        records: Sequence[OutputRecord],
        positions: Mapping[tuple[str, int], Position],
        group: GroupMetadata,
        alone: Collection[OutputRecord] = (),
    ) -> CommitOutcome: ...


class TopicIdentity(Protocol):
    """Distinguishes topics with the same name, as ``TopicIds`` does."""

    async def start(self) -> None: ...  # noqa: D102 - as documented there, like all of these
    async def stop(self) -> None: ...  # noqa: D102
    async def current(self, partitions: Iterable[int]) -> bytes: ...  # noqa: D102
