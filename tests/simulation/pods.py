"""Pods: hosts on which processes run and are restarted."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from aiokafka.errors import KafkaError

from knowledgepulse_kafka.testing.brokers import Cluster
from knowledgepulse_kafka.testing.virtual_time import Process
from knowledgepulse_worker.errors import EXPECTED, StalledError
from knowledgepulse_worker.settings import Settings

if TYPE_CHECKING:
    from simulation.player import Player


@dataclass
class World:
    """The world that all pods share.

    Attributes:
        watch: called with the events of each pod.
    """

    POD: ClassVar[type[Pod]]

    cluster: Cluster
    settings: Settings
    seed: int
    watch: Player
    pods: list[Pod] = field(default_factory=list, init=False)

    def add_pod(self):
        """Add a pod without starting it."""
        self.pods.append(self.POD(self, len(self.pods)))
        return self.pods[-1]


class Pod(ABC):
    """A host and its supervisor.

    Attributes:
        deaths: the reasons for which its processes have ended.
    """

    def __init__(self, world, number):
        self.name = f"pod-{number}"
        self.deaths = []
        self.is_wanted = False
        self.process = None
        self._world = world
        self._loop = world.cluster.loop
        self._lives = 0
        self._pause = 1.0
        self._stop = None

    @abstractmethod
    async def _work(self, process):
        """Run a process until it is stopped or fails."""

    def note(self, moment):
        self._world.watch.moment(self, moment)

    @property
    def runs(self):
        return self.process is not None and not self.process.is_dead

    # --- what happens to it

    def start(self):
        """Start a process, and start a new one whenever it fails."""
        self.is_wanted = True
        if not self.runs:
            self._launch()

    def _launch(self):
        if self.runs or not self.is_wanted:
            return
        self._lives += 1
        self._started = self._loop.time()
        self.process = Process(f"{self.name}/{self._lives}")
        self._stop = asyncio.Event()
        self._world.watch.log("start", self.process.name)
        process = self.process
        task = process.start(self._work(process))
        task.add_done_callback(lambda task: self._ended(process, task), context=Context())

    def kill(self, reason="killed"):
        """Kill the process, which then neither runs nor sends anything."""
        if self.runs:
            self._bury(self.process, reason)

    def stop(self):
        """Stop the process gracefully, as an orchestrator does."""
        self.is_wanted = False
        if self._stop is not None and self.runs:
            self.resume()
            self._stop.set()

    def suspend(self):
        if self.runs:
            self.process.suspend()
            self._world.watch.log("suspend", self.process.name)

    def resume(self):
        if self.runs and self.process.is_suspended:
            self._world.watch.log("resume", self.process.name)
            self.process.resume()

    def _ended(self, process, task):
        if process.is_dead:
            return
        error = StalledError("cancelled as it ended") if task.cancelled() else task.exception()
        self._bury(process, "stopped" if error is None else f"{type(error).__name__}: {error}")
        if error is not None and not _is_expected(error):
            self._world.watch.violated(f"{process.name} ended with an unexpected error: {error!r}")

    def _bury(self, process, reason):
        process.is_dead = True
        self.deaths.append(reason)
        if reason not in {"stopped", "killed", "a deadly record"}:
            self._world.watch.failed(f"{process.name}: {reason}")
        self._world.watch.log("end", process.name, reason)
        if self._loop.time() - self._started > 10:
            self._pause = 1.0
        self._loop.call_later(self._pause, self._launch, context=Context())
        self._pause = min(2 * self._pause, 8.0)


def _is_expected(error):
    """Return whether the worker may end with this error, because it reports a problem of Kafka's."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_expected, error.exceptions))
    return isinstance(error, (*EXPECTED, KafkaError))
