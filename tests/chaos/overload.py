"""Overload: its effect on a worker's memory and on the latency of other partitions.

These are not rows, because no fault is injected: the workers only get too much to do.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
from aiokafka import AIOKafkaProducer

from chaos.load import Make
from chaos.results import Outcome
from knowledgepulse_worker.tools.audit import audit
from support import metrics_page as page
from support.streams import Stream, Worker, own_settings
from support.traces import real_traces

SMALL, MEDIUM, LARGE = 6_000, 10_000, 1_000_000
"""Sizes of traces in bytes."""

KAFKA_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default, which determines how much a worker fetches from a partition at once."""

MAX_GROWTH = 0.05


_ABORTED_AT_ONCE = 250_000

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


async def gap(bootstrap_servers: str, folder: Path, short: bool, say: Say) -> Outcome:
    """Let a worker cross a wide range of offsets from an aborted transaction."""
    count, wide = (600, 1_000_000) if short else (5_000, 50_000_000)
    # The ledger is full before the gap, so that it does not grow behind it.
    small = {
        "cache": {"max_elements": 100},
    }
    usual = {"embedding": {"backend": "lexical"}, "policy": {"threshold": 0.4}}
    stream = Stream(own_settings(bootstrap_servers, "overload", usual, small), folder)
    await stream.create_topics(1)
    make = traces_of(SMALL)
    await publish(stream, ((0, make(number)) for number in range(count)))
    await _abort(stream, wide)
    await publish(stream, ((0, make(number)) for number in range(count, 2 * count)))
    say(f"published {2 * count} records, and {wide} between them that were aborted")

    async with stream.worker() as worker:
        await worker.owns(1)
        watch = Watch(worker)
        await watch.until(lambda sample: sample.finished >= count)
        reached = time.monotonic()
        await watch.until(lambda sample: sample.finished > count)
        crossed = time.monotonic() - reached
        await watch.until(lambda sample: sample.finished == 2 * count)
        assert await worker.stop() == 0, worker.log()
    committed = await stream.committed()
    report = await audit(stream.settings)
    before, after = watch.growth(count)
    wrong = [] if report.ok and not report.waiting else ["something is missing or differs"]
    if after > before * (1 + MAX_GROWTH):
        wrong.append(f"memory grew by {after / before - 1:.1%}")
    if committed[0] <= wide:
        wrong.append(f"the group is at offset {committed[0]}")
    return Outcome(
        rounds=1,
        records=sum(part.records for part in report.partitions),
        outputs=sum(part.outputs for part in report.partitions),
        repeats=report.repeated,
        missing=report.missing + report.waiting,
        differing=report.differing,
        audited=sum(part.novelty_exact for part in report.partitions),
        wrong=wrong,
        notes={
            "most memory, MiB": f"{_mib(before)} while warming up, {_mib(after)} after",
            "seconds to cross it": f"{crossed:.1f}",
        },
    )


async def _abort(stream: Stream, count: int) -> None:
    """Publish empty records in a transaction, and abort it."""
    async with AIOKafkaProducer(
        bootstrap_servers=stream.settings.kafka.bootstrap_servers,
        transactional_id=stream.settings.kafka.group,
        transaction_timeout_ms=900_000,
        compression_type="gzip",
        max_batch_size=2**24,
        max_request_size=2**24,
    ) as producer:
        await producer.begin_transaction()
        for _ in range(count // _ABORTED_AT_ONCE):
            batch = producer.create_batch()
            for _ in range(_ABORTED_AT_ONCE):
                batch.append(key=None, value=b"", timestamp=0)
            await (await producer.send_batch(batch, stream.settings.topics.raw, partition=0))
        await producer.abort_transaction()


def _mib(size: int) -> int:
    return round(size / 2**20)
