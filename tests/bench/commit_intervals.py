"""Section `commits`: throughput, and time to a committed output, for several commit intervals."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from bench.context import Context
from bench.measure import Budget, Figure, Section, Side, alternate, poisson_schedule, ratio
from bench.traces import STREAM_BYTES, of_size
from bench.workers import SUSPENDABLE, MeasuredWorker, Publisher
from support.traces import real_traces

INTERVALS = (0.05, 0.1, 1.0)
"""Commit intervals in seconds; the second is the default."""
PARTITIONS = (4, 64)
COUNT, COUNT_SHORT = 6_000, 2_000
SECONDS, SECONDS_SHORT = 8.0, 5.0
"""Duration of the arrivals of a round."""
LOAD = 0.5
"""Share of the slowest saturated rate in the open loop."""


async def run(context: Context, budget: Budget) -> Section:
    """Drain backlogs, then process arrivals at half that rate, with a worker for each interval."""
    section = Section("commits", f"Commit intervals; lexical embedder, records of {STREAM_BYTES / 1000:g} kB")
    count, seconds = (COUNT_SHORT, SECONDS_SHORT) if context.short else (COUNT, SECONDS)
    async with AsyncExitStack() as stack:
        traces = [of_size(trace, STREAM_BYTES) for trace in real_traces()]
        publisher = await Publisher(context.servers, traces).start(stack)
        workers = {
            _name(interval, partitions): await _suspended_worker(
                stack, context, publisher, interval, partitions
            )
            for partitions in PARTITIONS
            for interval in INTERVALS
        }
        drains: dict[str, Side] = {
            name: partial(worker.drained, publisher, count) for name, worker in workers.items()
        }
        rates = await alternate(drains, budget.rounds(context.rounds, share=0.5))
        section.figures += [
            Figure(f"saturated, {name}", "traces/s", values) for name, values in rates.items()
        ]
        section.figures += _ratios(rates)
        load = LOAD * min(map(statistics.median, rates.values()))
        samples: dict[str, list[float]] = {name: [] for name in workers}
        for number in budget.rounds(1 if context.short else 8):
            for name, worker in workers.items():
                samples[name] += await _committed_after(worker, publisher, load, seconds, number)
        section.figures += [
            Figure(f"{load:.0f} traces/s, {name}: arrival to committed output", "ms", values, "samples")
            for name, values in samples.items()
        ]
    return section


def _name(interval: float, partitions: int) -> str:
    return f"{partitions} partitions, every {interval:g} s"


def _ratios(rates: dict[str, list[float]]) -> list[Figure]:
    default: Callable[[int], str] = partial(_name, INTERVALS[1])
    return [
        ratio(
            f"{_name(interval, count)} / every {INTERVALS[1]:g} s",
            rates[_name(interval, count)],
            rates[default(count)],
        )
        for count in PARTITIONS
        for interval in (INTERVALS[0], INTERVALS[2])
    ]


async def _suspended_worker(
    stack: AsyncExitStack, context: Context, publisher: Publisher, interval: float, partitions: int
) -> MeasuredWorker:
    kafka = {**SUSPENDABLE["kafka"], "commit_interval": interval}
    sections = {**SUSPENDABLE, "embedding": {"backend": "lexical"}, "kafka": kafka}
    worker = await MeasuredWorker.on_new_topics(stack, context, partitions, **sections)
    await worker.drained(publisher, 500)
    return worker


async def _committed_after(
    worker: MeasuredWorker, publisher: Publisher, rate: float, seconds: float, seed: int
) -> list[float]:
    """Publish Poisson arrivals; return the milliseconds from each arrival to its committed output."""
    schedule = poisson_schedule(rate, seconds, seed)
    worker.wake()
    await asyncio.sleep(1.0)
    worker.mark()
    await publisher.open_loop(worker.settings.topics.raw, worker.partitions, schedule, seed)
    await worker.published(len(schedule))
    worker.suspend()
    return list(worker.samples("end_to_end")["seconds"] * 1000)
