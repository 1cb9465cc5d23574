"""Evaluations: scored records, and the events that are sent for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random

from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.testing.brokers import SimTopic
from knowledgepulse_kafka.testing.member import SimMember
from knowledgepulse_kafka.testing.transactional_producer import SimProducer
from knowledgepulse_kafka.testing.virtual_time import EPOCH
from knowledgepulse_schemas import ReasoningTrace, SpanContext
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics
from knowledgepulse_worker.tools.evaluations.run_evaluations import (
    Evaluations,
    evaluation_topics,
    evaluations_group,
    send_scores,
)
from simulation.assemblers import KINDS, MOMENTS, replaced
from simulation.faults import Faults
from simulation.histories import History, event
from simulation.pods import Pod, World
from simulation.transactional_player import TransactionalPlayer
from support.lanes import trace_of
from support.scored import published

METRICS = EvaluationMetrics(CollectorRegistry())
SETTINGS = Settings(kafka={"session_timeout": 6, "request_timeout": 15})
SOURCES = (SETTINGS.topics.contribute, SETTINGS.topics.rejected)
TARGETS = evaluation_topics(SETTINGS)


@dataclass(frozen=True)
class EvaluatorSetting:
    """The constants of a history; a second pod only replaces the first."""

    partitions: int
    pods: int


@dataclass(frozen=True)
class Scored:
    """A scored record."""

    topic: str
    partition: int
    at: float
    number: int

    def __str__(self):
        return f"{self.topic}/{self.partition}: {self.number}"


def evaluator_history(seed):
    """Return the history of a seed."""
    random = Random(f"evaluator history {seed}")
    setting = EvaluatorSetting(random.choice((1, 2)), 1)
    span = random.choice((1.0, 8.0, 20.0))
    records = []
    for number in range(random.randint(2, 10)):
        topic, partition, at = random.choice(SOURCES), number % setting.partitions, random.random() * span
        records.append(Scored(topic, partition, at, number))
    records.sort(key=lambda scored: scored.at)
    events = [event(random, setting.pods, span, 4, KINDS, MOMENTS) for _ in range(random.choice((1, 2, 3)))]
    if random.random() < 0.4:
        events += replaced(random, setting)
    events.sort(key=lambda planned: planned.at)
    return History(seed, setting, tuple(records), tuple(events), "evaluator")


@cache
def _record(number):
    trace = ReasoningTrace.model_validate_json(trace_of(number, f"number {number}", 0.6))
    context = SpanContext(trace_id=f"{number + 1:032x}", span_id=f"{number + 1:016x}")
    metadata = trace.metadata.model_copy(update={"span_context": context})
    changed = trace.model_copy(update={"metadata": metadata}, deep=True)
    return published(number, changed.to_json(), Scorer().evaluate(trace), Policy())


class EvaluatorPod(Pod):
    """The host of ``kp-worker evaluations``."""

    async def _work(self, process):
        cluster, settings = self._world.cluster, self._world.settings
        config, group = settings.kafka.client_config(), evaluations_group(settings.kafka.group)
        new_producer = partial(SimProducer, cluster, self.name, self.note, writer=process.name)

        def new_member(config, _, rebalance, __):
            session = config.session_timeout
            return SimMember(cluster, self.name, SOURCES, session, rebalance, self.note, patience=1)

        evaluations = Evaluations(config.group, TARGETS, METRICS)
        async with (
            Session(
                replace(config, group=group),
                SOURCES,
                group,
                decoded_bytes=settings.limits.batch_bytes,
                new_member=new_member,
                new_producer=new_producer,
            ) as session,
        ):
            await send_scores(evaluations.send, METRICS, session, self._stop)


class EvaluatorWorld(World):
    """The world that all pods share."""

    POD = EvaluatorPod


class EvaluatorPlayer(TransactionalPlayer):
    """Plays a history of evaluations."""

    SOURCES = SOURCES

    def __init__(self, history, keep_log=False):
        super().__init__(history, keep_log)
        for name in (*SOURCES, *TARGETS):
            self.cluster.create(SimTopic.new(name, history.setting.partitions))
        self.world = EvaluatorWorld(self.cluster, SETTINGS, history.seed, self)
        self.faults = Faults(self.world, SOURCES[0])
        for _ in range(history.setting.pods):
            self.world.add_pod()

    def _publish(self, number, publication):
        record = _record(publication.number)
        at = int((EPOCH + self._loop.time()) * 1000)
        output = OutputRecord(
            publication.topic, publication.partition, at, record.key, record.value, record.headers
        )
        offset = self.cluster.topics[publication.topic].logs[publication.partition].append([output], at)
        self.log("publish", publication.topic, publication.partition, offset)
        self._published += 1

    # --- oracles

    def check(self):
        """Check that each score is sent once, as an event and as a span."""
        published = Counter(  # without the records of aborted transactions
            int(dict(record.headers)["kp-source"].rpartition(b"/")[2])
            for topic in SOURCES
            for records in self.cluster.committed_records(topic).values()
            for record in records
        )
        for name in TARGETS:
            sent = Counter(
                int(record.key, 16) - 1
                for records in self.cluster.committed_records(name).values()
                for record in records
            )
            for number in sent | published:
                if sent[number] != published[number]:
                    self.violated(f"exactly once: {number} is sent {sent[number]} times to {name}")
