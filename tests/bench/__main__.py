"""`make bench`: what costs how much, as ratios within one run.

Each comparison alternates its sides, so that what else the machine does falls on both alike.
"""

from __future__ import annotations

import asyncio
import platform
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import worker.demo
from worker.observe.metrics import Metrics
from worker.policy import Policy, PolicyInForce
from worker.settings import CacheSettings, LimitSettings, TopicSettings
from worker.stream.lane import LaneServices
from worker.stream.lanes import Lanes
from worker.stream.ledger import Changelog
from worker.stream.memory_publisher import MemoryPublisher
from worker.stream.outputs import Outputs
from worker.stream.records import RawRecord

ROUNDS = 8


@dataclass(frozen=True)
class Comparison:
    """Two ways to do the same number of records; the ratio is the first's time over the second's."""

    name: str
    records: int
    seconds: list[tuple[float, float]]

    @property
    def ratios(self) -> list[float]:
        return [first / second for first, second in self.seconds]

    @property
    def microseconds(self) -> float:
        """What the first takes longer for a record, in the median round."""
        return statistics.median(first - second for first, second in self.seconds) / self.records * 1e6


class Nothing:
    """Stands in for the metrics: takes every call and does nothing."""

    def __getattr__(self, name: str) -> Nothing:
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Nothing:
        return self


async def through_a_lane(records: list[RawRecord], metrics: Any) -> None:
    """Decode, score without an embedder, remember and publish, with a broker that confirms at once."""
    topics = TopicSettings()
    services = LaneServices(
        policy=PolicyInForce(Policy()),
        cache=CacheSettings(),
        limits=LimitSettings(),
        batcher=None,
        outputs=Outputs(topics, dict.fromkeys(topics.model_dump().values(), 1)),
        publisher=MemoryPublisher(),
        changelog_topic="ledger",
        metrics=metrics,
    )
    changelog = Changelog()
    failures: list[BaseException] = []
    lanes = Lanes(services, lambda _: changelog, failures.append)
    lanes.reopen()
    for record in records:
        await lanes.take(record)
        if lanes.commit_wanted.is_set() or record.offset % 256 == 255:
            lanes.committed(lanes.watermarks())
            lanes.commit_wanted.clear()
    while lanes.watermarks()[0] < len(records):
        await asyncio.sleep(0)
    await lanes.drain()
    assert not failures, failures


async def timed(way: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    await way()
    return time.perf_counter() - started


async def cost_of_metrics(count: int) -> Comparison:
    """A record's way through a lane with its metrics, against the same without any."""
    traces = Path(worker.demo.__file__).with_name("real_traces.jsonl").read_bytes().splitlines()
    records = [
        RawRecord("raw-traces", 0, offset, 1_700_000_000_000, b"key", value, ())
        for offset, value in enumerate(islice(cycle(traces), count))
    ]
    seconds = [
        (
            await timed(lambda: through_a_lane(records, Metrics(Policy(), 0.1))),
            await timed(lambda: through_a_lane(records, Nothing())),
        )
        for _ in range(ROUNDS)
    ]
    return Comparison("a record's metrics, of its way without embedder and broker", count, seconds)


@click.command()
@click.option("--records", default=1500, show_default=True, help="Of each side of each round.")
def main(records: int) -> None:
    """Print what costs how much."""
    console = Console()
    table = Table(
        title=f"{ROUNDS} alternating rounds; Python {platform.python_version()}, {platform.machine()}"
    )
    for column in ("what", "ratio: median", "least", "most", "µs a record"):
        table.add_column(column)
    for one in (asyncio.run(cost_of_metrics(records)),):
        ratios = sorted(one.ratios)
        told = (statistics.median(ratios), ratios[0], ratios[-1])
        table.add_row(one.name, *(f"{ratio:.2f}" for ratio in told), f"{one.microseconds:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
