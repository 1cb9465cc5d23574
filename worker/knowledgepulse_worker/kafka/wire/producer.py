"""The end of a producer: its brokers are away, have not taken a record, or know another one by its name."""

from __future__ import annotations

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError


class TransactionalProducer(AIOKafkaProducer):  # type: ignore[misc]  # aiokafka is untyped
    """A producer of transactions, whose last error is logged by whoever gets it, and not by asyncio, too."""

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
