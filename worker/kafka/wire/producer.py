"""The end of a producer whose brokers are away."""

from __future__ import annotations

from aiokafka import AIOKafkaProducer


async def abandon(producer: AIOKafkaProducer) -> None:
    """Stop a producer that retries for as long as the brokers are away, and drop what it still has."""
    await producer._sender.close()  # noqa: SLF001 - there is no other way to stop its retries
    await producer.client.close()
