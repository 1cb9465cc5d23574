"""Section `recovery`: the time that a worker takes to recover the ledgers of 64 partitions."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from datetime import datetime

from bench.context import Context
from bench.measure import Budget, Figure, Section
from bench.traces import small_traces
from bench.workers import Fleet, Publisher

PARTITIONS = 64
ENTRIES, ENTRIES_SHORT = 1000, 50
"""Of each partition."""
CHUNK = 16_000
"""Number of records published ahead of the worker that fills the ledgers."""


async def run(context: Context, budget: Budget) -> Section:
    """Fill the ledgers, then restart workers, with one trace waiting in every partition."""
    entries = ENTRIES_SHORT if context.short else ENTRIES
    section = Section("recovery", f"Recovery of {PARTITIONS} partitions with {entries:,} ledger entries each")
    recovered, first_out, rates = [], [], []
    async with AsyncExitStack() as stack:
        publisher = await Publisher(context.servers, small_traces()).start(stack)
        fleet = await Fleet.on_new_topics(
            stack,
            context,
            PARTITIONS,
            embedding={"backend": "lexical"},
            cache={"max_elements": entries},
        )
        async with AsyncExitStack() as running:
            await fleet.start(running, None)
            await fleet.through(publisher, 0, PARTITIONS * entries, CHUNK)
            await fleet.stop()
        context.say("ledgers filled")
        for _ in budget.rounds(context.rounds):
            await publisher.backlog(fleet.settings.topics.raw, PARTITIONS, PARTITIONS)
            async with AsyncExitStack() as running:
                await fleet.start(running, None)
                await fleet.published(PARTITIONS)
                [worker] = fleet.workers
                times = _log_times(worker.log())
                seconds = times["recovered"] - times["owns"]
                recovered.append(seconds)
                rates.append(PARTITIONS * entries / seconds)
                first_out.append(float(fleet.samples("end_to_end")["at"].max()) - times["owns"])
                await fleet.stop()
    section.figures += [
        Figure("ledgers read, from the assignment on", "s", recovered),
        Figure("entries", "entries/s", rates),
        Figure("an output from every partition, from the assignment on", "s", first_out),
    ]
    section.notes.append("lexical vectors of 384 dimensions, which are as large as the model's")
    return section


def _log_times(log: str) -> dict[str, float]:
    """Return the times of the first messages on ownership and on recovery, in seconds since the epoch."""
    times: dict[str, float] = {}
    for line in log.splitlines():
        entry = json.loads(line)
        words = entry["message"].split(" ", 1)[0]
        if words in ("owns", "recovered"):
            times.setdefault(words, datetime.fromisoformat(entry["ts"]).timestamp())
    return times
