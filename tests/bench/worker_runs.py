"""Section `worker`: the whole worker on real Kafka, compared with the forward pass."""

from __future__ import annotations

import asyncio
import statistics
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench.context import Context
from bench.embedder import EmbeddingSide
from bench.measure import MIN_SAMPLES, Budget, Figure, Section, Side, alternate, poisson_schedule, ratio
from bench.workers import SUSPENDABLE, MeasuredWorker, Publisher
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
END_TO_END = "scheduled arrival to committed output"


@dataclass(frozen=True)
class _Runs:
    """One worker for each partition count, and their measurements.

    Attributes:
        workers: the workers by partition count; they are suspended unless it is their turn.
        precision: the precision of all embedders.
    """

    context: Context
    budget: Budget
    section: Section
    publisher: Publisher
    workers: dict[int, MeasuredWorker]
    precision: str

    async def saturated(self, forward: EmbeddingSide) -> dict[int, float]:
        """Drain backlogs in turns with the forward pass; return the traces per second by partition count."""
        seconds = 2.5 if self.context.short else 7.0
        durations = self._durations("scoring", "admission")
        sides: dict[str, Side] = {FORWARD: lambda: forward.rate(seconds / 2)}
        for count, worker in self.workers.items():
            sides[_partitions(count)] = await self._noted(worker, seconds, durations[count])
        rates = await alternate(sides, self.budget.rounds(self.context.rounds, share=0.45))
        for name, values in rates.items():
            self.section.figures.append(Figure(f"saturated, {name}", "traces/s", values))
        for count, worker in self.workers.items():
            name = _partitions(count)
            rounds = len(rates[name])
            spent = [seconds * 1000 for seconds in worker.cpu[-rounds:]]
            self.section.figures += [
                Figure(f"CPU time a trace, {name}", "ms", spent),
                ratio(f"{name} / {FORWARD}", rates[name], rates[FORWARD], "0.75 at least, aim 0.9"),
                ratio(
                    f"CPU time a trace, {FORWARD} / {name}",
                    forward.cpu[-rounds:],
                    worker.cpu[-rounds:],
                    "0.9 at least",
                ),
            ]
        many, few = rates[_partitions(64)], rates[_partitions(4)]
        self.section.figures.append(ratio("64 partitions / 4 partitions", many, few, "0.95 at least"))
        self._report("saturated", durations)
        return {count: statistics.median(rates[_partitions(count)]) for count in self.workers}

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
            for count, worker in self.workers.items():
                schedule = poisson_schedule(LOAD * rates[count], seconds, seed=number)
                worker.wake()
                await asyncio.sleep(LEAD)
                worker.mark()
                late += await self.publisher.open_loop(
                    worker.settings.topics.raw, count, schedule, seed=number
                )
                await worker.published(len(schedule))
                worker.suspend()
                _note(worker, durations[count])
            if all(len(kinds["end_to_end"]) >= MIN_SAMPLES for kinds in durations.values()):
                break
        self._report(f"{LOAD:.0%} load", durations)
        self.section.figures.append(_milliseconds("the publisher's own delay", late, ""))

    async def _noted(self, worker: MeasuredWorker, seconds: float, durations: dict[str, list[float]]) -> Side:
        drain = await _saturation(worker, self.publisher, seconds)

        async def noted() -> float:
            rate = await drain()
            _note(worker, durations)
            return rate

        return noted

    def _durations(self, *kinds: str) -> dict[int, dict[str, list[float]]]:
        return {count: {kind: [] for kind in kinds} for count in self.workers}

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
        return ""


async def run(context: Context, budget: Budget) -> Section:
    """Drain backlogs, then process arrivals at half that rate, with a worker for each partition count."""
    section = Section("worker", "One worker, end to end on Kafka")
    counts = PARTITIONS_SHORT if context.short else PARTITIONS
    async with AsyncExitStack() as stack:
        publisher = await Publisher(context.servers, real_traces()).start(stack)
        workers: dict[int, MeasuredWorker] = {}
        precision = "auto"
        for count in counts:
            workers[count] = await _warm_worker(stack, context, publisher, precision, count)
            precision = workers[count].precision  # the first one's choice applies to all
        forward = await _forward(stack, context, precision)
        section.notes += [f"precision: {precision}", f"{FORWARD}: {forward.description}"]
        runs = _Runs(context, budget, section, publisher, workers, precision)
        rates = await runs.saturated(forward)
        context.say("backlogs drained")
        await runs.open_loop(rates)
    return section


async def _forward(stack: AsyncExitStack, context: Context, precision: str) -> EmbeddingSide:
    side = await EmbeddingSide.start(stack, context.folder, "forward", precision, "full")
    await side.imported()
    await side.prepare()
    return side


async def _warm_worker(
    stack: AsyncExitStack, context: Context, publisher: Publisher, precision: str, partitions: int
) -> MeasuredWorker:
    """Start a worker with all others suspended; suspend it once warm."""
    embedding = {"precision": precision, "device": "cpu"}
    sections = {"embedding": embedding, **SUSPENDABLE}
    worker = await MeasuredWorker.on_new_topics(stack, context, partitions, **sections)
    await worker.drained(publisher, WARM_UP)
    context.say(f"a worker for {partitions} partitions ready")
    return worker


async def _saturation(worker: MeasuredWorker, publisher: Publisher, seconds: float) -> Side:
    """Return a side that drains a backlog for about this many seconds."""
    rate = await worker.drained(publisher, max(2 * WARM_UP, round(GUESS * seconds)))
    count = max(WARM_UP, round(seconds * rate))
    return lambda: worker.drained(publisher, count)


def _note(worker: MeasuredWorker, durations: dict[str, list[float]]) -> None:
    for kind, values in durations.items():
        values.extend(worker.samples(kind)["seconds"])


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _milliseconds(what: str, seconds: list[float], reach: str) -> Figure:
    return Figure(what, "ms", [second * 1000 for second in seconds], "samples", reach)
