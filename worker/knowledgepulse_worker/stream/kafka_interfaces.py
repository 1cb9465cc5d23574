"""The protocols through which the source uses Kafka, beside a session: its member, and a topic's identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from knowledgepulse_kafka.aiokafka_types import TopicPartition
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.request_waits import Waits


class Client(Protocol):
    """A session's member, with the methods of ``GroupMember`` that the source uses."""

    group: GroupMetadata
    answered_at: float
    waits: Waits

    @property
    def is_member(self) -> bool: ...  # noqa: D102 - as documented there, like all of these
    def partitions_for_topic(self, topic: str) -> set[int] | None: ...  # noqa: D102
    def pause(self, *partitions: TopicPartition) -> None: ...  # noqa: D102
    def resume(self, *partitions: TopicPartition) -> None: ...  # noqa: D102
    def seek(self, partition: TopicPartition, offset: int) -> None: ...  # noqa: D102
    async def seek_to_beginning(self, *partitions: TopicPartition) -> object: ...  # noqa: D102
    async def position(self, partition: TopicPartition) -> int: ...  # noqa: D102
    async def beginning_offsets(  # noqa: D102
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]: ...
    async def epoch_ends(  # noqa: D102
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]: ...
    def highwater(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    def last_stable_offset(self, partition: TopicPartition) -> int | None: ...  # noqa: D102
    def last_poll_timestamp(self, partition: TopicPartition) -> int | None: ...  # noqa: D102


class TopicIdentity(Protocol):
    """Distinguishes topics with the same name, as ``TopicIds`` does."""

    async def start(self) -> None: ...  # noqa: D102 - as documented there, like all of these
    async def stop(self) -> None: ...  # noqa: D102
    async def current(self, partitions: Iterable[int]) -> bytes: ...  # noqa: D102
