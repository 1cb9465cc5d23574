"""The environment of a running row: topics, workers under load, and faults timed to hit them."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.brokers import SESSION_TIMEOUT, Brokers
from chaos.clock import Clock
from chaos.embedder import Order, Orders
from chaos.fleet import Fleet
from chaos.load import Load, Make, TransactionalLoad, traces
from chaos.proxy import Proxy, running_proxy
from chaos.witness import Witness
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.settings import Settings
from support.streams import Stream, Worker, own_settings
from support.traces import real_traces

if TYPE_CHECKING:
    from chaos.rows import Row

PARTITIONS = 4
RING = 50
"""`max_elements`: small, so that the ring wraps within a run."""
WRAPS = 3
IN_FLIGHT = 24
BACKLOG = WRAPS * RING * PARTITIONS
"""Number of records without an output at which the load drops to a tenth.

On a busy machine, the backlog would otherwise grow as long as the row lasts, and prolong it.
"""
EMBEDDING = 0.002
"""Seconds per text: one worker has capacity for four times the load."""

LIMIT = 180.0
"""Default limit of all waits, in seconds."""

_POLL_INTERVAL = 0.1
"""Seconds between two checks of a condition, for which most conditions request a page of each worker."""

Say = Callable[[str], None]


@dataclass
class Trial:
    """The environment of a row.

    Attributes:
        make: creates the raw records of the load.
        hits: number of records in flight at each fault.
        resumes: seconds from the end of each fault until each partition had an output again.
        notes: further figures of the run.
        tasks: the tasks of load and witness.
    """

    stream: Stream
    fleet: Fleet
    load: Load
    make: Make
    witness: Witness
    orders: Orders
    brokers: Brokers
    proxies: Sequence[Proxy]
    say: Say
    hits: list[int] = field(default_factory=list)
    resumes: list[float] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def shared(self) -> None:
        """Wait until each worker owns a share of the partitions, and outputs arrive."""
        await self.until(self._all_owned, "the partitions are not all assigned")
        await self.witness.expect()
        await self.until(lambda: self.witness.resumed is not None, "there are no outputs")

    async def _all_owned(self) -> bool:
        owned = await self.fleet.owned()
        return sum(owned) == PARTITIONS and min(owned) > 0

    async def a_while(self, shortest: float = 0.2, longest: float = 2.0) -> None:
        """Sleep for a random time."""
        await asyncio.sleep(random.uniform(shortest, longest))

    @asynccontextmanager
    async def fault(self, victim: Worker | None = None) -> AsyncIterator[None]:
        """Wait for records in flight, half the time blocked in embedding; then measure the recovery.

        Args:
            victim: the worker that must have records in flight; any worker by default.
        """
        if random.random() < 0.5:
            self.orders.block(seconds=1.0)
        hits: list[int] = []

        async def hit() -> bool:
            hits[:] = [await self.fleet.in_flight(victim)]
            return hits[0] > 0

        await self.until(hit, "no record is in flight")
        self.hits += hits
        yield
        await self.resumed()

    async def resumed(self) -> None:
        """Wait until each partition has an output again, and record the time from now."""
        ended = time.monotonic()
        await self.witness.expect()
        await self.until(lambda: self.witness.resumed is not None, "outputs have not resumed")
        assert self.witness.resumed is not None
        self.resumes.append(self.witness.resumed - ended)
        self.say(f"{len(self.resumes)}: resumed in {self.resumes[-1]:.1f} s, {self.hits[-1]} in flight")

    async def wrapped(self) -> None:
        """Wait until the ring has wrapped often enough."""
        least = WRAPS * RING * PARTITIONS
        await self.until(lambda: self.load.sent >= least, "the ring has not wrapped")

    async def settled(self, patience: float) -> None:
        """Stop the load, and wait until all records have outputs or no more arrive.

        Args:
            patience: seconds without any record after which records count as missing.
        """
        await self.paused()
        await self.until(
            lambda: not self.witness.missing or time.monotonic() - self.witness.last_seen > patience,
            "some records still have no output",
        )

    async def paused(self) -> None:
        """Pause the load, and wait until the witness has seen all published records."""
        self.load.pause()
        await self.until(
            lambda: self.load.idle and len(self.witness.raw) >= self.load.sent,
            "the raw topic was not read to its end",
        )

    async def until(
        self, condition: Callable[[], bool | Awaitable[bool]], otherwise: str, limit: float = LIMIT
    ) -> None:
        """Wait for a condition while workers, load and witness are running."""
        deadline = time.monotonic() + limit
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            self.fleet.check()
            for task in self.tasks:
                if task.done():
                    task.result()
            assert time.monotonic() < deadline, f"after {limit:g} s {otherwise}\n{self.fleet.logs()}"
            await asyncio.sleep(_POLL_INTERVAL)


@asynccontextmanager
async def running_trial(row: Row, brokers: Brokers, folder: Path, say: Say) -> AsyncIterator[Trial]:
    """Yield a row's trial with its own topics, under load but without workers."""
    settings = _settings(brokers.direct)
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        await admin.create_missing(PARTITIONS, replication_factor=-1)
    async with AsyncExitStack() as stack:
        orders = Orders(folder / "orders.json", Order(seconds=EMBEDDING, noise=row.noise))
        stream = Stream(settings, folder)
        for role, config in row.topics.items():
            await stream.configure_topic(getattr(settings.topics, role), dict(config))
        proxies = []
        effective = settings
        if row.proxied:
            for node in brokers.nodes:
                proxies += [await stack.enter_async_context(running_proxy(node.proxied, node.behind_proxy))]
            effective = stream.configured(kafka={"bootstrap_servers": brokers.proxied} | brokers.login)
        sources = None if row.release is None else await asyncio.to_thread(_sources_of, row.release, folder)
        clock = Clock(folder / "clock") if row.clocks else None
        fleet = Fleet(stream, effective, stack, orders.path, row.without, sources, clock)
        make = traces(real_traces(), row.malformed_every)
        witness = Witness(brokers.direct, settings.topics, PARTITIONS, settings.limits.batch_bytes)

        def rate() -> float:
            is_behind = len(witness.raw) - len(witness.outputs) >= BACKLOG
            return row.rate / 10 if is_behind or len(witness.raw) >= row.most else row.rate

        new_load = TransactionalLoad if row.transactional else Load
        load = new_load(brokers.direct, settings.topics.raw, PARTITIONS, rate, make)
        trial = Trial(stream, fleet, load, make, witness, orders, brokers, proxies, say)
        async with _tasks([load.run(), witness.run()]) as trial.tasks:
            yield trial


def _sources_of(revision: str, folder: Path) -> Path:
    """Return a new folder with the sources of a git revision."""
    archive, sources = folder / "release.tar", folder / "release"
    git = ["git", "archive", f"--output={archive}", revision]
    subprocess.run(git, check=True)
    shutil.unpack_archive(archive, sources, filter="data")
    return sources


@asynccontextmanager
async def _tasks(coroutines: Iterable[Any]) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _settings(bootstrap_servers: str) -> Settings:
    usual = {
        "kafka": {"session_timeout": SESSION_TIMEOUT},
        "embedding": {"backend": "lexical"},
        "cache": {"max_elements": RING},
        "limits": {"in_flight_records": IN_FLIGHT},
        "policy": {"threshold": 0.4},
    }
    return own_settings(bootstrap_servers, "chaos", usual)
