"""Play a history: publish, let things happen, heal everything, and let the oracles look at what is left."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from contextvars import Context
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from random import Random
from uuid import UUID

from knowledgepulse_worker.kafka.topics import Topic, changelog_topic_name
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.record import OutputRecord
from knowledgepulse_worker.settings import Settings
from simulation import loop as virtual
from simulation.brokers import SimTopic, new_cluster
from simulation.faults import Faults
from simulation.histories import History, Publication
from simulation.loop import EPOCH, NothingLeftError, simulated_process
from simulation.oracles import Oracles
from simulation.pods import DEADLY, World
from support.lanes import trace_of

LIVENESS = 240.0
"""Virtual seconds from the last fault by which every record must have ended."""
TAIL = 3
"""Records per partition that a last, undisturbed worker scores by what its predecessors left."""


@dataclass
class Outcome:
    """What came of a history.

    Attributes:
        violations: what must not have been; empty if all is well.
        digest: a hash of all that happened, in order.
    """

    history: History
    violations: list[str]
    digest: str
    steps: int
    records: int
    counts: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)


def play(history, *, keep_log=False):
    """Play a history from its beginning to its end."""
    players = []

    async def course():
        players.append(Player(history, keep_log))
        return await players[0].run()

    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with simulated_process():
            return virtual.run(course)
    except NothingLeftError as error:
        players[0].violated(f"liveness: {error}")
        return players[0].outcome()
    finally:
        logging.disable(disabled)
        for pod in players[0].world.pods:
            pod.close()


class Player:
    def __init__(self, history, keep_log=False, settings=None):
        self.history = history
        self._random = Random(f"play {history.seed}")
        self._loop = asyncio.get_running_loop()
        self._hash = hashlib.sha256()
        self._log = [] if keep_log else None
        self._counts = Counter()
        self._waiting = [one for one in history.events if one.moment]
        self._reached = Counter()
        self._published = 0
        self._faults_end = 0.0
        self._is_undisturbed = True
        self._is_healed = False
        self._changed = asyncio.Event()
        self.settings = settings or _settings(*_CONFIGURED(history.setting))
        first_delay = self._random.choice((0.0, 0.0, 0.3, 3.0))
        self.cluster = new_cluster(
            history.seed, first_delay=first_delay, on_change=lambda what: self.log("group", what)
        )
        self._create_topics()
        self.world = World(
            self.cluster,
            self.settings,
            {name: Topic(name, history.setting.partitions, 10**6) for name in self.cluster.topics},
            Policy(threshold=0.4),
            history.seed,
            history.setting.is_noisy,
            self,
        )
        self.oracles = Oracles(history, self.world, self.violated)
        self._faults = Faults(history, self.world, self.oracles, self.changelog)
        self.cluster.group.on_commit = self._committing
        self.cluster.on_append = self._appended
        for _ in range(history.setting.pods):
            self.world.add_pod()
        self.violations = []

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
        for number, one in enumerate(self.history.publications):
            self._loop.call_at(one.at, self._publish, number, one)
        for event in self.history.events:
            if not event.moment:
                self._loop.call_at(event.at, self._happen, event)
        for pod in self.world.pods:
            pod.start()
        last = max((one.at for one in (*self.history.publications, *self.history.events)), default=0.0)
        await self._until(lambda: self._loop.time() > max(last, self._faults_end) and self._idle(), 60.0)
        self._heal()
        if not await self._until(self.oracles.all_finished, LIVENESS):
            self.violated(f"liveness: {self.oracles.unfinished()} {LIVENESS:g} s after the last fault")
            return
        await self._finish()
        self.oracles.check()

    def _idle(self):
        return not self._waiting or self.oracles.all_finished()

    async def _until(self, condition, limit):
        """Wait for a condition of what is written, committed or running, and of the time."""
        end = self._loop.time() + limit + self._faults_end
        while not (met := condition()) and self._loop.time() < end and not self.violations:
            self._changed.clear()
            timer = self._loop.call_later(1.0, self._changed.set)
            await self._changed.wait()
            timer.cancel()
        return met or bool(self.violations)

    async def _finish(self):
        """End all workers; a last one scores a few records more by what they left."""
        for pod in self.world.pods:
            pod.stop()
        if not await self._until(lambda: not any(pod.runs for pod in self.world.pods), 120.0):
            self.violated("liveness: a worker did not stop")
        self._is_undisturbed = True
        last = self.world.add_pod()
        for number in range(TAIL * self.history.setting.partitions):
            partition = number % self.history.setting.partitions
            one = Publication(partition, 0.0, "trace", 0.6, gap=0 if number > partition else 1000)
            self._loop.call_later(0.05 * number, self._publish, 100_000 + number, one)
        last.start()
        await asyncio.sleep(0.05 * TAIL * self.history.setting.partitions)
        if not await self._until(self.oracles.all_published, LIVENESS):
            self.violated("liveness: records without outputs, with an undisturbed worker")
        last.stop()
        if not await self._until(lambda: not last.runs, 60.0):
            self.violated("liveness: an undisturbed worker did not stop")
        # Redacted copies may take longer than an orderly stop waits for them.
        if not self.history.setting.redacts and not self.oracles.all_finished():
            self.violated(f"liveness: {self.oracles.unfinished()} after an orderly stop")

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

    # --- topics and records

    def _create_topics(self):
        setting, topics = self.history.setting, self.settings.topics
        changelog = changelog_topic_name(self.settings.kafka.group)
        names = [topics.contribute, topics.rejected, topics.dead_letter, changelog, *topics.copies]
        limits = {changelog if name == "changelog" else name: size for name, size in setting.small}
        for name in names:
            topic = SimTopic.new(name, setting.partitions, max_bytes=limits.get(name, 10**6))
            if setting.max_age and name == topics.rejected:
                topic.max_age_ms = 4000
            self.cluster.create(topic)
        self.changelog = changelog
        self.cluster.create(SimTopic.new(topics.raw, setting.partitions, UUID(int=1).bytes))

    def _publish(self, number, one):
        value = None if one.kind == "empty" else b"no trace %d" % number
        if one.kind in {"trace", DEADLY}:
            value = _trace(number, one.kind, one.confidence)
        log = self.cluster.topics[self.settings.topics.raw].logs[one.partition]
        if one.gap:
            log.skip(one.gap)
        at = int((EPOCH + self._loop.time()) * 1000) - one.age * 1000
        headers = (("h", None), ("number", b"%d" % number))
        record = OutputRecord("", one.partition, at, b"%d" % number, value, headers)
        self.log("publish", one.partition, log.append([record], at))
        self._published += 1

    # --- what the parts tell

    def moment(self, pod, moment):
        number = self.world.pods.index(pod)
        self.log(pod.name, moment)
        self._counts[moment] += 1
        for event in [one for one in self._waiting if one.pod == number and one.moment == moment]:
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

    def taken(self, pod, record):
        self.oracles.taken(pod, record)
        self.moment(pod, "entry taken" if record.topic == self.changelog else "output taken")

    def _appended(self, topic, partition, first, records, writer):
        keys = [f"{'-' if one.value is None else ''}{(one.key or b'').decode()}" for one in records]
        self.log("append", topic.name, partition, first, *keys, "by", writer)
        for one in records:
            self._hash.update(one.value or b"")
        self.oracles.appended(topic.name, partition, records, writer)
        self._changed.set()
        pod = next((pod for pod in self.world.pods if pod.runs and pod.process.name == writer), None)
        if pod is not None:
            self.moment(pod, "entry written" if topic.name == self.changelog else "output written")

    def _committing(self, positions, member):
        self.log("commit", member, *(f"{at[1]}:{one.offset}" for at, one in sorted(positions.items())))
        self.oracles.committing(positions)
        self._loop.call_soon(self._changed.set)  # once it is committed

    # --- what happens

    def _happen(self, event):
        if self._is_healed:
            return
        self._is_undisturbed = False
        self.log("event", event.kind, event.pod)
        self._counts[event.kind] += 1
        if (undo := self._faults.happen(event)) is not None:
            self._faults_end = max(self._faults_end, self._loop.time() + event.seconds)
            self._loop.call_later(event.seconds, self._end, undo, context=Context())
        self._faults_end = max(self._faults_end, self._faults.hang_until)

    def _end(self, undo):
        if not self._is_healed:
            undo()

    def _heal(self):
        self._waiting.clear()
        self._is_healed = True
        self._faults.heal()
        self.log("healed")


@cache
def _trace(number, kind, confidence):
    return trace_of(number, f"{kind} {number}", confidence)


_CONFIGURED = attrgetter("window", "max_elements", "ttl", "in_flight", "embeds", "redacts")


@cache
def _settings(window, max_elements, ttl, in_flight, embeds, redacts):
    return Settings(
        kafka={"session_timeout": 6, "request_timeout": 15},
        embedding={"backend": "lexical" if embeds else "none"},
        cache={"max_elements": max_elements, "dimensions": 4, "ttl": ttl},
        limits={
            "uncommitted_records": window,
            "in_flight_records": in_flight,
            "stall": 12,
            "drain": 2.9,
        },
        topics={"redacted": "redacted"} if redacts else {},
        redaction={"function": "support.redact:same"} if redacts else {},
    )
