"""Section `memory`: a worker's memory once all rings are full, and its growth from then on."""

from __future__ import annotations

import asyncio
import statistics
from contextlib import AsyncExitStack

from bench.context import Context
from bench.measure import TIMES, Budget, Figure, Section
from bench.processes import resident
from bench.traces import small_traces
from bench.workers import Fleet, Publisher

PARTITIONS = 4
ELEMENTS = 200
"""`cache.max_elements`: small, so that the rings fill up quickly."""
WRAPS = 3
"""Number of times to fill the rings before measuring."""
MARKS, MARKS_SHORT = (1_000, 10_000, 100_000), (1_000, 10_000)
CHUNK = 4_000
"""Number of records published ahead of the worker."""
LOOKS = 7


async def run(context: Context, budget: Budget) -> Section:
    """Process records, and sample the resident memory."""
    section = Section("memory", "Resident memory of one worker, all rings full")
    async with AsyncExitStack() as stack:
        publisher = await Publisher(context.servers, small_traces()).start(stack)
        fleet = await Fleet.on_new_topics(
            stack,
            context,
            PARTITIONS,
            embedding={"backend": "lexical"},
            cache={"max_elements": ELEMENTS},
        )
        ring = ELEMENTS + fleet.settings.limits.uncommitted_records
        await fleet.start(stack, None)
        begin = WRAPS * ring * PARTITIONS

        def time_is_up() -> bool:
            return budget.spent >= budget.seconds

        done = await fleet.through(publisher, 0, begin, CHUNK, time_is_up)
        full = await _resident(fleet) if done == begin else []
        section.figures.append(Figure("rings just full", "MiB", full))
        for mark in MARKS_SHORT if context.short else MARKS:
            done = await fleet.through(publisher, done, begin + mark, CHUNK, time_is_up)
            if done < begin + mark:
                section.notes.append(
                    f"the time was up {begin + mark - done:,} records before {mark:,} were through"
                )
                break
            now = await _resident(fleet)
            growth = statistics.median(now) / statistics.median(full)
            section.figures += [
                Figure(f"{mark:,} records later", "MiB", now),
                Figure(f"{mark:,} records later / rings just full", TIMES, [growth], reach="1.05 at most"),
            ]
    section.notes.append(
        f"{PARTITIONS} partitions, lexical embedder, rings of {ring} entries, the shortest real traces; "
        "n: looks within a second"
    )
    return section


async def _resident(fleet: Fleet) -> list[float]:
    looks = []
    for _ in range(LOOKS):
        await asyncio.sleep(0.15)
        looks.append(resident(fleet.workers[0].process.pid))
    return looks
