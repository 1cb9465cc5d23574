"""Section `pacing`: what an output waits for until it is committed, in virtual time.

The worker's own group commit decides when a transaction begins. The rest is played with durations that were
measured on a quiet machine of two cores, which the passes, the transactions and the broker share. So what
else the machine does has no influence.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bench.context import Context
from bench.measure import Budget, Figure, Section, poisson_schedule
from knowledgepulse_kafka.testing.virtual_time import run as run_in_virtual_time
from knowledgepulse_worker.settings import KafkaSettings
from knowledgepulse_worker.stream.group_commit import GroupCommit

CORES = 2
FETCH, TRANSACTION, CONSUMED = 0.002, 0.005, 0.001
"""Seconds until a record is fetched, of a transaction, and until a consumer has its outputs."""
PIECE = 0.001
"""Seconds of work for which the number of those that work is taken as constant."""
LOADS = {"model, 45 traces/s": (45.0, 0.017, 2), "lexical, 100 traces/s": (100.0, 0.0004, 1)}
"""Arrivals a second, seconds of a trace, and the threads that they are computed on."""
SECONDS, SECONDS_SHORT = 240.0, 30.0
PARTS = ("queue", "computing", "until its transaction", "transaction")


@dataclass
class Played:
    """A worker in virtual time; it has what group commit asks the lanes for.

    Attributes:
        waited: the seconds of each part of the way of each output.
    """

    seconds: float
    threads: int
    waited: list[tuple[float, ...]] = field(default_factory=list)
    is_throttled: bool = False
    _queue: deque[float] = field(default_factory=deque)
    _complete: list[tuple[float, float, float]] = field(default_factory=list)
    _scoring: int = 0
    _working: int = 0
    _random: random.Random = field(default_factory=partial(random.Random, 1))

    @property
    def is_scoring(self) -> bool:
        return bool(self._scoring or self._queue)

    @property
    def has_backlog(self) -> bool:
        return bool(self._queue)

    @property
    def has_complete(self) -> bool:
        return bool(self._complete)

    async def play(self, schedule: Sequence[float]) -> None:
        """Process arrivals at given times, until all are committed."""
        kafka = KafkaSettings()
        committing = GroupCommit(
            kafka.commit_interval, kafka.commit_min_interval, lanes=self, commit=self._commit
        )
        self._arrived = asyncio.Event()
        tasks = [asyncio.create_task(committing.run(lambda: True))]
        tasks += [asyncio.create_task(self._thread(committing)) for _ in range(self.threads)]
        loop = asyncio.get_running_loop()
        for at in schedule:
            loop.call_at(at + FETCH * (0.7 + 0.6 * self._random.random()), self._take, at)
        while len(self.waited) < len(schedule):
            await asyncio.sleep(1)
        for task in tasks:
            task.cancel()

    def _take(self, at: float) -> None:
        self._queue.append(at)
        self._arrived.set()

    async def _thread(self, committing: GroupCommit) -> None:
        time = asyncio.get_running_loop().time
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            at, began = self._queue.popleft(), time()
            self._scoring += 1
            await self._work(self.seconds)
            self._scoring -= 1
            self._complete.append((at, began, time()))
            committing.completed()

    async def _commit(self) -> bool:
        time = asyncio.get_running_loop().time
        (batch, self._complete), began = (self._complete, []), time()
        if batch:
            await self._work(TRANSACTION * math.exp(self._random.gauss(0, 0.22)))
        end = time() + CONSUMED
        self.waited += [
            (start - at, scored - start, began - scored, end - began) for at, start, scored in batch
        ]
        return bool(batch)

    async def _work(self, seconds: float) -> None:
        self._working += 1
        while seconds > 0:
            await asyncio.sleep(min(PIECE, seconds) * max(1.0, self._working / CORES))
            seconds -= PIECE
        self._working -= 1


async def run(context: Context, budget: Budget) -> Section:
    """Play each load."""
    section = Section(
        "pacing", f"Arrival to committed output in virtual time, transactions of {1000 * TRANSACTION:g} ms"
    )
    duration = SECONDS_SHORT if context.short else SECONDS
    for name, (rate, seconds, threads) in LOADS.items():
        played, schedule = Played(seconds, threads), poisson_schedule(rate, duration, 1)
        await asyncio.to_thread(run_in_virtual_time, partial(played.play, schedule), limit=10**8)
        waited = 1000 * np.array(played.waited)
        totals = waited.sum(axis=1)
        section.figures.append(Figure(name, "ms", totals.tolist(), "samples"))
        for what, (low, high) in {"half": (0.45, 0.55), "the slowest hundredth": (0.99, 1.0)}.items():
            least, most = np.quantile(totals, (low, high))
            means = waited[(totals >= least) & (totals <= most)].mean(axis=0)
            section.figures += [
                Figure(f"{name}, {what}: {part}", "ms", [mean])
                for part, mean in zip(PARTS, means, strict=True)
            ]
    return section
