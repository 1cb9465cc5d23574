"""Play histories of workers, and run an undisturbed worker at the end."""

from __future__ import annotations

import asyncio
from functools import cache
from operator import attrgetter
from random import Random
from unittest.mock import patch
from uuid import UUID

from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.testing.brokers import SimTopic
from knowledgepulse_kafka.testing.virtual_time import EPOCH
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_schemas.trace import ENDINGS
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.lane import commit
from knowledgepulse_worker.settings import Settings
from simulation.faults import Faults
from simulation.histories import Publication
from simulation.oracles import Oracles
from simulation.player import LIVENESS, Player
from simulation.policies import policy_of
from simulation.worker_pods import BATCH_BYTES, DEADLY, WorkerWorld
from support.lanes import trace_of

TAIL = 3
"""Records per partition that a last, undisturbed worker scores by what its predecessors left."""
LARGE_TRACE = 800
"""The bytes by which every fourth trace is larger, so that a topic may refuse it and accept the others."""
AGENTS = "a", "b", None
"""The agents of the traces, in turn."""


DEADLY_LIVENESS = 60.0
"""Virtual seconds in which a record kills enough processes, after each of which the group rebalances."""


class WorkerPlayer(Player):
    """Plays a history of workers."""

    def __init__(self, history, keep_log=False, settings=None):
        super().__init__(history, keep_log)
        self.resources.enter_context(patch.object(commit, "THROTTLED_BYTES", BATCH_BYTES))
        self.settings = settings or _settings(*_CONFIGURED(history.setting))
        self._create_topics()
        self.world = WorkerWorld(
            self.cluster,
            self.settings,
            history.seed,
            self,
            {
                name: Topic(
                    name,
                    history.setting.partitions,
                    topic.max_bytes if history.setting.knows_limits else 10**6,
                    "compact" if history.setting.knows_limits and topic.is_compacted else None,
                )
                for name, topic in self.cluster.topics.items()
            },
            policy_of(Random(history.seed).random()),
            history.setting.is_noisy,
            history.setting.skew,
        )
        self.oracles = Oracles(history, self.world, self.violated)
        self.cluster.transactions.on_rest = self.oracles.check_commits
        self.faults = Faults(self.world, self.settings.topics.raw, self.oracles, self.changelog)
        for _ in range(history.setting.pods):
            self.world.add_pod()

    def _liveness(self):
        return LIVENESS + DEADLY_LIVENESS * sum(
            publication.kind == DEADLY for publication in self.history.publications
        )

    async def _finish(self):
        """End all workers; a last worker then scores a few more records from the state that they left."""
        await self._stop_all()
        self._is_undisturbed = True
        last = self.world.add_pod()
        for number in range(TAIL * self.history.setting.partitions):
            partition = number % self.history.setting.partitions
            publication = Publication(partition, 0.0, "trace", 0.6, gap=0 if number > partition else 1000)
            self._loop.call_later(0.05 * number, self._publish, 100_000 + number, publication)
        last.start()
        await asyncio.sleep(0.05 * TAIL * self.history.setting.partitions)
        if not await self._until(self.oracles.all_finished, LIVENESS):
            self.violated(f"liveness: {self.oracles.unfinished()}, with an undisturbed worker")
        last.stop()
        if not await self._until(lambda: not last.runs, 60.0):
            self.violated("liveness: an undisturbed worker did not stop")
        if not await self._until(lambda: self.cluster.transactions.have_ended, LIVENESS):
            self.violated("liveness: a transaction did not end")

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
            topic.is_compacted = setting.compacts and name in {topics.contribute, *topics.copies}
            self.cluster.create(topic)
        self.changelog = changelog
        self.cluster.create(SimTopic.new(topics.raw, setting.partitions, UUID(int=1).bytes))

    def _publish(self, number, publication):
        value = None if publication.kind == "empty" else b"no trace %d" % number
        if publication.kind in {"trace", DEADLY}:
            value = _trace(number, publication.kind, publication.confidence)
        logs = self.cluster.topics[self.settings.topics.raw].logs
        is_moved = len(logs) > self.history.setting.partitions and number % 2
        partition = len(logs) - 1 if is_moved else publication.partition
        log = logs[partition]
        if publication.gap:
            log.skip(publication.gap)
        at = int((EPOCH + self._loop.time()) * 1000) - publication.age * 1000
        headers = (("h", None), ("number", b"%d" % number))
        key = None if self.history.setting.compacts and number % 3 == 0 else b"%d" % number
        record = OutputRecord("", partition, at, key, value, headers)
        self.log("publish", partition, log.append([record], at))
        self._published += 1

    # --- what the parts tell

    def taken(self, pod):
        self.oracles.check_bounds(pod)


@cache
def _trace(number, kind, confidence):
    objective = f"{kind} {number}".ljust(LARGE_TRACE if number % 4 == 1 else 0)
    return trace_of(number, objective, confidence, AGENTS[number % 3], ending=ENDINGS[number % 4])


_CONFIGURED = attrgetter("max_elements", "ttl", "in_flight", "interval", "embeds", "redacts")


@cache
def _settings(max_elements, ttl, in_flight, interval, embeds, redacts):
    return Settings(
        kafka={
            "session_timeout": 6,
            "request_timeout": 15,
            "commit_interval": interval,
            "commit_min_interval": interval / 10,
        },
        embedding={"backend": "lexical" if embeds else "none"},
        cache={"max_elements": max_elements, "dimensions": 4, "ttl": ttl},
        limits={
            "in_flight_records": in_flight,
            "stall": 12,
            "drain": 2.9,
        },
        topics={"redacted": "redacted"} if redacts else {},
        redaction={"function": "support.redact:same"} if redacts else {},
    )
