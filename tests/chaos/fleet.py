"""The workers of a row: `kp-worker run` processes, each with a child process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path

import aiohttp
import tomli_w

from chaos.brokers import fill_disk, free_disk
from chaos.clock import Clock
from chaos.process import HELD, HOLD, ORDERS, RELEASE, WITHOUT
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import Settings, render
from support import metrics_page as page
from support.processes import peak_rss, send, tree
from support.streams import Stream, Worker

START_LIMIT = 180.0
HOLD_LIMIT = 180.0
"""Seconds until a worker commits its next transaction."""


class Fleet:
    """Start workers, and inject process faults.

    Args:
        stream: the workers' topics.
        settings: the workers' settings.
        stack: kills the workers on exit.
        orders: file with the orders of their embedders.
        without: the mechanism to switch off in the workers.
        release: folder with the sources of the workers' release; by default, they run this release.
        clock: the workers' wall clock; by default, the machine's.

    Attributes:
        is_upgraded: whether workers that are started run this release even if the fleet runs another.
    """

    def __init__(
        self,
        stream: Stream,
        settings: Settings,
        stack: AsyncExitStack,
        orders: Path,
        without: str = "",
        release: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.workers: list[Worker] = []
        self._started: list[Worker] = []
        self._stream = stream
        self._settings = settings
        self._stack = stack
        self.clock = clock
        self._environment = {ORDERS: str(orders), WITHOUT: without} | (clock.environment if clock else {})
        self._release = release
        self.is_upgraded = False

    async def start(self, count: int = 1) -> None:
        """Start a number of workers."""
        for _ in range(count):
            worker = self._worker(None if self.is_upgraded else self._release)
            self.workers.append(await self._stack.enter_async_context(worker))
            self._started.append(self.workers[-1])

    def _worker(self, release: Path | None) -> AbstractAsyncContextManager[Worker]:
        environment, config_of = self._environment, render
        if release is not None:
            path = os.pathsep.join(str(release / name) for name in ("worker", "schemas", "tests"))
            environment = environment | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
            config_of = _without_defaults
        return self._stream.worker(self._settings, "chaos.process", environment, config_of=config_of)

    async def stop(self, worker: Worker) -> None:
        """Stop a worker gracefully, in the same way as an orchestrator, once it has started."""
        async with asyncio.timeout(START_LIMIT):
            while not await _page(worker):
                await asyncio.sleep(0.1)
        self.workers.remove(worker)
        status = await worker.stop()
        assert status == 0, f"the worker ended with status {status}:\n{worker.log()[-10_000:]}"

    async def kill(self, worker: Worker) -> None:
        """Kill parent and child at once, as in a power failure."""
        self.workers.remove(worker)
        send(tree(worker.process.pid), signal.SIGKILL)
        await worker.process.wait()

    def signal_child(self, worker: Worker, number: signal.Signals) -> None:
        """Send a signal to a worker's child."""
        _, *children = tree(worker.process.pid)
        assert children, "the worker has no child now"
        send(children, number)

    async def hold(self, worker: Worker, place: str) -> None:
        """Hold a worker's next transaction open at a place of :data:`~chaos.process.HOLD`."""
        before = worker.log().count(HELD)
        self.signal_child(worker, HOLD[place])
        async with asyncio.timeout(HOLD_LIMIT):
            while worker.log().count(HELD) == before:
                await asyncio.sleep(0.01)

    def release(self, worker: Worker) -> None:
        """Let a worker's transaction go on."""
        self.signal_child(worker, RELEASE)

    def fill_disk(self, worker: Worker) -> None:
        """Keep all of the worker's files from growing, including its log."""
        for process in tree(worker.process.pid):
            fill_disk(process.pid)

    def free_disk(self, worker: Worker) -> None:
        for process in tree(worker.process.pid):
            free_disk(process.pid)

    def restarts(self) -> int:
        """Return how often a worker's child was restarted."""
        return sum(worker.log().count("starting it again in") for worker in self._started)

    def resident(self, worker: Worker) -> int:
        """Return the resident memory of a worker's processes in bytes, with what others share."""
        return sum(process.memory_info().rss for process in tree(worker.process.pid))

    def descriptors(self, worker: Worker) -> tuple[int, int]:
        """Return the number of a worker's descriptors beside its connections, and of those to one broker.

        Of the brokers, it is the one with most: how many there are depends on which ones lead partitions now.
        """
        processes = tree(worker.process.pid)
        found = [each for process in processes for each in process.net_connections("inet") if each.raddr]
        to_brokers = Counter(each.raddr for each in found)
        others = sum(process.num_fds() for process in processes) - len(found)
        return others, max(to_brokers.values(), default=0)

    def peak_memory(self) -> int:
        """Return the highest peak memory of the running processes in bytes."""
        return max(peak_rss(process.pid) for worker in self.workers for process in tree(worker.process.pid))

    async def owned(self) -> list[int]:
        """Return the number of partitions that each worker owns."""
        return [int(value) for value in await self._values("kp_partitions", self.workers, state="owned")]

    async def in_flight(self, worker: Worker | None = None) -> int:
        """Return the number of records in flight, in one worker or in all."""
        return int(sum(await self._values("kp_in_flight_records", [worker] if worker else self.workers)))

    def check(self) -> None:
        """Raise an error if a worker has exited unexpectedly."""
        for worker in self.workers:
            assert worker.process.returncode is None, f"a worker ended:\n{worker.log()[-10_000:]}"

    def logs(self) -> str:
        """Return the end of each worker's log."""
        return "\n".join(f"--- worker {w.process.pid}\n{w.log()[-6_000:]}" for w in self.workers)

    def change_policy(self, policy: Policy) -> None:
        """Write a policy into the settings of all workers, including workers that start later."""
        self._settings = self._settings.model_copy(update={"policy": policy})
        for worker in self.workers:
            changed = worker.config.with_suffix(".new")
            changed.write_text(render(worker.settings.model_copy(update={"policy": policy})))
            changed.replace(worker.config)

    async def follow(self, policy: Policy) -> bool:
        """Return whether all workers score under this policy."""
        return all(await self._values("kp_policy_info", self.workers, policy=policy.digest))

    async def _values(self, name: str, workers: Iterable[Worker], **labels: str) -> list[float]:
        pages = await asyncio.gather(*map(_page, workers))
        return [page.value(text, name, **labels) for text in pages]


async def _page(worker: Worker) -> str:
    """Return a worker's metrics page, or an empty text if it is not served."""
    with suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
        async with asyncio.timeout(5):
            status, text = await worker.get("/metrics")
            return text if status == 200 else ""
    return ""


def _without_defaults(settings: Settings) -> str:
    """Return only the settings that differ from the defaults; another release may not know the others."""
    return tomli_w.dumps(settings.model_dump(mode="json", exclude_defaults=True, exclude_none=True))
