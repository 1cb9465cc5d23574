"""Sections `worker` and `processes`: the worker end to end on real Kafka, against the forward pass alone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from bench import machine
from bench.context import Context
from bench.embedder import EmbeddingSide
from bench.measure import ENOUGH, Budget, Figure, Section, alternate, median, poisson_schedule, ratio
from bench.processes import on_cores
from bench.traces import real_traces
from bench.workers import SUSPENDABLE, Fleet, Publisher

PARTITIONS = (1, 4, 16, 64)
PARTITIONS_SHORT = (4, 64)
LOAD = 0.5
"""Of the saturated rate, in the open loop."""
LEAD = 1.0
"""Seconds between a worker's waking and the first arrival."""
WARM_UP = 96


async def run(context: Context, budget: Budget) -> Section:
    """Drain backlogs, then take arrivals at half that rate; one worker for each partition count."""
    section = Section("worker", "One worker, end to end on Kafka")
    async with AsyncExitStack() as stack:
        publisher = await Publisher(context.servers, real_traces()).start(stack)
        fleets = {
            count: await _warm_fleet(stack, context, publisher, count, None)
            for count in (PARTITIONS_SHORT if context.short else PARTITIONS)
        }
        precision = await _precision(fleets[4])
        forward = await EmbeddingSide.start(stack, context.folder, "forward", precision)
        section.notes += [f"precision: {precision}", f"forward only: {forward.description}"]
        rates = await _saturated(context, budget, section, fleets, publisher, forward, precision)
        await _open_loop(context, budget, section, fleets, publisher, rates)
    return section


async def processes(context: Context, budget: Budget) -> Section:
    """One worker with two cores against two with one each."""
    section = Section("processes", "Two cores: one worker with both, or one worker on each")
    cores = machine.cores()[:2]
    if len(cores) < 2:
        section.notes.append("not measured: there is but one core")
        return section
    async with AsyncExitStack() as stack:
        publisher = await Publisher(context.servers, real_traces()).start(stack)
        one = await _warm_fleet(stack, context, publisher, 4, cores)
        two = await _warm_fleet(stack, context, publisher, 4, cores[:1], cores[1:])
        precision = await _precision(one)
        forward = await EmbeddingSide.start(
            stack, context.folder, "forward", precision, environment=on_cores(cores)
        )
        section.notes += [f"precision: {precision}", f"forward only: {forward.description}"]
        seconds = 2.0 if context.short else 6.0
        sides = {
            "one worker, two cores": await _saturation(one, publisher, seconds),
            "two workers, a core each": await _saturation(two, publisher, seconds),
            "forward only": lambda: forward.rate(seconds / 2),
        }
        rates = await alternate(sides, budget.rounds(context.rounds))
    section.figures += [Figure(name, "traces/s", values) for name, values in rates.items()]
    single, double, ceiling = rates.values()
    section.figures += [
        ratio("one worker, two cores / forward only", single, ceiling, "0.75 at least, aim 0.9"),
        ratio("two workers, a core each / forward only", double, ceiling, "0.85 at least, aim 0.95"),
        ratio("two workers / one worker", double, single),
    ]
    return section


async def _warm_fleet(
    stack: AsyncExitStack, context: Context, publisher: Publisher, partitions: int, *cores: list[int] | None
) -> Fleet:
    """Start workers alone on the machine, since they measure it at their start; suspended, once warm."""
    fleet = await Fleet.on_new_topics(stack, context, partitions, **SUSPENDABLE)
    await fleet.start(stack, *cores)
    await fleet.drained(publisher, WARM_UP)
    context.say(f"{len(cores)} worker(s) for {partitions} partitions ready")
    return fleet


async def _precision(fleet: Fleet) -> str:
    fleet.wake()
    precision = await fleet.precision()
    fleet.suspend()
    return precision


async def _saturation(fleet: Fleet, publisher: Publisher, seconds: float):
    """A side that drains a backlog for about so many seconds."""
    count = max(WARM_UP, round(seconds * await fleet.drained(publisher, 2 * WARM_UP)))
    return lambda: fleet.drained(publisher, count)


async def _saturated(context, budget, section, fleets, publisher, forward, precision) -> dict[int, float]:
    """Compare the saturated rates; returns each fleet's."""
    seconds = 2.5 if context.short else 7.0
    durations = {count: {"scoring": [], "admission": []} for count in fleets}
    sides = {"forward only": lambda: forward.rate(seconds / 2)}
    for count, fleet in fleets.items():
        drain = await _saturation(fleet, publisher, seconds)

        async def saturated(drain=drain, fleet=fleet, told=durations[count]) -> float:
            rate = await drain()
            for kind, seconds in told.items():
                seconds.extend(fleet.samples(kind)["seconds"])
            return rate

        sides[str(count)] = saturated
    rates = await alternate(sides, budget.rounds(context.rounds, share=0.45))
    context.say("backlogs drained")
    for name, values in rates.items():
        what = name if name == "forward only" else f"saturated, {name} partitions"
        section.figures.append(Figure(what, "traces/s", values))
    for count in fleets:
        section.figures.append(
            ratio(
                f"saturated, {count} partitions / forward only",
                rates[str(count)],
                rates["forward only"],
                "0.75 at least, aim 0.9",
            )
        )
    section.figures.append(ratio("64 partitions / 4, saturated", rates["64"], rates["4"], "0.95 at least"))
    for count, told in durations.items():
        for kind, samples in told.items():
            reach = "p99 below 100, aim 60" if (kind, precision) == ("scoring", "bfloat16") else ""
            section.figures.append(_milliseconds(f"saturated, {count} partitions: {kind}", samples, reach))
    return {count: median(rates[str(count)]) for count in fleets}


async def _open_loop(context, budget, section, fleets, publisher, rates) -> None:
    """Take Poisson arrivals, in turns, until there are samples enough or the time is up."""
    seconds = 5.0 if context.short else 12.0
    durations = {count: {"scoring": [], "admission": [], "end_to_end": []} for count in fleets}
    late: list[float] = []
    for number in budget.rounds(1 if context.short else 12):
        for count, fleet in fleets.items():
            schedule = poisson_schedule(LOAD * rates[count], seconds, seed=number)
            fleet.wake()
            await asyncio.sleep(LEAD)
            fleet.mark()
            late += await publisher.open_loop(fleet.settings.topics.raw, fleet.partitions, schedule)
            await fleet.published(len(schedule))
            fleet.suspend()
            for kind, told in durations[count].items():
                told.extend(fleet.samples(kind)["seconds"])
        if all(len(told["end_to_end"]) >= ENOUGH for told in durations.values()):
            break
    for count, told in durations.items():
        for kind, samples in told.items():
            reach = "p99 below 150, aim 100" if kind == "end_to_end" else ""
            what = "scheduled arrival to confirmed output" if kind == "end_to_end" else kind
            section.figures.append(
                _milliseconds(f"{LOAD:.0%} load, {count} partitions: {what}", samples, reach)
            )
    section.figures.append(_milliseconds("the publisher's own delay", late, ""))


def _milliseconds(what: str, seconds: list[float], reach: str) -> Figure:
    return Figure(what, "ms", [one * 1000 for one in seconds], "samples", reach)
