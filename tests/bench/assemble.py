"""Section `assemble`: agent runs from spans, compared with a plain aiokafka loop that converts them, too.

A backlog of spans is published once per round. `kp-worker assemble` and the loop drain it in turn, while the
other is suspended; `kp-worker convert` reads the same exports from a file.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.context import Context
from bench.measure import Budget, Figure, Section, alternate, ratio
from bench.processes import suspend, wake
from bench.stream import PARTITIONS, create_topics, start_loop
from bench.workers import ARRIVAL_LIMIT, SUSPENDABLE
from knowledgepulse_worker.tools.assemble.assembly_topics import assembled_topic_name
from support import metrics_page as page
from support.spans import export, spans_of
from support.streams import Stream, own_settings, tests_environment
from support.traces import real_traces

RUNS, RUNS_SHORT = 600, 150
WARM_UP = 50
INTERVAL = 1_000
"""Milliseconds from the spans of one run to those of the next one."""
PAUSE = 60_000
"""Milliseconds after the last run, which complete all runs."""

LOOP, ASSEMBLE, CONVERT = "aiokafka loop", "kp-worker assemble", "kp-worker convert"

Record = tuple[int, bytes | None, bytes]
"""Timestamp, key and value."""


class Spans:
    """Endless agent runs as the Collector writes them: a record for each span, its trace id as the key."""

    def __init__(self, *, as_json: bool) -> None:
        self._runs = [
            (spans[0].trace_id, [export([span], as_json=as_json) for span in spans])
            for spans in map(spans_of, real_traces())
        ]
        self._as_json = as_json
        self._numbers = itertools.count(1)
        self._time = round(time.time() * 1000) - 86_400_000

    def take(self, count: int) -> Iterator[Record]:
        """Yield the records of the next runs, each with a trace id of its own."""
        for number in itertools.islice(self._numbers, count):
            old, values = self._runs[number % len(self._runs)]
            new = number.to_bytes(16, "big")
            self._time += INTERVAL
            for value in values:
                renamed = (
                    value.replace(old.hex().encode(), new.hex().encode())
                    if self._as_json
                    else value.replace(old, new)
                )
                yield self._time, new.hex().encode(), renamed

    def end(self) -> Record:
        """Return a record without spans, after which all runs are complete."""
        self._time += PAUSE
        return self._time, None, export([])


@dataclass(frozen=True)
class Side:
    """A process that publishes to a topic whenever it is resumed."""

    pid: int
    reader: AIOKafkaConsumer
    topic: str
    log: Path

    async def drain(self, count: int) -> float:
        """Drain a number of runs, and return their rate per second, from here to the last output."""
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        self.reader.assign(partitions)
        await self.reader.seek_to_end(*partitions)
        for partition in partitions:
            await self.reader.position(partition)
        found, last, started = 0, 0, time.time()
        wake(self.pid)
        try:
            # Counted one by one, as the ends of transactions take offsets, too.
            while found < count:
                waited = time.time() - started
                assert waited < ARRIVAL_LIMIT, f"{found} of {count} runs:\n{self.log.read_text()[-4000:]}"
                for records in (await self.reader.getmany(timeout_ms=200)).values():
                    found += len(records)
                    last = max(last, records[-1].timestamp)
        finally:
            suspend(self.pid)
        return count / (last / 1000 - started)


async def run(context: Context, budget: Budget) -> Section:
    """Turn the same spans into traces with all sides, in both encodings."""
    section = Section("assemble", "Agent runs from spans, one process each")
    count = RUNS_SHORT if context.short else RUNS
    encodings = {"otlp_proto": False, "otlp_json": True}
    for left, (encoding, as_json) in zip((2, 1), encodings.items(), strict=True):
        rates = await _rates(context, budget, Spans(as_json=as_json), count, 1 / left)
        section.figures += [Figure(f"{encoding}: {side}", "runs/s", values) for side, values in rates.items()]
        section.figures += [
            ratio(f"{encoding}: {side} / {LOOP}", rates[side], rates[LOOP], "0.5 at least")
            for side in (ASSEMBLE, CONVERT)
        ]
        context.say(f"{encoding} measured")
    spans = sum(len(spans_of(trace)) for trace in real_traces()) / len(real_traces())
    section.notes.append(
        f"{count} runs a round over {PARTITIONS} partitions, {spans:.0f} spans each, one "
        "a record; the loop keeps open runs in memory only, and commits once a second; `convert` reads a "
        "file, and its time includes the start of the process"
    )
    return section


async def _rates(
    context: Context, budget: Budget, spans: Spans, count: int, share: float
) -> dict[str, list[float]]:
    settings = own_settings(context.servers, "bench", SUSPENDABLE)
    group = settings.kafka.group
    stream = Stream(settings, context.folder / group)
    stream.folder.mkdir()
    topic, late, target = (f"{group}-{name}" for name in ("spans", "late", "loop"))
    stream.settings = stream.configured(assemble={"spans": topic, "late": late})
    async with AsyncExitStack() as stack:
        made = (late, assembled_topic_name(group))
        await create_topics(
            stack, context.servers, [settings.topics.raw, settings.topics.dead_letter, target]
        )
        await create_topics(stack, context.servers, [topic], made, timestamps="CreateTime")
        producer = AIOKafkaProducer(bootstrap_servers=context.servers, acks="all", max_batch_size=2**20)
        await stack.enter_async_context(producer)
        reader = AIOKafkaConsumer(bootstrap_servers=context.servers, isolation_level="read_committed")
        await stack.enter_async_context(reader)
        arguments = (sys.executable, "-m", "bench.peers.spans_loop", context.servers, topic, target)
        loop, log = await start_loop(stack, context, arguments)
        assembler = await stack.enter_async_context(stream.worker(command="assemble"))
        async with asyncio.timeout(ARRIVAL_LIMIT):
            while page.value(await assembler.metrics(), "kp_assembly_partitions") < PARTITIONS:
                await asyncio.sleep(0.1)
        suspend(assembler.process.pid)
        sides = {
            LOOP: Side(loop.pid, reader, target, log),
            ASSEMBLE: Side(assembler.process.pid, reader, settings.topics.raw, assembler._log),
        }
        records = [*spans.take(WARM_UP), spans.end()]
        await _publish(producer, topic, records)
        for side in sides.values():
            await side.drain(WARM_UP)
        rates: dict[str, list[float]] = {LOOP: [], ASSEMBLE: [], CONVERT: []}
        for number in budget.rounds(context.rounds, share):
            records = [*spans.take(count), spans.end()]
            await _publish(producer, topic, records)
            file = stream.folder / "exports"
            _write(file, [value for _, key, value in records if key])
            drains = {name: lambda side=side: side.drain(count) for name, side in sides.items()}
            drains[CONVERT] = lambda file=file: _convert(file, count)
            for name, values in (await alternate(drains, iter([number]))).items():
                rates[name] += values
    return rates


async def _publish(producer: AIOKafkaProducer, topic: str, records: Sequence[Record]) -> None:
    """Publish records by key, and those without one to all partitions."""
    deliveries = [
        await producer.send(topic, value, key=key, partition=partition, timestamp_ms=at)
        for at, key, value in records
        for partition in ([None] if key else range(PARTITIONS))
    ]
    await asyncio.gather(*deliveries)


def _write(file: Path, exports: Sequence[bytes]) -> None:
    """Write exports as the Collector's file exporter does: lines of JSON, or length-prefixed protobuf."""
    if exports[0].startswith(b"{"):
        file.write_bytes(b"".join(one + b"\n" for one in exports))
    else:
        file.write_bytes(b"".join(len(one).to_bytes(4, "big") + one for one in exports))


async def _convert(file: Path, count: int) -> float:
    """Convert a file of exports, and return the runs per second."""
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knowledgepulse_worker.cli.entry", "convert", "--from", "otlp", str(file)),
        stdout=DEVNULL,
        stderr=DEVNULL,
        env=tests_environment(),
    )
    assert await process.wait() == 0
    return count / (time.perf_counter() - started)
