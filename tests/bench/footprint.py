"""Section `footprint`: a worker's memory, and the bytes that it writes for a trace."""

from __future__ import annotations

from contextlib import AsyncExitStack

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from bench.context import Context
from bench.measure import Budget, Figure, Section
from bench.traces import STREAM_BYTES, of_size
from bench.workers import SUSPENDABLE, MeasuredWorker, Publisher
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.settings import Settings
from support.processes import resident_bytes
from support.traces import real_traces

PARTITIONS = 4
COUNTS = {"none": 6_000, "lexical": 6_000, "sentence-transformers": 200}
"""Backends with the number of traces: with lexical, more than all novelty caches hold."""
SHORT = 0.1
"""Share of the traces in the short form."""


async def run(context: Context, budget: Budget) -> Section:
    """Drain a backlog with a worker for each backend, then look at its processes and its topics."""
    section = Section("footprint", f"Memory and disk, records of {STREAM_BYTES / 1000:g} kB")
    for backend, count in COUNTS.items():
        traces = round(SHORT * count) if context.short else count
        async with AsyncExitStack() as stack:
            records = [of_size(trace, STREAM_BYTES) for trace in real_traces()]
            publisher = await Publisher(context.servers, records).start(stack)
            sections = {"embedding": {"backend": backend}, **SUSPENDABLE}
            worker = await MeasuredWorker.on_new_topics(stack, context, PARTITIONS, **sections)
            await worker.drained(publisher, traces)
            memory = resident_bytes(worker.pid) / 2**20
            section.figures.append(Figure(f"memory, {backend}, after {traces:,} traces", "MiB", [memory]))
            if backend == "lexical":
                written = await _written(context.servers, worker.settings)
                section.figures += [
                    Figure(f"bytes of a trace's records: {topic}", "B", [total / traces])
                    for topic, total in written.items()
                ]
    section.notes.append(
        "memory: proportional set size of the supervisor and the worker, all cores; "
        "bytes: keys, values and headers, without the brokers' framing, before replication and compaction"
    )
    return section


async def _written(servers: str, settings: Settings) -> dict[str, int]:
    """Return the bytes of the records in the worker's topics."""
    topics = settings.topics
    names = {
        "raw": [topics.raw],
        "outputs": [topics.contribute, topics.rejected, topics.dead_letter],
        "changelog": [changelog_topic_name(settings.kafka.group)],
    }
    async with AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as reader:
        return {
            kind: sum([await _bytes(reader, topic) for topic in listed]) for kind, listed in names.items()
        }


async def _bytes(reader: AIOKafkaConsumer, topic: str) -> int:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    reader.assign(partitions)
    ends = await reader.end_offsets(partitions)
    total = 0
    while any([await reader.position(partition) < end for partition, end in ends.items()]):
        for records in (await reader.getmany(timeout_ms=1000)).values():
            total += sum(map(_size, records))
    return total


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
