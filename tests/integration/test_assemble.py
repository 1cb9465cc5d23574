"""Agent runs assembled from spans in Kafka, each published once whatever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from itertools import chain

import pytest
from aiokafka import AIOKafkaProducer

from chaos.brokers import running_brokers
from schemas.convert import convert
from support.spans import export, spans_of
from support.streams import Stream, own_settings
from worker.assemble.exports import read, split
from worker.kafka.topics import TopicAdmin
from worker.observe import page

pytestmark = pytest.mark.integration

PARTITIONS = 4
KILLS = int(os.environ.get("ASSEMBLER_KILLS", "3"))
"""How often an assembler is killed: a few times in `make test`, 20 times when more is asked for."""
GROUP = 20
"""Traces whose spans arrive in the same minutes."""
LIMIT = 120


@pytest.fixture(scope="module")
def node():
    """A broker of these tests' own, which soon gives away what a killed process owned."""
    with running_brokers(1) as brokers:
        yield brokers.nodes[0]


@pytest.fixture
async def stream(node, tmp_path):
    usual = {"kafka": {"session_timeout": 1.0}, "assemble": {"grace": 30.0}}
    stream = Stream(own_settings(node.direct, "assemble", usual), tmp_path)
    group = stream.settings.kafka.group
    stream.settings = stream.configured(assemble={"spans": f"{group}-spans", "late": f"{group}-late"})
    await stream.create_topics(PARTITIONS)
    async with TopicAdmin(stream.settings.kafka, stream.settings.topics) as admin:
        await admin._create(stream.settings.assemble.spans, PARTITIONS, 1, {})
    return stream


class Fleet:
    """Traces as the spans of a fleet: shuffled, some repeated, some late, and some records are no spans.

    The spans of a group of traces arrive in any order; those of the next one a hundred seconds later, so that
    all runs before are complete. One span of every tenth trace arrives two groups late.

    Attributes:
        groups: the records of each group: timestamp, key, value.
        expected: the traces by id, converted directly, without their late spans.
        late: the trace and span ids of the late spans.
        garbage: the values that are no spans.
    """

    def __init__(self, traces):
        dice = random.Random(1)
        self.expected = {}
        self.late = Counter()
        self.garbage = []
        self.groups = []
        self._at = round(time.time() * 1000) - 86_400_000
        held = [[], []]
        for start in range(0, len(traces), GROUP):
            records = held.pop(0)
            held.append([])
            for number, trace in enumerate(traces[start : start + GROUP]):
                spans = spans_of(trace)
                if number % 10 == 0 and start + 3 * GROUP < len(traces):
                    late = spans.pop(0)
                    held[-1].append(self._record([late]))
                    self.late[late.trace_id.hex(), late.span_id.hex()] += 1
                (direct,) = convert(read(export(spans)), "otlp")
                self.expected[direct.trace.id] = direct.trace.to_json()
                spans += dice.sample(spans, len(spans) // 5)
                dice.shuffle(spans)
                while spans:
                    count = dice.randint(1, 5)
                    records.append(self._record(spans[:count], as_json=dice.random() < 0.5))
                    del spans[:count]
            self.garbage.append(b"no spans %d" % start)
            records.append((b"%d" % start, self.garbage[-1]))
            dice.shuffle(records)
            self.groups.append([(self._at, *record) for record in records])
            self._at += 100_000

    @staticmethod
    def _record(spans, *, as_json=False):
        return spans[0].trace_id.hex().encode(), export(spans, as_json=as_json)

    @property
    def end(self):
        """A later record for each partition, which completes all runs."""
        return [(self._at, None, export([]))] * PARTITIONS


async def write(stream, records):
    """Write records to the spans topic as the Collector does; those without a key, one to each partition."""
    spans = stream.settings.assemble.spans
    producer = AIOKafkaProducer(bootstrap_servers=stream.settings.kafka.bootstrap_servers)
    async with producer:
        deliveries = []
        for number, (at, key, value) in enumerate(records):
            partition = None if key else number % PARTITIONS
            deliveries.append(
                await producer.send(spans, value, key=key, partition=partition, timestamp_ms=at)
            )
        await asyncio.gather(*deliveries)


def renamed(traces, copies):
    """Copies of the traces with other ids."""
    for copy in range(copies):
        for line in traces:
            trace = json.loads(line)
            trace["id"] += f"-{copy}"
            yield json.dumps(trace).encode()


async def published(stream, count):
    """Wait until so many traces are in the raw topic; returns them by id."""
    raw = stream.settings.topics.raw
    async with asyncio.timeout(LIMIT):
        while len(records := await stream.read(raw)) < count:
            await asyncio.sleep(0.2)
    found = {record.key.decode(): record.value for record in records}
    assert len(found) == len(records), "a trace is published twice"
    return found


async def count(assembler):
    """How many traces an assembler has published."""
    return page.value(await assembler.metrics(), "kp_assembly_traces_total")


@pytest.mark.timeout(120 + 30 * KILLS)
@pytest.mark.parametrize("processes", [1, 2])
async def test_killed_assemblers_lose_nothing_and_publish_nothing_twice(stream, real_traces, processes):
    """Each is killed as soon as it has published a part of what arrives."""
    fleet = Fleet(list(renamed(real_traces, 1 + KILLS // 4)))
    portion = len(fleet.groups) // (KILLS + 1)
    async with AsyncExitStack() as stack:

        async def start():
            return await stack.enter_async_context(stream.worker(command="assemble"))

        running = [await start() for _ in range(processes)]
        for _ in range(KILLS):
            victim = running.pop(0)
            before = await count(victim)
            await write(stream, chain(*fleet.groups[:portion]))
            del fleet.groups[:portion]
            async with asyncio.timeout(LIMIT):
                while await count(victim) == before:
                    await asyncio.sleep(0.02)
            await victim.kill()
            running.append(await start())
        await write(stream, chain(*fleet.groups, fleet.end))
        found = await published(stream, len(fleet.expected))
        for assembler in running:
            assert await assembler.stop() == 0, assembler.log()

    assert found == fleet.expected
    late = [split(record.value)[0][:2] for record in await stream.read(stream.settings.assemble.late)]
    assert Counter(late) == fleet.late
    assert fleet.late
    letters = await stream.read(stream.settings.topics.dead_letter)
    assert sorted(letter.value for letter in letters) == sorted(fleet.garbage)


async def test_a_quiet_partition_ends_by_the_clock_and_a_successor_publishes_nothing_again(
    stream, real_traces
):
    fleet = Fleet(real_traces[:GROUP])
    (records,) = fleet.groups
    stream.settings = stream.configured(assemble={"grace": 1.0})
    await write(stream, records)
    async with stream.worker(command="assemble") as assembler:
        assert await published(stream, GROUP) == fleet.expected
        assert (await assembler.get("/readyz"))[0] == 200
        assert await assembler.stop() == 0, assembler.log()

    await write(stream, records)
    spans = sum(len(split(value)) for _, _, value in records if value not in fleet.garbage)
    async with stream.worker(command="assemble"), asyncio.timeout(LIMIT):
        while len(await stream.read(stream.settings.assemble.late)) < spans:
            await asyncio.sleep(0.2)
    assert await published(stream, GROUP) == fleet.expected


async def test_a_missing_topic_ends_the_start(stream):
    settings = stream.configured(assemble={"spans": "nobody-writes-this"})
    async with stream.worker(settings, command="assemble") as assembler:
        assert await assembler.process.wait() == os.EX_CONFIG
        assert "missing: nobody-writes-this" in assembler.log()
