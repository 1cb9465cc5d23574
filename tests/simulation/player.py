"""The course of every history: publish records, cause events, heal all faults and check the result."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import ExitStack
from contextvars import Context
from dataclasses import dataclass, field
from random import Random

from knowledgepulse_kafka.testing.brokers import new_cluster
from simulation.histories import History

LIVENESS = 240.0
"""Virtual seconds from the last fault by which every record must have ended, unless some are deadly."""
AFTERMATH = 5.0
"""Virtual seconds in which brokers react to an event without an end."""


@dataclass
class Outcome:
    """The outcome of a history.

    Attributes:
        violations: the violated invariants; empty if all hold.
        digest: a hash of everything that happened, in order.
    """

    history: History
    violations: list[str]
    digest: str
    steps: int
    records: int
    counts: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)


class Player(ABC):
    """Plays a history.

    Attributes:
        resources: freed after the history.
        calm_since: the end of the last fault, or the end of its effects on the brokers.
        world: the pods and brokers; subclasses set this attribute and the following ones.
        oracles: know which records are finished, and check the result.
        faults: the faults that may happen.
    """

    def __init__(self, history, keep_log=False):
        self.history = history
        self.violations = []
        self.resources = ExitStack()
        self.world = self.oracles = self.faults = None
        self._random = Random(f"play {history.seed}")
        self._loop = asyncio.get_running_loop()
        self._hash = hashlib.sha256()
        self._log = [] if keep_log else None
        self._counts = Counter()
        self._waiting = [event for event in history.events if event.moment]
        self._reached = Counter()
        self._published = 0
        self._faults_end = self.calm_since = 0.0
        self._is_undisturbed = True
        self._is_healed = False
        self._changed = asyncio.Event()
        first_delay = self._random.choice((0.0, 0.0, 0.3, 3.0))
        self.cluster = new_cluster(
            history.seed, first_delay=first_delay, on_change=lambda what: self.log("group", what)
        )
        self.cluster.fetches_by_id = history.seed % 4 != 2
        self.cluster.group.on_commit = self._committing
        self.cluster.on_append = self._appended

    @abstractmethod
    def _publish(self, number, publication):
        """Publish a record of the history."""

    @abstractmethod
    async def _finish(self):
        """End all processes when all records are finished."""

    # --- the course of a history

    async def run(self):
        await self._run()
        return self.outcome()

    def outcome(self):
        return Outcome(
            self.history,
            list(self.violations),
            self._hash.hexdigest()[:16],
            self._loop.steps,
            self._published,
            self._counts,
            self._log or [],
        )

    async def _run(self):
        for number, publication in enumerate(self.history.publications):
            self._loop.call_at(publication.at, self._publish, number, publication)
        for event in self.history.events:
            if not event.moment:
                self._loop.call_at(event.at, self._happen, event)
        for pod in self.world.pods:
            pod.start()
        last = max(
            (publication.at for publication in (*self.history.publications, *self.history.events)),
            default=0.0,
        )
        await self._until(lambda: self._loop.time() > max(last, self._faults_end) and self._idle(), 60.0)
        self._heal()
        limit = self._liveness()
        if not await self._until(self.oracles.all_finished, limit):
            self.violated(f"liveness: {self.oracles.unfinished()} {limit:g} s after the last fault")
            return
        await self._finish()
        self.oracles.check()

    def _liveness(self):
        """Return the virtual seconds from the last fault by which every record must have ended."""
        return LIVENESS

    def _idle(self):
        return not self._waiting or self.oracles.all_finished()

    async def _until(self, condition, limit):
        """Wait for a condition that depends on writes, commits, running processes or the time."""
        end = self._loop.time() + limit + self._faults_end
        while not (met := condition()) and self._loop.time() < end and not self.violations:
            self._changed.clear()
            timer = self._loop.call_later(1.0, self._changed.set)
            await self._changed.wait()
            timer.cancel()
        return met or bool(self.violations)

    async def _stop_all(self):
        for pod in self.world.pods:
            pod.stop()
        if not await self._until(lambda: not any(pod.runs for pod in self.world.pods), 120.0):
            self.violated("liveness: a process did not stop")

    # --- what the parts tell

    def log(self, *what):
        line = f"{self._loop.time():.6f} {self._loop.steps} " + " ".join(map(str, what))
        self._hash.update(line.encode())
        if self._log is not None:
            self._log.append(line)

    def failed(self, what):
        self._counts["failed"] += 1
        if self._is_undisturbed:
            self.violated(f"liveness: a process failed without a fault: {what}")

    def violated(self, what):
        if what not in self.violations and len(self.violations) < 20:
            self.violations.append(what)
            self.log("VIOLATION", what)

    def moment(self, pod, moment):
        number = self.world.pods.index(pod)
        self.log(pod.name, moment)
        self._counts[moment] += 1
        for event in [
            waiting for waiting in self._waiting if waiting.pod == number and waiting.moment == moment
        ]:
            if self._loop.time() < event.at:
                continue
            self._reached[id(event), moment] += 1
            if self._reached[id(event), moment] >= event.count:
                self._waiting.remove(event)
                self._after(event.steps, event)

    def _after(self, steps, event):
        if steps:
            self._loop.call_soon(self._after, steps - 1, event, context=Context())
        else:
            self._loop.call_soon(self._happen, event, context=Context())

    def _appended(self, topic, partition, first, records, writer):
        keys = [f"{'-' if record.value is None else ''}{(record.key or b'').decode()}" for record in records]
        self.log("append", topic.name, partition, first, *keys, "by", writer)
        for record in records:
            self._hash.update(record.value or b"")
        self._changed.set()

    def _committing(self, positions, member):
        self.log(
            "commit", member, *(f"{at[1]}:{position.offset}" for at, position in sorted(positions.items()))
        )
        self._loop.call_soon(self._changed.set)  # once it is committed

    # --- what happens

    def _happen(self, event):
        if self._is_healed:
            return
        self._is_undisturbed = False
        self.cluster.transactions.is_slow = True
        self.log("event", event.kind, event.pod)
        self._counts[event.kind] += 1
        if (undo := self.faults.happen(event)) is not None:
            self._faults_end = max(self._faults_end, self._loop.time() + event.seconds)
            self._loop.call_later(event.seconds, self._end, undo, context=Context())
        self._faults_end = max(self._faults_end, self.faults.hang_until)
        self.calm_since = max(self._faults_end, self._loop.time() + AFTERMATH)

    def _end(self, undo):
        if not self._is_healed:
            undo()

    def _heal(self):
        self._waiting.clear()
        self._is_healed = True
        self.cluster.transactions.is_slow = False
        self.faults.heal()
        self.log("healed")
