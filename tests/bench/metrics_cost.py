"""Section `metrics`: the share of metrics in the cost of a record, without embedder and broker."""

from __future__ import annotations

import asyncio
import time
from itertools import cycle, islice
from typing import Any

from bench.context import Context
from bench.measure import Budget, Figure, Section, alternate, ratio
from support.traces import real_traces
from worker.lane.lane import LaneServices
from worker.lane.lanes import Lanes
from worker.lane.ring import Changelog
from worker.observe.metrics import Metrics
from worker.policy import Policy, PolicyInForce
from worker.records.outputs import Outputs
from worker.records.record import RawRecord
from worker.settings import CacheSettings, LimitSettings, TopicSettings
from worker.testing.memory_publisher import MemoryPublisher

RECORDS = 1500
"""Of each side of each round."""


async def run(context: Context, budget: Budget) -> Section:
    """Compare a lane with metrics and a lane without."""
    section = Section("metrics", "A record's metrics, of its way without embedder and broker")
    records = [
        RawRecord("raw-traces", 0, offset, 1_700_000_000_000, b"key", value, ())
        for offset, value in enumerate(islice(cycle(real_traces()), RECORDS))
    ]

    async def with_metrics() -> float:
        return await _through_a_lane(records, Metrics(Policy(), 0.1))

    async def without() -> float:
        return await _through_a_lane(records, Nothing())

    seconds = await alternate({"with": with_metrics, "without": without}, budget.rounds(context.rounds))
    more = zip(seconds["with"], seconds["without"], strict=True)
    section.figures += [
        ratio("time with metrics / without", seconds["with"], seconds["without"]),
        Figure("the metrics", "µs/record", [(one - other) / RECORDS * 1e6 for one, other in more]),
    ]
    return section


class Nothing:
    """A stand-in for the metrics that ignores every call."""

    def __getattr__(self, name: str) -> Nothing:
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Nothing:
        return self


async def _through_a_lane(records: list[RawRecord], metrics: Any) -> float:
    """Decode, score, remember and publish with a broker that confirms at once; return the seconds."""
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
    changelog = Changelog(0)
    failures: list[BaseException] = []
    started = time.perf_counter()
    lanes = Lanes(services, lambda _: changelog, failures.append)
    lanes.open()
    for record in records:
        await lanes.take(record)
        if lanes.commit_requested.is_set() or record.offset % 256 == 255:
            lanes.committed(lanes.watermarks())
            lanes.commit_requested.clear()
    while lanes.watermarks()[0] < len(records):
        await asyncio.sleep(0)
    await lanes.drain()
    assert not failures, failures
    return time.perf_counter() - started
