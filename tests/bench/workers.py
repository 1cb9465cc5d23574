"""Workers with their own topics, which run only while they are measured."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from aiokafka import AIOKafkaProducer
from numpy.typing import NDArray

from bench.context import Context
from bench.process import KINDS, SAMPLES
from bench.traces import endless_traces
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from support import metrics_page as page
from support.processes import cpu_seconds, suspend, wake
from support.streams import Stream, Worker, own_settings

ARRIVAL_LIMIT = 120.0
"""Seconds without output after which a run fails."""

_SAMPLES = np.dtype([("kind", "u1"), ("at", "<f8"), ("seconds", "<f8")])

SUSPENDABLE: dict[str, dict[str, float]] = {
    # These timeouts keep suspended workers from being declared dead and do not affect speed. After three
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
        """Publish each trace at its scheduled time, which is its timestamp, independent of earlier traces.

        Each trace goes to a random partition, so that the arrivals at a partition are independent, too.

        Returns:
            the delay of each trace in seconds.
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


class MeasuredWorker:
    """A worker with its own topics, suspended unless it is its turn.

    Attributes:
        partitions: partition count of its topics.
        settings: its settings.
        precision: precision of its embedder, once it runs.
        cpu: CPU seconds per trace for each backlog that was drained.
    """

    _worker: Worker

    def __init__(self, stream: Stream, partitions: int, folder: Path) -> None:
        self.partitions = partitions
        self.settings = stream.settings
        self.precision = ""
        self.cpu: list[float] = []
        self._stream = stream
        self._samples = folder / "samples"
        self._mark = 0

    @classmethod
    async def on_new_topics(
        cls, stack: AsyncExitStack, context: Context, partitions: int, **sections: Mapping[str, Any]
    ) -> MeasuredWorker:
        """Create the topics, which are deleted with the stack, and start the worker."""
        usual = {"log": {"format": "json"}}
        settings = own_settings(context.servers, "bench", usual, sections)
        folder = context.folder / settings.kafka.group
        folder.mkdir()
        measured = cls(Stream(settings, folder), partitions, folder)
        await measured._stream.create_topics(partitions)
        stack.push_async_callback(measured._delete_topics)
        await measured._start(stack)
        return measured

    def run(self) -> AbstractAsyncContextManager[Worker]:
        """Return the process that records its samples in a file."""
        return self._stream.worker(module="bench.process", environment={SAMPLES: str(self._samples)})

    async def _start(self, stack: AsyncExitStack) -> None:
        self._worker = await stack.enter_async_context(self.run())
        await self._worker.owns(self.partitions)
        [info] = page.samples(await self._worker.metrics(), "kp_build_info")
        self.precision = info.labels["precision"]

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._worker.process.pid

    def suspend(self) -> None:
        suspend(self._worker.process.pid)

    def wake(self) -> None:
        wake(self._worker.process.pid)

    def mark(self) -> None:
        """Ignore all samples so far."""
        self._mark = self._samples.stat().st_size if self._samples.exists() else 0

    def samples(self, kind: str) -> NDArray[Any]:
        """Return the samples of a kind since the mark: time (``at``) and ``seconds``."""
        return read_samples(self._samples, self._mark, kind)

    async def published(self, count: int) -> None:
        """Wait until a number of outputs were confirmed since the mark."""
        seen, last = 0, time.monotonic()
        while seen < count:
            await asyncio.sleep(0.05)
            now = len(self.samples("end_to_end"))
            if now > seen:
                seen, last = now, time.monotonic()
            log = self._worker.log()[-6000:]
            assert self._worker.process.returncode is None, f"the worker ended:\n{log}"
            assert time.monotonic() - last < ARRIVAL_LIMIT, f"{seen} of {count} outputs:\n{log}"

    async def drained(self, publisher: Publisher, count: int) -> float:
        """Suspend the worker, publish a backlog, and resume it until the backlog is finished.

        Returns:
            see :meth:`saturated_rate`.
        """
        self.suspend()
        await publisher.backlog(self.settings.topics.raw, self.partitions, count)
        self.mark()
        pid = self._worker.process.pid
        before = cpu_seconds(pid)
        self.wake()
        await self.published(count)
        self.suspend()
        self.cpu.append((cpu_seconds(pid) - before) / count)
        return self.saturated_rate()

    def saturated_rate(self) -> float:
        """Return the outputs per second since the mark, from the first score to the last committed output."""
        first, last = self.samples("scoring")["at"].min(), self.samples("end_to_end")["at"]
        return len(last) / float(last.max() - first)

    async def _delete_topics(self) -> None:
        async with TopicAdmin(self.settings.kafka, self.settings.topics) as admin:
            await admin.delete(list(await admin.existing()))
