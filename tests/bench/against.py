"""Compare the worker of this tree with that of another one, in turns.

Each side is a worker process of its tree with its own topics, and is suspended while it is not its turn. Both
are measured by the same code, that of this tree: :mod:`bench.settled`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.context import Context
from bench.measure import MIN_SAMPLES, Budget, Figure, Section, Side, alternate, poisson_schedule, ratio
from bench.process import SAMPLES
from bench.traces import STREAM_BYTES, of_size
from bench.workers import SUSPENDABLE, MeasuredWorker, Publisher
from knowledgepulse_worker.settings import render_changed
from support.processes import cpu_seconds
from support.streams import TESTS, Worker
from support.traces import real_traces

ROOT = TESTS.parent
HERE, THERE = "this tree", "the other"
PARTITIONS = 4
LEAD = 1.0
"""Seconds between resuming a worker and the first arrival."""
TURN, TURN_SHORT = 26.0, 6.0
"""Seconds of arrivals in a turn."""
QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Load:
    """What a comparison publishes.

    Attributes:
        sections: the workers' settings.
        size: bytes of a record; None for the real traces as they are.
        warm_up: records before the first round.
        backlog: records of a round without pauses.
        rate: arrivals per second; None for half of the other tree's saturated rate.
    """

    sections: Mapping[str, Mapping[str, Any]]
    size: int | None
    warm_up: int
    backlog: int
    rate: float | None


LOADS = {
    "none": Load({"embedding": {"backend": "none"}}, STREAM_BYTES, 500, 12_000, 100.0),
    "lexical": Load({"embedding": {"backend": "lexical"}}, STREAM_BYTES, 500, 6_000, 100.0),
    "model": Load({}, None, 96, 400, None),
}


@dataclass
class _Turns:
    """What the turns of one side measured.

    Attributes:
        cpu: CPU seconds a record, by round.
        rates: transactions per second, by round.
        end_to_end: seconds from scheduled arrival to committed output, by round.
        waits: seconds from score to the begin of the transaction, by round.
    """

    cpu: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    end_to_end: list[Sequence[float]] = field(default_factory=list)
    waits: list[Sequence[float]] = field(default_factory=list)


class TreeWorker(MeasuredWorker):
    """A worker of a tree."""

    tree = ROOT

    @classmethod
    def of(cls, tree: Path) -> type[TreeWorker]:
        """Return the class of a tree's workers."""
        return type("TreeWorker", (cls,), {"tree": tree})

    def run(self) -> AbstractAsyncContextManager[Worker]:
        packages = [TESTS, self.tree / "worker", self.tree / "schemas"]
        return self._stream.worker(
            module="bench.settled",
            environment={SAMPLES: str(self._samples), "PYTHONPATH": os.pathsep.join(map(str, packages))},
            config_of=render_changed,  # the other tree may not know each setting
        )

    def transactions_per_second(self) -> float:
        """Return the transactions per second since the mark."""
        at = self.samples("transaction")["at"]
        return (len(at) - 1) / float(np.ptp(at)) if len(at) > 1 else float("nan")

    def saturated_rate(self) -> float:
        """Return the records per second since the mark, from the end of the first transaction to the last."""
        at = self.samples("end_to_end")["at"]
        later = int((at > at.min()).sum())
        return later / float(np.ptp(at)) if later else float("nan")


async def run(
    name: str, other: Path, rounds: int, rate: float | None, context: Context, budget: Budget
) -> Section:
    """Drain backlogs, then process arrivals at a given rate, with a worker of each tree in turns.

    Args:
        name: the load's name.
        other: the root of the other tree, whose C libraries are compiled.
        rounds: the number of rounds of backlogs; 0 leaves them out.
        rate: arrivals per second; 0 leaves them out, and None stands for the load's own.
        context: the run.
        budget: the time limit.
    """
    load = LOADS[name]
    section = Section(name, f"{name}: this tree compared with {other}")
    async with AsyncExitStack() as stack:
        traces = real_traces()
        if load.size is not None:
            traces = [of_size(trace, load.size) for trace in traces]
        publisher = await Publisher(context.servers, traces).start(stack)
        trees = {HERE: ROOT, THERE: other}
        workers = await start_workers(stack, context, publisher, load, trees, PARTITIONS)
        section.notes += [f"{HERE} is {ROOT}, {THERE} {other}", _precisions(workers)]
        rates = await _saturated(workers, publisher, load, rounds, context, section)
        if rate is None:
            rate = load.rate or 0.5 * statistics.median(rates[THERE])
        if rate:
            await _at_rate(workers, publisher, rate, context, budget, section)
    return section


async def start_workers(
    stack: AsyncExitStack,
    context: Context,
    publisher: Publisher,
    load: Load,
    trees: Mapping[str, Path],
    partitions: int,
) -> dict[str, TreeWorker]:
    """Start a worker of each tree; suspend it once it is warm."""
    workers: dict[str, TreeWorker] = {}
    for side, tree in trees.items():
        worker = await TreeWorker.of(tree).on_new_topics(
            stack, context, partitions, **load.sections, **SUSPENDABLE
        )
        assert isinstance(worker, TreeWorker)
        await worker.drained(publisher, load.warm_up)
        context.say(f"the worker of {tree} is ready")
        workers[side] = worker
    return workers


def _precisions(workers: Mapping[str, TreeWorker]) -> str:
    """Return the precision of both workers.

    Raises:
        AssertionError: they differ, as where the libraries of one tree are not compiled.
    """
    precisions = {worker.precision for worker in workers.values()}
    assert len(precisions) == 1, f"the trees embed in different precisions: {precisions}"
    return f"precision: {precisions.pop()}"


async def _saturated(
    workers: Mapping[str, TreeWorker],
    publisher: Publisher,
    load: Load,
    rounds: int,
    context: Context,
    section: Section,
) -> dict[str, list[float]]:
    """Drain backlogs in turns; return the records per second."""
    count = load.backlog // 3 if context.short else load.backlog
    measured = {side: _Turns() for side in workers}

    def drain(side: str) -> Side:
        async def drained() -> float:
            worker = workers[side]
            rate = await worker.drained(publisher, count)
            measured[side].cpu.append(worker.cpu[-1])
            measured[side].rates.append(worker.transactions_per_second())
            return rate

        return drained

    # One round even where none is wanted, since the rate may follow from it.
    rates = await alternate({side: drain(side) for side in workers}, iter(range(max(1, rounds))))
    context.say("backlogs drained")
    if rounds:
        section.figures += [
            Figure(f"saturated, {side}", "records/s", values) for side, values in rates.items()
        ]
        section.figures.append(ratio("saturated: records/s", rates[HERE], rates[THERE]))
        section.figures += _shared("saturated", measured)
    return rates


async def _at_rate(
    workers: Mapping[str, TreeWorker],
    publisher: Publisher,
    rate: float,
    context: Context,
    budget: Budget,
    section: Section,
) -> None:
    """Process Poisson arrivals in turns, until there are enough samples for a p99 or the time is up."""
    seconds = TURN_SHORT if context.short else TURN
    measured = {side: _Turns() for side in workers}
    needed = int(np.ceil(MIN_SAMPLES / (rate * seconds)))
    for number in budget.rounds(2 if context.short else needed + 1):
        if number >= needed and all(_count(turns) >= MIN_SAMPLES for turns in measured.values()):
            break
        for side in workers if number % 2 == 0 else reversed(workers):
            schedule = poisson_schedule(rate, seconds, seed=number)
            await _turn(workers[side], publisher, schedule, number, measured[side])
    load = f"{rate:.0f}/s"
    for side, turns in measured.items():
        for what, by_round in (
            ("arrival to committed output", turns.end_to_end),
            ("score to transaction", turns.waits),
        ):
            values = [1000 * second for seconds_ in by_round for second in seconds_]
            section.figures.append(Figure(f"{load}, {side}: {what}", "ms", values, "samples"))
    for quantile in QUANTILES:
        here, there = (
            [float(np.quantile(values, quantile)) for values in measured[side].end_to_end]
            for side in (HERE, THERE)
        )
        section.figures.append(ratio(f"{load}: p{quantile * 100:.0f} of a round", here, there))
    if all(_count(turns) >= MIN_SAMPLES for turns in measured.values()):
        here, there = (
            np.quantile(np.concatenate(measured[side].end_to_end), QUANTILES) for side in (HERE, THERE)
        )
        section.figures += [
            ratio(f"{load}: p{quantile * 100:.0f} of all samples", [first], [second])
            for quantile, first, second in zip(QUANTILES, here, there, strict=True)
        ]
    section.figures += _shared(load, measured)


async def _turn(
    worker: TreeWorker, publisher: Publisher, schedule: Sequence[float], seed: int, turns: _Turns
) -> None:
    worker.wake()
    await asyncio.sleep(LEAD)
    worker.mark()
    before = cpu_seconds(worker.pid)
    await publisher.open_loop(worker.settings.topics.raw, worker.partitions, schedule, seed)
    await worker.published(len(schedule))
    turns.cpu.append((cpu_seconds(worker.pid) - before) / len(schedule))
    worker.suspend()
    turns.rates.append(worker.transactions_per_second())
    turns.end_to_end.append(worker.samples("end_to_end")["seconds"])
    turns.waits.append(worker.samples("commit_wait")["seconds"])


def _count(turns: _Turns) -> int:
    return sum(map(len, turns.end_to_end))


def _shared(load: str, measured: Mapping[str, _Turns]) -> list[Figure]:
    """Return the figures of any load: CPU time a record, and transactions a second."""
    figures = []
    for side, turns in measured.items():
        figures += [
            Figure(f"{load}, {side}: CPU time a record", "µs", [1e6 * seconds for seconds in turns.cpu]),
            Figure(f"{load}, {side}: transactions", "1/s", turns.rates),
        ]
    return [*figures, ratio(f"{load}: CPU time a record", measured[HERE].cpu, measured[THERE].cpu)]
