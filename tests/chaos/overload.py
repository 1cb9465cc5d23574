"""Overload: its effect on a worker's memory and on the latency of other partitions.

These are not rows, because no fault is injected: the workers only get too much to do.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil
from aiokafka import AIOKafkaProducer

from chaos.load import Make
from support import metrics_page as page
from support.streams import Stream, Worker
from support.traces import real_traces

SMALL, MEDIUM, LARGE = 6_000, 10_000, 1_000_000
"""Sizes of traces in bytes."""

KAFKA_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default, which determines how much a worker fetches from a partition at once."""

_INTERVAL = 0.1

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sample:
    """A snapshot of a worker.

    Attributes:
        finished: number of records with an output.
        resident: resident memory of the child in bytes.
        records: number of records in flight.
        bytes: number of bytes in flight.
    """

    finished: int
    resident: int
    records: int
    bytes: int


class Watch:
    """Sample a worker's memory and its records in flight.

    Args:
        worker: a running worker.

    Attributes:
        samples: the samples, in order.
        most_records: limit of records in flight.
        most_bytes: limit of bytes in flight.
    """

    def __init__(self, worker: Worker) -> None:
        self.samples: list[Sample] = []
        self.most_records = self.most_bytes = 0
        self._worker = worker
        (self._child,) = psutil.Process(worker.process.pid).children()

    async def until(self, reached: Callable[[Sample], bool]) -> None:
        """Sample until a condition holds."""
        while True:
            text = await self._worker.metrics()
            self.most_records = int(page.value(text, "kp_in_flight_records_limit"))
            self.most_bytes = int(page.value(text, "kp_in_flight_bytes_limit"))
            sample = Sample(
                finished=int(page.value(text, "kp_traces_total")),
                resident=self._child.memory_info().rss,
                records=int(page.value(text, "kp_in_flight_records")),
                bytes=int(page.value(text, "kp_in_flight_bytes")),
            )
            self.samples.append(sample)
            if reached(sample):
                return
            await asyncio.sleep(_INTERVAL)

    def growth(self, warm: int) -> tuple[int, int]:
        """Return the peak memory before and after this many records were finished, in bytes."""
        before = max(sample.resident for sample in self.samples if sample.finished <= warm)
        return before, max(sample.resident for sample in self.samples if sample.finished > warm)


def traces_of(size: int) -> Make:
    """Return a function that creates traces of a size in bytes, with the words of real traces."""
    documents = [json.loads(line) for line in real_traces()]
    contents = [
        step["content"] for document in documents for step in document["steps"] if step.get("content")
    ]
    head = json.dumps(documents[0] | {"steps": []})

    def make(number: int) -> tuple[bytes, bytes]:
        rng = random.Random(number)
        trace = json.loads(head)
        trace["id"] = f"kp:trace:overload-{size}-{number}"
        left = size - len(head)
        while left > 0:
            step = {
                "step_id": len(trace["steps"]),
                "type": "observation",
                "content": rng.choice(contents)[:left],
            }
            trace["steps"].append(step)
            left -= len(json.dumps(step)) + 2
        return trace["id"].encode(), json.dumps(trace).encode()

    return make


async def publish(stream: Stream, records: Iterable[tuple[int, tuple[bytes, bytes]]]) -> None:
    """Publish records to the given partitions."""
    async with AIOKafkaProducer(
        bootstrap_servers=stream.settings.kafka.bootstrap_servers,
        max_request_size=2 * LARGE,
        max_batch_size=262_144,
    ) as producer:
        for partition, (key, value) in records:
            await producer.send(stream.settings.topics.raw, value, key=key, partition=partition)
