"""A producer's transactions, and its end: without brokers, after a lost record, or fenced off by another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.kafka.wire.group_offsets import GroupMetadata, OffsetsHandler, refuse_offsets


class TransactionalProducer(AIOKafkaProducer):  # type: ignore[misc]  # aiokafka is untyped
    """A producer of transactions that commit a group's offsets as one of its members (KIP-447).

    Its last error is logged by whoever gets it, and not by asyncio, too.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._group = GroupMetadata("")
        self._sender._do_txn_offset_commit = self._commit_offsets  # noqa: SLF001 - its own names no member

    async def send_group_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        """Commit a group's offsets in the open transaction.

        Raises:
            CommitFailedError: the group has rebalanced since; the transaction can only be aborted.
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
        """Send what is left, and disconnect."""
        await super().stop()
        waiting = self._txn_manager._transaction_waiter  # noqa: SLF001 - nobody need wait for a transaction's end
        if waiting is not None and waiting.done() and not waiting.cancelled():
            waiting.exception()


async def abandon(producer: AIOKafkaProducer) -> None:
    """Stop a producer that retries for as long as the brokers are away, and drop what it still has."""
    await producer._sender.close()  # noqa: SLF001 - there is no other way to stop its retries
    await producer.client.close()


def send_no_more(producer: AIOKafkaProducer, error: KafkaError) -> None:
    """Fail what a producer has not sent yet, and whatever it is given later; requests under way end."""
    accumulator = producer._message_accumulator  # noqa: SLF001 - it would go on with the next batch
    producer._sender.sender_task.cancel()  # noqa: SLF001
    accumulator._exception = error  # noqa: SLF001
    accumulator.reenqueue = lambda batch: batch.failure(error)  # what would be sent again
    while accumulator._batches:  # noqa: SLF001
        accumulator._pop_batch(next(iter(accumulator._batches))).failure(error)  # noqa: SLF001
