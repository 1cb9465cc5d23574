"""Extensions of aiokafka's producer: group offsets in transactions, and ways to stop without brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.kafka.wire.group_offsets import GroupMetadata, OffsetsHandler, refuse_offsets


class TransactionalProducer(AIOKafkaProducer):  # type: ignore[misc]  # aiokafka is untyped
    """A transactional producer that commits a group's offsets as a member of the group (KIP-447).

    The caller logs its last error, so :meth:`stop` keeps asyncio from logging the same error again.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._group = GroupMetadata("")
        self._sender._do_txn_offset_commit = self._commit_offsets  # noqa: SLF001 - aiokafka's names no member

    async def send_group_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        """Commit a group's offsets in the open transaction.

        Raises:
            CommitFailedError: the group has rebalanced, so the transaction can only be aborted.
            KafkaError: the brokers refused the offsets.
        """
        self._group = group
        await self.send_offsets_to_transaction(offsets, group.group)

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str) -> None:
        try:
            node = await self._sender._find_coordinator(CoordinationType.GROUP, group)  # noqa: SLF001
        except GroupAuthorizationFailedError as error:
            refuse_offsets(self._sender, error)
        else:
            await OffsetsHandler(self._sender, offsets, self._group).do(node)

    async def stop(self) -> None:
        """Send the remaining records and disconnect."""
        await super().stop()
        waiting = self._txn_manager._transaction_waiter  # noqa: SLF001 - nobody need wait for a transaction's end
        if waiting is not None and waiting.done() and not waiting.cancelled():
            waiting.exception()


async def abandon(producer: AIOKafkaProducer) -> None:
    """Stop a producer that would retry for as long as the brokers are away, and drop its unsent records."""
    await producer._sender.close()  # noqa: SLF001 - there is no other way to stop its retries
    await producer.client.close()


def send_no_more(producer: AIOKafkaProducer, error: KafkaError) -> None:
    """Fail a producer's unsent records and all later ones; requests in flight still complete."""
    accumulator = producer._message_accumulator  # noqa: SLF001 - it would go on with the next batch
    producer._sender.sender_task.cancel()  # noqa: SLF001
    accumulator._exception = error  # noqa: SLF001
    accumulator.reenqueue = lambda batch: batch.failure(error)  # called for batches to be sent again
    while accumulator._batches:  # noqa: SLF001
        accumulator._pop_batch(next(iter(accumulator._batches))).failure(error)  # noqa: SLF001
