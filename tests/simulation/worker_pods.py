"""Pods of workers, which run the worker's own parts on simulated clients."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from zlib import crc32

import numpy as np
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.errors import DeliveryError, TopicError, retrieve_exception
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.testing.clients import SimReader, SimTopicIds
from knowledgepulse_kafka.testing.member import SimMember
from knowledgepulse_kafka.testing.transactional_producer import SimProducer
from knowledgepulse_kafka.throttle import Throttle, Throttles
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.embedding.base import Embeddings
from knowledgepulse_worker.embedding.batcher import Batcher
from knowledgepulse_worker.embedding.letters import letters_of
from knowledgepulse_worker.errors import StalledError
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy, PolicyInForce
from knowledgepulse_worker.process.poison import PoisonSearch
from knowledgepulse_worker.process.quarantine import Quarantine
from knowledgepulse_worker.stream.app import WorkerApp, services_of
from knowledgepulse_worker.stream.checks import CHECK_INTERVAL, repeat
from knowledgepulse_worker.stream.worker import STOP_LIMIT
from simulation.pods import Pod, World
from support.lanes import VECTORS
from support.program import Program

BATCH_BYTES = 2000
"""Bytes of the largest batch with several records, so that a transaction may need more than one."""
DEADLY = "deadly"
METRICS = Metrics(Policy(), 0.1, CollectorRegistry())


class SimEmbedder:
    """Returns unit vectors with exact products; with noise, they differ from call to call like real ones."""

    dimensions = 4
    identity = "simulated"
    precision = "float32"
    device = "cpu"
    parallel = 2
    batch = 2
    description = "simulated"

    def __init__(self, random):
        self._random = random

    def embed(self, texts):
        chosen = [
            self._random.choice(VECTORS) if self._random else VECTORS[crc32(text.encode()) % len(VECTORS)]
            for text in texts
        ]
        return Embeddings(np.array(chosen, dtype=np.float32), 0)


class InlineBatcher(Batcher):
    """The batcher with a timer in place of its threads."""

    def __init__(self, pod, embedder, random):
        super().__init__(embedder)
        self.hangs_until = 0.0
        self._pod = pod
        self._random = random
        self._batches = 0

    def _start(self, loop):
        self._threads = [None]

    def _hand_over(self):
        super()._hand_over()
        self._work_soon()

    def _work_soon(self):
        """Take batches as two threads would; the second batch may be done first."""
        self._admit()
        while self._batches < 2 and self._admitted:
            self._batches += 1
            delay = self._random.choice((0.001, 0.01, 0.05))
            asyncio.get_running_loop().call_later(delay, self._work_once, self._take())

    def _work_once(self, batch):
        loop = asyncio.get_running_loop()
        if loop.time() < self.hangs_until:
            loop.call_at(self.hangs_until, self._work_once, batch)
            return
        self._batches -= 1
        self._pod.note("embedding")
        if deadly := [waiting for waiting in batch if DEADLY in waiting.text]:
            self._pod.die_at(waiting.text for waiting in deadly if not waiting.result.cancelled())
            return
        texts = [waiting.text for waiting in batch]
        outcome = self._embed(texts)
        self._embedding -= len(batch)
        self._resolve(batch, outcome, letters_of(texts[0]), loop.time(), loop.time())
        self._work_soon()


class WorkerPod(Pod):
    """A worker's host.

    Attributes:
        app: the worker of the current process, if it runs.
    """

    def __init__(self, world, number):
        super().__init__(world, number)
        self.app = None
        self.member = None
        self.batcher = None
        limits = world.settings.limits
        self._poison = PoisonSearch(limits.poison_attempts, skip=limits.skip_poison)
        self._assigned_at = 0.0
        self._deaths_at = Counter()

    def note(self, moment):
        super().note(moment)
        if moment == "assigned":
            self._assigned_at = self._loop.time()
            if self._poison.caution().below:
                super().note("isolating")

    def die_at(self, texts):
        """Die while deadly texts are embedded for lanes, none of which may kill too many workers."""
        limit = self._world.settings.limits.poison_attempts
        for text in texts:
            self._deaths_at[text] += 1
            if self._deaths_at[text] > limit:
                self._world.watch.violated(f"poison: {text.rstrip()} killed {limit} workers of {self.name}")
        self.kill("a deadly record")

    def _bury(self, process, reason):
        watch = self._world.watch
        if reason.startswith(StalledError.__name__) and self._assigned_at > watch.calm_since:
            watch.violated(f"liveness: {process.name} stalled, and no fault happened since its assignment")
        self.app = self.member = self.batcher = None
        super()._bury(process, reason)
        self._poison.end(was_killed=reason in {"killed", "a deadly record"})

    def _send(self, process, message):
        """Pass a message to the parent."""
        if not process.is_dead:
            self._poison.read(json.loads(json.dumps(message)))
        return True

    # --- a process

    async def _work(self, process):
        """Work like ``stream.worker`` until the process is stopped or fails."""
        world, settings = self._world, self._world.settings
        process.skew = world.skew
        cluster, kafka, stop = world.cluster, settings.kafka, self._stop
        failed = self._loop.create_future()
        failed.add_done_callback(retrieve_exception)  # the process may be killed before it reads it
        quarantine = Quarantine(
            self._poison.caution(), partial(self._send, process), settings.limits.in_flight_records
        )

        def fail(error):
            if not failed.done():
                world.watch.log("fail", process.name, type(error).__name__)
                quarantine.close(blames_records=not isinstance(error, DeliveryError | TopicError))
                failed.set_exception(error)

        new_producer = partial(
            SimProducer,
            cluster,
            self.name,
            self.note,
            writer=process.name,
            taken=partial(world.watch.taken, self),
        )
        raw, in_force = settings.topics.raw, PolicyInForce(world.policy)
        self.in_force = in_force
        random = Random(f"{world.seed} {process.name}")
        if settings.embedding.backend != "none":
            embedder = SimEmbedder(Random(random.random()) if world.is_noisy else None)
            self.batcher = InlineBatcher(self, embedder, random)
        self.member = SimMember(
            cluster,
            self.name,
            (raw,),
            kafka.session_timeout,
            settings.limits.rebalance,
            self.note,
        )

        def join(rebalances):
            return Session(
                kafka.client_config(),
                [raw],
                self.name,  # the supervisor gives its processes the same id, one after another
                decoded_bytes=settings.limits.batch_bytes,
                batch_bytes=BATCH_BYTES,
                rebalances=rebalances,
                throttles=throttles,
                new_member=lambda *_: self.member,
                new_producer=new_producer,
            )

        throttles = Throttles(Throttle(clock=self._loop.time), Throttle(clock=self._loop.time))
        METRICS._refreshers.clear()
        topics, changelog = world.required_topics(), changelog_topic_name(kafka.group)
        self.app = app = WorkerApp(
            services_of(
                settings,
                topics,
                batcher=self.batcher,
                metrics=METRICS,
                policy=in_force,
                quarantine=quarantine,
                throttles=throttles,
                redact=self._redact(random) if settings.topics.redacted else None,
            ),
            topics[raw],
            topics[changelog],
            join=join,
            topic_ids=SimTopicIds(cluster, self.name, raw),
            reader=lambda: SimReader(cluster, self.name, kafka.request_timeout),
            on_failure=fail,
        )
        program = Program(app, fail)
        await app.source.__aenter__()
        await program.start()
        watching = [asyncio.create_task(repeat(app.checks.check, CHECK_INTERVAL)), *program._tasks]
        for task in watching:
            task.add_done_callback(lambda task: _pass_on(task, fail))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([stopping, failed], return_when=asyncio.FIRST_COMPLETED)
        watching[0].cancel()
        limit = STOP_LIMIT + (settings.limits.drain if stop.is_set() else 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await program.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_LIMIT):
                await app.source.__aexit__()
        quarantine.close()
        if failed.done():
            failed.result()

    @staticmethod
    def _redact(random):
        async def redact(value):
            await asyncio.sleep(random.choice((0.0, 0.5, 1.5)))
            return value

        return redact


def _pass_on(task, fail):
    if not task.cancelled() and (error := task.exception()) is not None:
        fail(error)


@dataclass
class WorkerWorld(World):
    """The world that all workers share.

    Attributes:
        policy: the policy of processes that start now.
        is_noisy: whether a text gets a different vector each time it is embedded.
        skew: the error of the workers' clocks in seconds.
    """

    POD = WorkerPod

    topics: dict[str, Topic]
    policy: Policy
    is_noisy: bool
    skew: float

    def required_topics(self):
        """Return the topics as they are now, after adding partitions to the changelog if raw has more."""
        raw = self.cluster.topics[self.settings.topics.raw]
        self.cluster.add_partitions(changelog_topic_name(self.settings.kafka.group), len(raw.logs))
        counts = {name: len(self.cluster.topics[name].logs) for name in self.topics}
        return {name: replace(topic, partitions=counts[name]) for name, topic in self.topics.items()}
