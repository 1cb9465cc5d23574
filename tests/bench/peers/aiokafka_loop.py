"""The plain loop on aiokafka: python -m bench.peers.aiokafka_loop SERVERS SOURCE TARGET."""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.peers.loop import COMMIT_INTERVAL, SESSION, Task, parse_task, scored


async def run(task: Task) -> None:
    """Publish each record with a score, and commit once a second."""
    consumer = AIOKafkaConsumer(
        task.source,
        bootstrap_servers=task.servers,
        group_id=task.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION * 1000,
        heartbeat_interval_ms=SESSION * 250,
        request_timeout_ms=SESSION * 1000 + 10_000,
    )
    producer = AIOKafkaProducer(bootstrap_servers=task.servers, acks="all", linger_ms=5, max_batch_size=2**20)
    await consumer.start()
    await producer.start()
    committed = time.monotonic()
    while True:
        taken = (await consumer.getmany(timeout_ms=200, max_records=500)).values()
        deliveries = [
            await producer.send(task.target, scored(record.value), key=record.key)
            for batch in taken
            for record in batch
        ]
        await asyncio.gather(*deliveries)
        if time.monotonic() - committed > COMMIT_INTERVAL:
            await consumer.commit()
            committed = time.monotonic()


if __name__ == "__main__":
    asyncio.run(run(parse_task()))
