"""Read a topic as a member of a group whose offsets are committed by transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from types import TracebackType
from typing import Self

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.diagnosis import connect
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.group_member import GroupMember
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_kafka.topic_reader import held_offsets, raw_record

OnRevoked = Callable[[], Awaitable[None]]


class SharedReader:
    """A group member that reads one topic and commits nothing itself.

    An asynchronous context manager: it joins on entry and leaves on exit. A client error inside it is raised
    as a :class:`~knowledgepulse_kafka.errors.TopicError`.

    Args:
        config: the connection and the group.
        topic: the topic.
        batch_bytes: the largest batch to decode, inflated.
        rebalance_timeout: seconds that a rebalance allows its members to finish.
        on_revoked: awaited before the partitions are reassigned.
        new_member: makes the client.

    Attributes:
        assigned: the assigned partitions; empty during a rebalance, while the client still reports the former
            ones, which another member may already own.
    """

    def __init__(
        self,
        config: Config,
        topic: str,
        batch_bytes: int,
        rebalance_timeout: float,
        on_revoked: OnRevoked,
        new_member: Callable[..., GroupMember] = GroupMember,
    ) -> None:
        self.assigned: set[int] = set()
        self._config = config
        self._topic = topic
        self._on_revoked = on_revoked
        self._consumer = new_member(config, batch_bytes, rebalance_timeout)

    async def __aenter__(self) -> Self:
        await connect(self._consumer, self._config)
        self._consumer.subscribe([self._topic], listener=_Listener(self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._consumer.stop()
        if isinstance(error, KafkaError):
            raise TopicError(f"nothing can be read: {type(error).__name__}: {error}") from error

    async def revoked(self) -> None:
        """Give up the partitions; called by the client before it joins the group again."""
        self.assigned = set()
        await self._on_revoked()

    async def committed(self, partition: int) -> int | None:
        """Return the group's committed offset in a partition; None if there is none."""
        place = self._place(partition)
        position = (await self._consumer.committed([place])).get(place)
        return None if position is None else position.offset

    async def bounds(self, partition: int) -> range:
        """Return the offsets that a partition holds now."""
        return await held_offsets(self._consumer, self._place(partition))

    def seek(self, partition: int, offset: int) -> None:
        """Continue reading an assigned partition at an offset."""
        self._consumer.seek(self._place(partition), offset)

    async def poll(self, seconds: float) -> dict[int, list[RawRecord]]:
        """Return the next records by partition; wait up to the given seconds if there are none."""
        batches = await self._consumer.getmany(timeout_ms=int(seconds * 1000))
        return {tp.partition: [raw_record(one) for one in records] for tp, records in batches.items()}

    async def read_to_end(self, partitions: Collection[int]) -> set[int]:
        """Return the partitions with nothing left to read; an empty set if the brokers do not answer."""
        places = [self._place(partition) for partition in partitions]
        try:
            ends = await self._consumer.end_offsets(places)
            return {tp.partition for tp in places if await self._consumer.position(tp) >= ends[tp]}
        except KafkaError:
            return set()

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    def __init__(self, reader: SharedReader) -> None:
        self._reader = reader

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._reader.revoked()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._reader.assigned = {tp.partition for tp in assigned}
