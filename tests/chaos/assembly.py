"""Assembly: assemblers are killed while spans arrive in any order, some repeatedly and some late.

This is not a row, because nothing is scored. The published traces must equal the direct conversion of the
same spans.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.structs import ConsumerRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from chaos.results import Outcome
from knowledgepulse_convert import Conversion, convert
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.tools.assemble.collector_exports import read, split
from support import metrics_page as page
from support.spans import export, spans_of
from support.streams import Stream, Worker, own_settings
from support.traces import real_traces

ASSEMBLE = (
    "kill -9 of one or both assemblers; spans shuffled, repeated, late, beside records that are no spans"
)
KILLS, KILLS_SHORT = 20, 3
PARTITIONS = 4
ASSEMBLERS = 2
GROUP = 20
"""Traces whose spans arrive in the same minutes."""
LIMIT = 120
PATIENCE = 30.0
"""Seconds without a further record after which what is missing counts as lost."""
_DAY = 86_400_000
_BETWEEN_GROUPS = 100_000

SpansRecord = tuple[int, bytes | None, bytes]
"""Timestamp, key and value of a record of the spans topic."""


class Fleet:
    """The spans of a fleet's traces: shuffled, some repeated or late, with some records that are not spans.

    The spans of a group of traces arrive in any order. The spans of the next group arrive a hundred seconds
    later, so that all earlier runs are complete. In every tenth trace, a span arrives two groups late.

    Attributes:
        groups: the records of each group.
        expected: the traces by id, converted directly, without their late spans.
        late: the trace and span ids of the late spans.
        garbage: the values that are not spans.
        spans: the number of spans, including repeats.
    """

    def __init__(self, traces: Sequence[bytes]) -> None:
        dice = random.Random(1)
        self.expected: dict[str, bytes] = {}
        self.late: Counter[tuple[str, str]] = Counter()
        self.garbage: list[bytes] = []
        self.groups: list[list[SpansRecord]] = []
        self.spans = 0
        self._at = round(time.time() * 1000) - _DAY
        held: list[list[tuple[bytes, bytes]]] = [[], []]
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
                assert isinstance(direct, Conversion), direct
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
            self._at += _BETWEEN_GROUPS

    def _record(self, spans: list[Span], *, as_json: bool = False) -> tuple[bytes, bytes]:
        self.spans += len(spans)
        return spans[0].trace_id.hex().encode(), export(spans, as_json=as_json)

    @property
    def end(self) -> list[SpansRecord]:
        """The later record in each partition that completes all runs."""
        return [(self._at, None, export([]))] * PARTITIONS


async def new_stream(bootstrap_servers: str, folder: Path) -> Stream:
    """Return a stream with the topics of an assembler."""
    usual = {"kafka": {"session_timeout": 1.0}, "assemble": {"grace": 30.0}}
    stream = Stream(own_settings(bootstrap_servers, "assemble", usual), folder)
    group = stream.settings.kafka.group
    stream.settings = stream.configured(assemble={"spans": f"{group}-spans", "late": f"{group}-late"})
    await stream.create_topics(PARTITIONS)
    async with TopicAdmin(stream.settings.kafka, stream.settings.topics) as admin:
        await admin.create(stream.settings.assemble.spans, PARTITIONS, 1, {})
    return stream


async def write(stream: Stream, records: Iterable[SpansRecord]) -> None:
    """Write records to the spans topic like the Collector; write records without a key to every partition."""
    spans = stream.settings.assemble.spans
    async with AIOKafkaProducer(bootstrap_servers=stream.settings.kafka.bootstrap_servers) as producer:
        deliveries = []
        for number, (at, key, value) in enumerate(records):
            partition = None if key else number % PARTITIONS
            deliveries.append(
                await producer.send(spans, value, key=key, partition=partition, timestamp_ms=at)
            )
        await asyncio.gather(*deliveries)


async def assemble(bootstrap_servers: str, folder: Path, short: bool, say: Callable[[str], None]) -> Outcome:
    """Kill one of two assemblers, then both, and so on, each time while it is publishing."""
    kills = KILLS_SHORT if short else KILLS
    fleet = Fleet(list(_renamed(real_traces(), 1 + kills // 4)))
    stream = await new_stream(bootstrap_servers, folder)
    portion = len(fleet.groups) // (kills + 1)
    groups = iter(fleet.groups)
    open_runs = []
    async with AsyncExitStack() as stack:

        async def start() -> Worker:
            return await stack.enter_async_context(stream.worker(command="assemble"))

        running = [await start() for _ in range(ASSEMBLERS)]
        for number in range(kills):
            victims = [running.pop(0) for _ in range(1 + number % ASSEMBLERS)]
            before = await _published(victims)
            await write(stream, itertools.chain(*itertools.islice(groups, portion)))
            async with asyncio.timeout(LIMIT):
                while await _published(victims) == before:
                    await asyncio.sleep(0.02)
                while not (hit := await _open(victims)):  # a busy machine notices too late that they publish
                    await write(stream, next(groups))
                    await asyncio.sleep(0.2)
            open_runs.append(hit)
            await asyncio.gather(*(victim.kill() for victim in victims))
            say(f"killed {len(victims)} with {open_runs[-1]} open runs")
            running += [await start() for _ in victims]
        await write(stream, itertools.chain(*groups, fleet.end))
        await _all_come(stream, fleet)
        for assembler in running:
            assert await assembler.stop() == 0, assembler.log()
    return _outcome(fleet, await _read(stream), kills, open_runs)


def _renamed(traces: Iterable[bytes], copies: int) -> Iterator[bytes]:
    """Yield copies of the traces with different ids."""
    for copy, line in itertools.product(range(copies), traces):
        trace = json.loads(line)
        trace["id"] += f"-{copy}"
        yield json.dumps(trace).encode()


async def _published(assemblers: Iterable[Worker]) -> float:
    return await _sum(assemblers, "kp_assembly_traces_total")


async def _open(assemblers: Iterable[Worker]) -> int:
    return round(await _sum(assemblers, "kp_assembly_open_runs"))


async def _sum(assemblers: Iterable[Worker], metric: str) -> float:
    return sum([page.value(await assembler.metrics(), metric) for assembler in assemblers])


async def _read(stream: Stream) -> list[list[ConsumerRecord]]:
    """Return the published traces, the late spans and the dead letters."""
    settings = stream.settings
    return [
        await stream.read(name)
        for name in (settings.topics.raw, settings.assemble.late, settings.topics.dead_letter)
    ]


async def _all_come(stream: Stream, fleet: Fleet) -> None:
    """Wait until everything is published, or until nothing more has come for a while."""
    expected = [len(fleet.expected), fleet.late.total(), len(fleet.garbage)]
    found: list[int] = []
    since = time.monotonic()
    while found != expected and time.monotonic() - since < PATIENCE:
        before, found = found, [len(records) for records in await _read(stream)]
        if found != before:
            since = time.monotonic()
        await asyncio.sleep(1.0)


def _outcome(fleet: Fleet, records: list[list[ConsumerRecord]], kills: int, open_runs: list[int]) -> Outcome:
    raw, late, letters = records
    found = {record.key.decode(): record.value for record in raw}
    repeats = len(raw) - len(found)
    missing = fleet.expected.keys() - found.keys()
    unexpected = found.keys() - fleet.expected.keys()
    differing = [
        trace_id
        for trace_id in found.keys() & fleet.expected.keys()
        if found[trace_id] != fleet.expected[trace_id]
    ]
    wrong = [f"{trace_id}: missing" for trace_id in missing]
    wrong += [f"{trace_id}: differs" for trace_id in differing]
    wrong += [f"{trace_id}: unexpected" for trace_id in unexpected]
    if repeats:
        wrong.append(f"{repeats} traces published twice")
    if Counter(split(record.value)[0][:2] for record in late) != fleet.late:
        wrong.append("other late spans than the late ones")
    if sorted(letter.value for letter in letters) != sorted(fleet.garbage):
        wrong.append("other dead letters than the records that are no spans")
    return Outcome(
        rounds=kills,
        records=len(fleet.expected),
        outputs=len(raw),
        repeats=repeats,
        missing=len(missing),
        unexpected=len(unexpected),
        differing=len(differing),
        audited=0,
        wrong=sorted(wrong)[:5],
        hits=open_runs,
        notes={"spans": fleet.spans, "late spans": len(late), "records that are no spans": len(letters)},
    )
