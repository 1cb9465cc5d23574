"""Try whether the brokers let a worker begin a transaction, and abort it."""

from __future__ import annotations

from contextlib import suppress

from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from knowledgepulse_worker.kafka.worker_rights import worker_id_prefix
from knowledgepulse_worker.settings import KafkaSettings


async def try_transaction(kafka: KafkaSettings) -> str:
    """Begin an empty transaction, and abort it; return its transactional id, which brokers forget later.

    Raises:
        ClientError: the brokers refuse it.
    """
    prefix = worker_id_prefix(kafka.group)
    transactional_id = f"{prefix}check"
    async with TransactionalPublisher(
        kafka.client_config(), transactional_id, granted=f"{prefix}*"
    ) as publisher:
        with suppress(_TriedError):
            async with publisher.transaction():
                raise _TriedError
    return transactional_id


class _TriedError(Exception):
    """Aborts the transaction."""
