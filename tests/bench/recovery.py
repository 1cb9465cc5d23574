"""Section `recovery`: how long a worker takes to open large ledgers, and its memory then."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.context import Context
from bench.measure import Budget, Figure, Section
from knowledgepulse_kafka.records import Position
from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.records.ledger_records import (
    POSITION_KEY,
    encode_entry,
    encode_position,
)
from support.ledger import scored
from support.processes import resident_bytes
from support.streams import Message, Stream, own_settings
from support.traces import real_traces

ENTRIES = 100_000
"""Of a partition: the most that `cache.max_elements` allows."""
PARTITIONS, PARTITIONS_SHORT = (1, 10), (1,)
_RECOVERED = re.compile(r"recovered the ledgers of \d+ partitions? in ([\d.]+) s: ([\d,]+) records")


async def run(context: Context, budget: Budget) -> Section:
    """Write ledgers, start a worker on them, and look at its log and its processes."""
    section = Section("recovery", f"Ledgers of {ENTRIES:,} entries a partition, lexical vectors")
    for partitions in PARTITIONS_SHORT if context.short else PARTITIONS:
        settings = own_settings(
            context.servers,
            "recovery",
            {"embedding": {"backend": "lexical"}, "cache": {"max_elements": ENTRIES}},
        )
        folder = context.folder / settings.kafka.group
        folder.mkdir()
        stream = Stream(settings, folder)
        await stream.create_topics(partitions)
        await _write_ledgers(stream, partitions)
        async with AsyncExitStack() as stack:
            worker = await stack.enter_async_context(stream.worker())
            await worker.owns(partitions)
            await worker.logged("recovered the ledgers")
            found = _RECOVERED.search(worker.log())
            assert found is not None
            entries = int(found[2].replace(",", ""))
            assert entries == partitions * ENTRIES, f"{entries} records of {partitions * ENTRIES}"
            memory = resident_bytes(worker.process.pid) / 2**20
            what = f"{entries:,} entries in {partitions} partitions"
            section.figures.append(Figure(f"recovery, {what}", "s", [float(found[1])]))
            section.figures.append(Figure(f"memory, {what}", "MiB", [memory]))
        for name in (settings.topics.raw, changelog_topic_name(settings.kafka.group)):
            await stream.delete_topic(name)
    return section


async def _write_ledgers(stream: Stream, partitions: int) -> None:
    """Write what a worker has written that has scored as many traces, of which retention left none."""
    settings = stream.settings
    await stream.publish([Message(real_traces()[0], partition=number) for number in range(partitions)])
    embedder = load_embedder(settings.embedding, settings.cache)
    assert embedder is not None
    vectors = np.random.default_rng(1).normal(size=(ENTRIES, settings.cache.dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    changelog = changelog_topic_name(settings.kafka.group)
    async with AIOKafkaProducer(
        bootstrap_servers=settings.kafka.bootstrap_servers, max_batch_size=2**19, linger_ms=20
    ) as producer:
        for partition in range(partitions):
            for number, vector in enumerate(vectors):
                entry = scored(0, vector, model=embedder.identity)
                await producer.send(changelog, encode_entry(entry), b"%d" % number, partition)
            await producer.send(changelog, encode_position(Position(1)), POSITION_KEY, partition)
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.kafka.bootstrap_servers, group_id=settings.kafka.group
    ) as consumer:
        read = [TopicPartition(settings.topics.raw, number) for number in range(partitions)]
        consumer.assign(read)
        await consumer.commit(dict.fromkeys(read, 1))
