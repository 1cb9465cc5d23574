"""Workers on their own topics, resumed to be measured and suspended otherwise."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from aiokafka import AIOKafkaProducer
from numpy.typing import NDArray

from bench.context import Context
from bench.measure import rate_between
from bench.process import KINDS, SAMPLES
from bench.processes import cpu_seconds, on_cores, suspend, wake
from bench.traces import endless_traces
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from support import metrics_page as page
from support.streams import Stream, Worker, own_settings

ARRIVAL_LIMIT = 120.0
"""Seconds without output after which a run fails."""

_SAMPLES = np.dtype([("kind", "u1"), ("at", "<f8"), ("seconds", "<f8")])

SUSPENDABLE: dict[str, dict[str, float]] = {
    # Timeouts for suspended workers, which must not be declared dead; they do not affect speed. After three
    # quarters of its session timeout, a worker sends nothing until the group has responded.
    "kafka": {"session_timeout": 80},
    "limits": {"heartbeat": 600, "stall": 600},
}


def read_samples(path: Path, mark: int, kind: str) -> NDArray[Any]:
    """Return a file's samples of a kind from a byte offset on: time (``at``) and ``seconds``."""
    samples = np.empty(0, dtype=_SAMPLES)
    with suppress(FileNotFoundError):  # the worker has not written yet
        samples = np.fromfile(path, dtype=_SAMPLES, offset=mark)
    return samples[samples["kind"] == KINDS.index(kind)]


class Publisher:
    """Publish traces in rotation, each with a unique objective."""

    def __init__(self, servers: str, traces: Sequence[bytes]) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=servers, acks="all", max_request_size=2**24, max_batch_size=2**20
        )
        self._count = len(traces)
        self._traces = enumerate(endless_traces(traces))

    async def start(self, stack: AsyncExitStack) -> Publisher:
        await self._producer.start()
        stack.push_async_callback(self._producer.stop)
        return self

    async def backlog(self, topic: str, partitions: int, count: int) -> None:
        """Publish a number of traces evenly over the partitions, and wait for confirmation."""
        deliveries = [await self._send(topic, number % partitions) for number in range(count)]
        await asyncio.gather(*deliveries)

    async def open_loop(
        self, topic: str, partitions: int, schedule: Sequence[float], seed: int
    ) -> list[float]:
        """Publish each trace at its scheduled time, which is its timestamp, independent of earlier ones.

        Each goes to a random partition, so that the arrivals at each are independent too.

        Returns:
            the seconds that each was late.
        """
        source = random.Random(seed)
        started = time.time() + 0.2
        deliveries, late = [], []
        for arrival in schedule:
            due = started + arrival
            await asyncio.sleep(max(0.0, due - time.time()))
            late.append(time.time() - due)
            deliveries.append(await self._send(topic, source.randrange(partitions), round(due * 1000)))
        await asyncio.gather(*deliveries)
        return late

    async def _send(self, topic: str, partition: int, timestamp_ms: int | None = None) -> asyncio.Future[Any]:
        number, trace = next(self._traces)
        return await self._producer.send(
            topic,
            trace,
            key=str(number % self._count).encode(),
            partition=partition,
            timestamp_ms=timestamp_ms,
        )


class Fleet:
    """Workers of one group, which are resumed and suspended together.

    Attributes:
        partitions: partition count of their topics.
        workers: the workers, in order of their start.
        settings: their settings.
        folder: folder for their samples.
        precision: precision of the first worker's embedder, once it runs.
        cpu: CPU seconds of the workers per trace, of each backlog that was drained.
    """

    def __init__(self, stream: Stream, partitions: int, folder: Path) -> None:
        self.partitions = partitions
        self.folder = folder
        self.settings = stream.settings
        self.precision = ""
        self.workers: list[Worker] = []
        self.stream = stream
        self.cpu: list[float] = []
        self._samples: list[Path] = []
        self._marks: list[int] = []

    @classmethod
    async def on_new_topics(
        cls, stack: AsyncExitStack, context: Context, partitions: int, **sections: Mapping[str, Any]
    ) -> Fleet:
        """Create the topics, which are deleted with the stack, without workers."""
        usual = {"log": {"format": "json"}}
        settings = own_settings(context.servers, "bench", usual, sections)
        folder = context.folder / settings.kafka.group
        folder.mkdir()
        fleet = cls(Stream(settings, folder), partitions, folder)
        await fleet.stream.create_topics(partitions)
        stack.push_async_callback(fleet._delete_topics)
        return fleet

    async def start(self, stack: AsyncExitStack, *cores: Iterable[int] | None) -> None:
        """Start a worker on each set of cores (None for all), and wait until they share the topics."""
        for own in cores:
            samples = self.folder / f"{uuid4().hex}.samples"
            environment = {SAMPLES: str(samples)} | ({} if own is None else on_cores(own))
            worker = self.stream.worker(module="bench.process", environment=environment)
            self.workers.append(await stack.enter_async_context(worker))
            self._samples.append(samples)
            self._marks.append(0)
            await self.workers[-1].owns(self.partitions // len(self.workers))
        for worker in self.workers:
            await worker.owns(self.partitions // len(self.workers))
        [info] = page.samples(await self.workers[0].metrics(), "kp_build_info")
        self.precision = info.labels["precision"]

    async def stop(self) -> None:
        """Stop all workers gracefully; others can be started afterwards."""
        for worker in self.workers:
            status = await worker.stop()
            assert status == 0, f"a worker ended with status {status}:\n{worker.log()[-6000:]}"
        self.workers, self._samples, self._marks = [], [], []

    def suspend(self) -> None:
        for worker in self.workers:
            suspend(worker.process.pid)

    def wake(self) -> None:
        for worker in self.workers:
            wake(worker.process.pid)

    def mark(self) -> None:
        """Ignore all samples so far."""
        self._marks = [path.stat().st_size if path.exists() else 0 for path in self._samples]

    def samples(self, kind: str) -> NDArray[Any]:
        """Return the samples of a kind since the mark: time (``at``) and ``seconds``."""
        return np.concatenate(self._by_worker(kind))

    def _by_worker(self, kind: str) -> list[NDArray[Any]]:
        files = zip(self._samples, self._marks, strict=True)
        return [read_samples(path, mark, kind) for path, mark in files]

    async def published(self, count: int) -> None:
        """Wait until a number of outputs were confirmed since the mark."""
        seen, last = 0, time.monotonic()
        while seen < count:
            await asyncio.sleep(0.05)
            now = len(self.samples("end_to_end"))
            if now > seen:
                seen, last = now, time.monotonic()
            for worker in self.workers:
                assert worker.process.returncode is None, f"a worker ended:\n{worker.log()[-6000:]}"
            assert time.monotonic() - last < ARRIVAL_LIMIT, (
                f"{seen} of {count} outputs:\n{self.workers[0].log()[-6000:]}"
            )

    async def through(
        self,
        publisher: Publisher,
        done: int,
        goal: int,
        chunk: int,
        until: Callable[[], bool] = lambda: False,
    ) -> int:
        """Process records up to a total number since the mark, and return the total.

        Args:
            publisher: publishes the records.
            done: total before.
            goal: total to reach.
            chunk: number of records published ahead of the workers.
            until: called before each chunk; stops early if it returns True.
        """
        while done < goal and not until():
            count = min(chunk, goal - done)
            await publisher.backlog(self.settings.topics.raw, self.partitions, count)
            done += count
            await self.published(done)
        return done

    async def drained(self, publisher: Publisher, count: int) -> float:
        """Publish a backlog while the workers are suspended, then resume them until it is finished.

        Returns:
            outputs confirmed a second, while all of them had work.
        """
        await publisher.backlog(self.settings.topics.raw, self.partitions, count)
        self.mark()
        before = self._cpu_seconds()
        self.wake()
        await self.published(count)
        self.suspend()
        self.cpu.append((self._cpu_seconds() - before) / count)
        times = [samples["at"] for samples in self._by_worker("end_to_end")]
        end = min(own.max() for own in times)
        return rate_between([at for at in np.concatenate(times) if at <= end])

    def _cpu_seconds(self) -> float:
        return sum(cpu_seconds(worker.process.pid) for worker in self.workers)

    async def _delete_topics(self) -> None:
        async with TopicAdmin(self.settings.kafka, self.settings.topics) as admin:
            await admin.delete(list(await admin.existing()))
