"""Section `partitions`: what a worker without a model costs with few and with many partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from bench.against import HERE, LOADS, ROOT, THERE, TreeWorker, start_workers
from bench.context import Context
from bench.measure import Budget, Figure, Section, Side, alternate, poisson_schedule, ratio
from bench.traces import STREAM_BYTES, of_size
from bench.workers import Publisher
from support.processes import cpu_seconds, resident_bytes
from support.traces import real_traces

COUNTS, COUNTS_SHORT = (4, 64, 256, 1000), (4, 64)
BACKLOG = 4_000
ROUNDS = 3
SECONDS = 5.0
"""Duration of a turn without records, or with few."""
TRICKLE = 20.0
"""Arrivals per second of a trickle."""


async def run(other: Path | None, context: Context, budget: Budget) -> Section:
    """Drain backlogs, and look at idle workers, with workers of each number of partitions.

    Args:
        other: the root of a tree to compare with; None for this tree alone.
        context: the run.
        budget: the time limit, which the largest numbers of partitions may exceed.
    """
    section = Section(
        "partitions", f"Few and many partitions, no model, records of {STREAM_BYTES / 1000:g} kB"
    )
    trees = {HERE: ROOT} | ({} if other is None else {THERE: other})
    costs: dict[tuple[int, str], list[float]] = {}
    for count in COUNTS_SHORT if context.short else COUNTS:
        async with AsyncExitStack() as stack:
            traces = [of_size(trace, STREAM_BYTES) for trace in real_traces()]
            publisher = await Publisher(context.servers, traces).start(stack)
            workers = await start_workers(stack, context, publisher, LOADS["none"], trees, count)
            for side, values in (await _drained(workers, publisher)).items():
                costs[count, side] = values
                section.figures.append(Figure(f"{count} partitions, {side}: CPU time a record", "µs", values))
            for side, worker in workers.items():
                section.figures += await _at_rest(worker, f"{count} partitions, {side}", publisher)
    for (count, side), values in costs.items():
        if count != COUNTS[0]:
            what = f"{side}: CPU time a record, {count} / {COUNTS[0]} partitions"
            section.figures.append(ratio(what, values, costs[COUNTS[0], side], _REACH.get(count, "")))
    return section


_REACH = {256: "1.5 at most", 1000: "3 at most"}


async def _drained(workers: Mapping[str, TreeWorker], publisher: Publisher) -> dict[str, list[float]]:
    """Drain backlogs in turns; return the microseconds of CPU time a record, by round."""

    async def drain(worker: TreeWorker) -> float:
        await worker.drained(publisher, BACKLOG)
        return 1e6 * worker.cpu[-1]

    sides: dict[str, Side] = {side: partial(drain, worker) for side, worker in workers.items()}
    return await alternate(sides, iter(range(ROUNDS)))


async def _at_rest(worker: TreeWorker, what: str, publisher: Publisher) -> list[Figure]:
    """Return the memory of a worker, and the CPU time that it takes without records and with few."""
    worker.wake()
    await asyncio.sleep(1)  # what had to wait while it was suspended is done
    idle = await _cpu_while(worker, asyncio.sleep(SECONDS))
    schedule = poisson_schedule(TRICKLE, SECONDS, seed=0)
    trickle = await _cpu_while(
        worker, publisher.open_loop(worker.settings.topics.raw, worker.partitions, schedule, seed=0)
    )
    memory = resident_bytes(worker.pid) / 2**20
    worker.suspend()
    return [
        Figure(f"{what}: CPU time without records", "ms/s", [idle]),
        Figure(f"{what}: CPU time with {TRICKLE:g} records/s", "ms/s", [trickle]),
        Figure(f"{what}: memory", "MiB", [memory]),
    ]


async def _cpu_while(worker: TreeWorker, awaited: Awaitable[object]) -> float:
    """Return the CPU milliseconds per second that a worker takes while something is awaited."""
    before, began = cpu_seconds(worker.pid), asyncio.get_running_loop().time()
    await awaited
    return 1000 * (cpu_seconds(worker.pid) - before) / (asyncio.get_running_loop().time() - began)
