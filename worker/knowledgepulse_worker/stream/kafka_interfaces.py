"""The protocols through which the source uses Kafka, beside a session: its member, and a topic's identity."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from knowledgepulse_kafka.client_types import Place
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
    async def gone(self, names: Collection[str]) -> list[str]: ...  # noqa: D102
    def pause(self, *partitions: Place) -> None: ...  # noqa: D102
    def resume(self, *partitions: Place) -> None: ...  # noqa: D102
    def seek(self, partition: Place, offset: int) -> None: ...  # noqa: D102
    async def seek_to_beginning(self, *partitions: Place) -> object: ...  # noqa: D102
    async def position(self, partition: Place) -> int: ...  # noqa: D102
    async def beginning_offsets(  # noqa: D102
        self, partitions: Iterable[Place]
    ) -> Mapping[Place, int]: ...
    async def epoch_ends(  # noqa: D102
        self, epochs: Mapping[Place, int]
    ) -> Mapping[Place, int]: ...
    def highwater(self, partition: Place) -> int | None: ...  # noqa: D102
    def last_stable_offset(self, partition: Place) -> int | None: ...  # noqa: D102
    def last_poll_timestamp(self, partition: Place) -> int | None: ...  # noqa: D102


class TopicIdentity(Protocol):
    """Distinguishes topics with the same name, as ``TopicIds`` does."""

    async def start(self) -> None: ...  # noqa: D102 - as documented there, like all of these
    async def stop(self) -> None: ...  # noqa: D102
    async def current(self, partitions: Iterable[int]) -> bytes: ...  # noqa: D102
