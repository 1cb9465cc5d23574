"""Sections `worker` and `processes`: the whole worker on real Kafka, compared with the forward pass."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench.context import Context
from bench.embedder import EmbeddingSide
from bench.measure import ENOUGH, Budget, Figure, Section, Side, alternate, poisson_schedule, ratio
from bench.traces import mixed_traces
from bench.workers import SUSPENDABLE, Fleet, Publisher
from support.traces import real_traces

PARTITIONS = (1, 4, 16, 64)
PARTITIONS_SHORT = (4, 64)
LOAD = 0.5
"""Share of the saturated rate in the open loop."""
LEAD = 1.0
"""Seconds between resuming a worker and the first arrival."""
WARM_UP = 96
GUESS = 64
"""Assumed traces per second, which determines the size of the first backlog."""

FORWARD = "forward only"
END_TO_END = "scheduled arrival to confirmed output"


@dataclass(frozen=True)
class _Runs:
    """One worker for each partition count, and their measurements.

    Attributes:
        fleets: the fleets by partition count, suspended unless it is their turn.
        precision: the precision of all embedders.
    """

    context: Context
    budget: Budget
    section: Section
    publisher: Publisher
    fleets: dict[int, Fleet]
    precision: str

    async def saturated(self, forward: EmbeddingSide) -> dict[int, float]:
        """Drain backlogs in turns with the forward pass; return the traces per second by partition count."""
        seconds = 2.5 if self.context.short else 7.0
        durations = self._durations("scoring", "admission")
        sides: dict[str, Side] = {FORWARD: lambda: forward.rate(seconds / 2)}
        for count, fleet in self.fleets.items():
            sides[_partitions(count)] = await self._noted(fleet, seconds, durations[count])
        rates = await alternate(sides, self.budget.rounds(self.context.rounds, share=0.45))
        for name, values in rates.items():
            self.section.figures.append(Figure(f"saturated, {name}", "traces/s", values))
        for count, fleet in self.fleets.items():
            name = _partitions(count)
            rounds = len(rates[name])
            self.section.figures += [
                ratio(f"{name} / {FORWARD}", rates[name], rates[FORWARD], "0.75 at least, aim 0.9"),
                ratio(
                    f"CPU time a trace, {FORWARD} / {name}",
                    forward.cpu[-rounds:],
                    fleet.cpu[-rounds:],
                    "0.9 at least",
                ),
            ]
        many, few = rates[_partitions(64)], rates[_partitions(4)]
        self.section.figures.append(ratio("64 partitions / 4 partitions", many, few, "0.95 at least"))
        self._report("saturated", durations)
        return {count: statistics.median(rates[_partitions(count)]) for count in self.fleets}

    async def open_loop(self, rates: dict[int, float]) -> None:
        """Run Poisson arrivals in turns, until there are enough samples or the time is up.

        Args:
            rates: the saturated rates by partition count.
        """
        # The others are suspended for these turns, which must not exceed a minute.
        seconds = 5.0 if self.context.short else 9.0
        durations = self._durations("scoring", "admission", "end_to_end")
        late: list[float] = []
        for number in self.budget.rounds(1 if self.context.short else 16):
            for count, fleet in self.fleets.items():
                schedule = poisson_schedule(LOAD * rates[count], seconds, seed=number)
                fleet.wake()
                await asyncio.sleep(LEAD)
                fleet.mark()
                late += await self.publisher.open_loop(
                    fleet.settings.topics.raw, count, schedule, seed=number
                )
                await fleet.published(len(schedule))
                fleet.suspend()
                _note(fleet, durations[count])
            if all(len(kinds["end_to_end"]) >= ENOUGH for kinds in durations.values()):
                break
        self._report(f"{LOAD:.0%} load", durations)
        self.section.figures.append(_milliseconds("the publisher's own delay", late, ""))

    async def _noted(self, fleet: Fleet, seconds: float, durations: dict[str, list[float]]) -> Side:
        drain = await _saturation(fleet, self.publisher, seconds)

        async def noted() -> float:
            rate = await drain()
            _note(fleet, durations)
            return rate

        return noted

    def _durations(self, *kinds: str) -> dict[int, dict[str, list[float]]]:
        return {count: {kind: [] for kind in kinds} for count in self.fleets}

    def _report(self, load: str, durations: dict[int, dict[str, list[float]]]) -> None:
        for count, kinds in durations.items():
            for kind, samples in kinds.items():
                what = END_TO_END if kind == "end_to_end" else kind
                figure = _milliseconds(
                    f"{load}, {_partitions(count)}: {what}", samples, self._reach(load, kind)
                )
                self.section.figures.append(figure)

    def _reach(self, load: str, kind: str) -> str:
        if self.precision == "bfloat16" and (load, kind) == ("saturated", "scoring"):
            return "p99 below 100, aim 60"
        return "p99 below 150, aim 100" if kind == "end_to_end" else ""


async def run(context: Context, budget: Budget) -> Section:
    """Drain backlogs, then process arrivals at half that rate, with one worker for each partition count."""
    section = Section("worker", "One worker, end to end on Kafka")
    counts = PARTITIONS_SHORT if context.short else PARTITIONS
    return await _one_worker(context, budget, section, real_traces(), "full", counts)


async def mixed(context: Context, budget: Budget) -> Section:
    """Do the same with texts of 16 to 256 tokens."""
    section = Section("mixed", "One worker, end to end on Kafka, with texts of 16 to 256 tokens")
    return await _one_worker(context, budget, section, mixed_traces(), "mixed", PARTITIONS_SHORT)


async def _one_worker(
    context: Context,
    budget: Budget,
    section: Section,
    traces: Sequence[bytes],
    lengths: str,
    counts: Sequence[int],
) -> Section:
    async with AsyncExitStack() as stack:
        publisher = await Publisher(context.servers, traces).start(stack)
        fleets: dict[int, Fleet] = {}
        precision = "auto"
        for count in counts:
            fleets[count] = await _warm_fleet(stack, context, publisher, precision, count, [None])
            precision = fleets[count].precision  # the first one's choice applies to all
        forward = await _forward(stack, context, precision, {}, lengths)
        section.notes += [f"precision: {precision}", f"{FORWARD}: {forward.description}"]
        runs = _Runs(context, budget, section, publisher, fleets, precision)
        rates = await runs.saturated(forward)
        context.say("backlogs drained")
        await runs.open_loop(rates)
    return section


async def _forward(
    stack: AsyncExitStack,
    context: Context,
    precision: str,
    environment: dict[str, str],
    lengths: str = "full",
) -> EmbeddingSide:
    arguments = ("forward", precision, lengths)
    side = await EmbeddingSide.start(stack, context.folder, *arguments, environment=environment)
    await side.imported()
    await side.prepare()
    return side


async def _warm_fleet(
    stack: AsyncExitStack,
    context: Context,
    publisher: Publisher,
    precision: str,
    partitions: int,
    cores: Sequence[list[int] | None],
) -> Fleet:
    """Start workers with all others suspended; suspend them once warm."""
    embedding = {"precision": precision, "device": "cpu"}
    fleet = await Fleet.on_new_topics(stack, context, partitions, embedding=embedding, **SUSPENDABLE)
    await fleet.start(stack, *cores)
    await fleet.drained(publisher, WARM_UP)
    context.say(f"{len(cores)} worker(s) for {partitions} partitions ready")
    return fleet


async def _saturation(fleet: Fleet, publisher: Publisher, seconds: float) -> Side:
    """Return a side that drains a backlog for about this many seconds."""
    rate = await fleet.drained(publisher, max(2 * WARM_UP, round(GUESS * seconds)))
    count = max(WARM_UP, round(seconds * rate))
    return lambda: fleet.drained(publisher, count)


def _note(fleet: Fleet, durations: dict[str, list[float]]) -> None:
    for kind, values in durations.items():
        values.extend(fleet.samples(kind)["seconds"])


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _milliseconds(what: str, seconds: list[float], reach: str) -> Figure:
    return Figure(what, "ms", [one * 1000 for one in seconds], "samples", reach)
