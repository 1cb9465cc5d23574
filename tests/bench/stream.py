"""Section `stream`: the worker without a model, compared with plain loops on other clients.

A backlog is published once per round. The sides are processes with their own groups, which drain the backlog
in turn while the others are suspended. Rates are computed from the outputs' log append times, which the
broker sets.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench.context import Context
from bench.measure import Budget, Figure, Section, alternate, ratio
from bench.peers.loop import Task
from bench.traces import STREAM_BYTES, of_size
from bench.workers import ARRIVAL_LIMIT, SUSPENDABLE, Publisher
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.settings import Settings
from support.processes import cpu_seconds, suspend, wake
from support.streams import Stream, admin_of, own_settings, tests_environment
from support.traces import real_traces

ROOT = Path(__file__).parents[2]
QUIX = ROOT / ".venv" / "quix" / "bin" / "python"
"""The environment of Quix Streams, which does not accept the versions that we test with."""

PARTITIONS = 4
RECORDS, RECORDS_SHORT = 12_000, 4_000
WARM_UP = 500
LOOPS = {
    "aiokafka loop": (sys.executable, "bench.peers.aiokafka_loop"),
    "plain Faust agent": (sys.executable, "bench.peers.faust_loop"),
    "Quix Streams": (str(QUIX), "bench.peers.quix_loop"),
}
OURS: dict[str, dict[str, dict[str, Any]]] = {
    "our worker, backend none": {"embedding": {"backend": "none"}},
    "our worker, none, a share": {"embedding": {"backend": "none"}, "policy": {"share": 0.2}},
    "our worker, backend lexical": {"embedding": {"backend": "lexical"}},
}
"""Our sides, and the settings of each."""


class Progress:
    """A side's progress through the raw topic, and the log append times of its outputs.

    Args:
        reader: reads the outputs, committed or not.
        admin: knows the positions of the side's group.
        raw: the raw topic.
        group: the side's group.
        topics: its output topics.
    """

    def __init__(
        self,
        reader: AIOKafkaConsumer,
        admin: AIOKafkaAdminClient,
        raw: str,
        group: str,
        topics: Sequence[str],
    ) -> None:
        self._reader = reader
        self._admin = admin
        self._group = group
        self._raw = [TopicPartition(raw, number) for number in range(PARTITIONS)]
        self._outputs = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]

    async def ends(self) -> dict[TopicPartition, int]:
        return await self._reader.end_offsets(self._outputs)

    async def rate(self, before: dict[TopicPartition, int], count: int) -> float:
        """Wait until the group's position is at the end of the raw topic; return the outputs per second.

        The interval ends with the last output's append, so the wait for the last commit does not count.
        """
        deadline = time.monotonic() + ARRIVAL_LIMIT
        while left := await self._left():
            assert time.monotonic() < deadline, f"{left} of {count} records left after {ARRIVAL_LIMIT:g} s"
            await asyncio.sleep(0.1)
        after = await self.ends()
        grown = [tp for tp in self._outputs if after[tp] > before[tp]]
        first = min([await self._appended(tp, before[tp]) for tp in grown])
        # The last offset may be that of a transaction's marker.
        last = max([await self._appended(tp, max(before[tp], after[tp] - 2)) for tp in grown])
        # The outputs at the first timestamp took none of the interval's time.
        later = await self._reader.offsets_for_times(dict.fromkeys(grown, first + 1))
        at_first = sum((found.offset if found else after[tp]) - before[tp] for tp, found in later.items())
        return (count - at_first) / (last - first) * 1000

    async def _left(self) -> int:
        positions = await self._admin.list_consumer_group_offsets(self._group)
        ends = await self._reader.end_offsets(self._raw)
        return sum(ends[tp] - max(0, positions[tp].offset if tp in positions else 0) for tp in self._raw)

    async def _appended(self, tp: TopicPartition, offset: int) -> int:
        self._reader.assign([tp])
        self._reader.seek(tp, offset)
        return (await self._reader.getone()).timestamp


class Side:
    """A process that drains the raw topic whenever it is resumed.

    Attributes:
        cpu: CPU seconds per record for each backlog that was drained.
    """

    def __init__(self, process: Process, progress: Progress, log: Path) -> None:
        self.cpu: list[float] = []
        self._process = process
        self._progress = progress
        self._log = log

    async def drain(self, count: int) -> float:
        """Drain a number of records, and return the rate per second."""
        before = await self._progress.ends()
        spent = cpu_seconds(self._process.pid)
        wake(self._process.pid)
        try:
            rate = await self._progress.rate(before, count)
            self.cpu.append((cpu_seconds(self._process.pid) - spent) / count)
            return rate
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._log.read_text()[-4000:]}") from None
        finally:
            suspend(self._process.pid)


async def run(context: Context, budget: Budget) -> Section:
    """Drain the same backlogs with all sides."""
    section = Section("stream", f"No model, records of {STREAM_BYTES / 1000:g} kB, one process each")
    raw = own_settings(context.servers, "bench").topics.raw
    ours = {side: _settings(context, layers, raw) for side, layers in OURS.items()}
    loops = {side: how for side, how in LOOPS.items() if shutil.which(how[0])}
    targets = {side: f"{raw}-{number}" for number, side in enumerate(loops)}
    count = RECORDS_SHORT if context.short else RECORDS
    records = [of_size(trace, STREAM_BYTES) for trace in real_traces()]
    async with AsyncExitStack() as stack:
        names = [name for settings in ours.values() for name in _outputs(settings)]
        changelogs = [changelog_topic_name(settings.kafka.group) for settings in ours.values()]
        await create_topics(stack, context.servers, [raw, *names, *targets.values()], changelogs)
        publisher = await Publisher(context.servers, records).start(stack)
        reader = await stack.enter_async_context(AIOKafkaConsumer(bootstrap_servers=context.servers))
        admin = await stack.enter_async_context(admin_of(context.servers))
        progress = partial(Progress, reader, admin, raw)
        sides = {
            side: await _worker(stack, context, settings, progress(settings.kafka.group, _outputs(settings)))
            for side, settings in ours.items()
        }
        for side, (python, module) in loops.items():
            task = Task(context.servers, raw, targets[side])
            process, log = await start_loop(stack, context, (python, "-m", module, *astuple(task)))
            sides[side] = Side(process, progress(task.group, [task.target]), log)
        # Only now that all are suspended; otherwise, early outputs would not be counted.
        await publisher.backlog(raw, PARTITIONS, WARM_UP)
        for side in sides.values():
            await side.drain(WARM_UP)
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for number in budget.rounds(context.rounds):
            await publisher.backlog(raw, PARTITIONS, count)
            drains = {name: lambda side=side: side.drain(count) for name, side in sides.items()}
            for name_, values in (await alternate(drains, iter([number]))).items():
                rates[name_] += values
    section.figures += [Figure(side, "records/s", values) for side, values in rates.items()]
    section.figures += [
        Figure(
            f"CPU time a record, {name}", "µs", [seconds * 1e6 for seconds in side.cpu[1:]]
        )  # without the warm-up
        for name, side in sides.items()
    ]
    none, share, lexical = OURS
    reach = {"aiokafka loop": "0.75", "plain Faust agent": "1.8"}
    section.figures += [
        ratio(f"{none} / {side}", rates[none], rates[side], reach.get(side, "")) for side in loops
    ]
    section.figures.append(ratio(f"{share} / {none}", rates[share], rates[none], "0.97"))
    section.figures.append(ratio(f"{lexical} / {none}", rates[lexical], rates[none], "0.6"))
    section.notes.append(
        f"{count} records a round over {PARTITIONS} partitions; all validate equally, publish by key; "
        "the loops commit once a second, ours in a transaction every "
        f"{next(iter(ours.values())).kafka.commit_interval:g} s; ours also keeps a ledger, routes, "
        "and adds headers and metrics"
    )
    section.notes += [
        f"{side} was not measured: it is not installed; `make bench` does that"
        for side in LOOPS.keys() - loops
    ]
    return section


def _settings(context: Context, layers: Mapping[str, Mapping[str, Any]], raw: str) -> Settings:
    """Return a worker's settings with its own output topics."""
    return own_settings(context.servers, "bench", {**layers, "topics": {"raw": raw}}, SUSPENDABLE)


def _outputs(settings: Settings) -> tuple[str, ...]:
    topics = settings.topics
    return topics.contribute, topics.rejected, topics.dead_letter


async def create_topics(
    stack: AsyncExitStack,
    servers: str,
    names: Sequence[str],
    others: Sequence[str] = (),
) -> None:
    """Create topics, which are deleted with the stack.

    Args:
        stack: deletes the topics.
        servers: the broker.
        names: the topics to create.
        others: topics that a side creates, to be deleted, too.
    """
    admin = await stack.enter_async_context(admin_of(servers))
    config = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(2**24)}
    made = await admin.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=config) for name in names])
    assert all(code == 0 for _, code, *_ in made.topic_errors), made
    stack.push_async_callback(admin.delete_topics, [*names, *others])


async def _worker(stack: AsyncExitStack, context: Context, settings: Settings, progress: Progress) -> Side:
    folder = context.folder / settings.kafka.group
    folder.mkdir()
    worker = await stack.enter_async_context(Stream(settings, folder).worker())
    await worker.owns(PARTITIONS)
    suspend(worker.process.pid)
    return Side(worker.process, progress, worker._log)


async def start_loop(stack: AsyncExitStack, context: Context, command: Sequence[str]) -> tuple[Process, Path]:
    """Start a suspended loop, which is killed with the stack; return the process and its log."""
    log = context.folder / f"{command[-1]}.log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=file, stderr=file, env=tests_environment()
        )
    stack.push_async_callback(_kill, process)
    suspend(process.pid)
    return process, log


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
