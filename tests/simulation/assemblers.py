"""Assemblers: spans arrive in any order, some repeatedly, some late, among records that are not spans."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from unittest.mock import patch

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from prometheus_client import CollectorRegistry

from knowledgepulse_convert import Options
from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.testing.brokers import SimTopic
from knowledgepulse_kafka.testing.clients import SimReader
from knowledgepulse_kafka.testing.member import SimMember
from knowledgepulse_kafka.testing.transactional_producer import SimProducer
from knowledgepulse_kafka.testing.virtual_time import EPOCH
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_kafka.transactional_publisher import BATCH_BYTES
from knowledgepulse_worker.settings import AssembleSettings, Settings
from knowledgepulse_worker.tools.assemble import transaction_log
from knowledgepulse_worker.tools.assemble.assembler import Assembler
from knowledgepulse_worker.tools.assemble.assembly_metrics import AssemblyMetrics
from knowledgepulse_worker.tools.assemble.assembly_topics import assembled_topic_name, assembly_group
from knowledgepulse_worker.tools.assemble.collector_exports import split
from knowledgepulse_worker.tools.assemble.open_runs import SpanRun
from knowledgepulse_worker.tools.assemble.run_conversion import CompleteRun, convert_run
from knowledgepulse_worker.tools.assemble.run_outputs import RunDeadLetter, RunOutputs
from knowledgepulse_worker.tools.assemble.transaction_log import AssemblyLog
from simulation.faults import Faults
from simulation.histories import Event, History, event
from simulation.pods import Pod, World
from simulation.transactional_player import TransactionalPlayer
from support.spans import converted, export, message, span

KINDS = {
    "kill": 14,
    "suspend": 14,
    "stop": 8,
    "add": 6,
    "cut": 8,
    "isolate": 8,
    "deaf": 6,
    "down": 5,
    "move": 5,
    "move_transactions": 5,
    "starve": 4,
    "slow": 3,
    "leaders": 3,
    "transaction": 3,
}
MOMENTS = (
    "revoking",
    "assigned",
    "expelled",
    "output taken",
    "output sent",
    "output written",
    "offsets sent",
    "ending",
    "ended",
)
METRICS = AssemblyMetrics(CollectorRegistry())
STEP_RECORDS = 2
"""Records of a transaction, so that a run may take several."""


@dataclass(frozen=True)
class AssemblerSetting:
    """The constants of a history; times are in seconds."""

    partitions: int
    pods: int
    grace: float
    idle: float
    longest_wait: float
    run_spans: int
    open_bytes: int


@dataclass(frozen=True)
class Arrival:
    """A record of the spans topic.

    Attributes:
        spans: the run and number of each span, with 0 for a run's root; None if the record is no export.
        age: seconds between the record's timestamp and its arrival.
    """

    partition: int
    at: float
    spans: tuple[tuple[int, int], ...] | None
    age: int = 0
    is_json: bool = False

    def __str__(self):
        spans = (
            "no spans" if self.spans is None else " ".join(f"{run}.{number}" for run, number in self.spans)
        )
        return f"{self.partition} at {self.at:.1f}: {spans}"


def assembler_history(seed):
    """Return the history of a seed."""
    random = Random(f"assembler history {seed}")
    setting = AssemblerSetting(
        partitions=random.choice((1, 1, 2)),
        pods=random.choice((1, 2, 2)),
        grace=random.choice((0.0, 1.0, 4.0)),
        idle=random.choice((3.0, 12.0)),
        longest_wait=random.choice((6.0, 40.0)),
        run_spans=random.choice((2, 10_000, 10_000)),
        open_bytes=random.choice((3000, 10**6, 10**6)),
    )
    span = random.choice((2.0, 10.0, 20.0))
    arrivals = tuple(sorted(_arrivals(random, setting, span), key=lambda arrival: arrival.at))
    events = [event(random, setting.pods, span, 4, KINDS, MOMENTS) for _ in range(random.choice((1, 2, 3)))]
    if random.random() < 0.4:
        events += replaced(random, setting)
    return History(
        seed, setting, arrivals, tuple(sorted(events, key=lambda planned: planned.at)), "assembler"
    )


def _arrivals(random, setting, span):
    """Yield the records of some runs; spans come alone or together, and some are repeated or late."""
    for run in range(random.randint(1, 5)):
        begins, takes = random.random() * span, random.choice((0.5, 3.0, 10.0))
        first = random.choice((0, 0, 0, 0, 1))  # without its root, if it is 1
        numbers = list(range(first, random.randint(1, 4) + 1))
        numbers += [number for number in numbers if random.random() < 0.2]
        random.shuffle(numbers)
        while numbers:
            count = random.choice((1, 1, 2))
            spans, numbers = numbers[:count], numbers[count:]
            late = random.choice((0.0, 0.0, 0.0, 0.0, 12.0))
            at = begins + random.random() * takes + late
            age = random.choice((0, 0, 0, 2, 20))
            partition = run % setting.partitions
            yield Arrival(partition, at, tuple((run, span) for span in spans), age, random.random() < 0.5)
    if random.random() < 0.3:
        yield Arrival(random.randrange(setting.partitions), random.random() * span, None)


def replaced(random, setting):
    """Return an event that suspends a process during a transaction for longer than its session."""
    kind = random.choice(("suspend", "isolate", "cut"))
    pod, away = random.randrange(setting.pods), 6 + random.random() * 8
    moment, steps = random.choice(MOMENTS[3:]), random.randrange(6)
    return [Event(kind, 0.0, pod, moment, random.randint(1, 3), steps, away, random.random())]


@cache
def _export(spans, is_json):
    return export([_span(*span) for span in spans], as_json=is_json)


def _span(run, number):
    trace_id = (run + 1).to_bytes(16, "big")
    if number == 0:
        return span(trace_id, 0, "invoke_agent", {gen_ai.GEN_AI_AGENT_NAME: "tester"}, None, 9)
    said = [message("assistant", {"type": "text", "content": f"{run}.{number}"})]
    asked = [message("user", {"type": "text", "content": f"run {run}"})]
    values = {
        gen_ai.GEN_AI_INPUT_MESSAGES: json.dumps(asked),
        gen_ai.GEN_AI_OUTPUT_MESSAGES: json.dumps(said),
    }
    return span(trace_id, number, "chat", values)


class AssemblerPod(Pod):
    """An assembler's host."""

    async def _work(self, process):
        world, cluster = self._world, self._world.cluster
        settings = world.settings

        new_producer = partial(SimProducer, cluster, self.name, self.note, writer=process.name)

        def join(rebalances):
            return Session(
                settings.kafka.client_config(),
                [settings.assemble.spans],
                f"{assembly_group(settings.kafka.group)}-{process.name}",
                decoded_bytes=settings.limits.batch_bytes,
                batch_bytes=BATCH_BYTES,
                rebalance_timeout=settings.limits.rebalance,
                rebalances=rebalances,
                new_producer=new_producer,
                new_member=lambda config, _, rebalance, __: SimMember(
                    cluster,
                    self.name,
                    (settings.assemble.spans,),
                    config.session_timeout,
                    rebalance,
                    self.note,
                    patience=1,
                ),
            )

        log = partial(
            AssemblyLog,
            settings,
            new_reader=lambda *_: SimReader(cluster, self.name),
        )
        assembler = Assembler(
            settings.assemble, join, log, converted, world.outputs, METRICS, self._loop.time
        )
        await assembler.work_until(self._stop, settings.limits.drain)


@dataclass
class AssemblerWorld(World):
    """The world that all assemblers share."""

    POD = AssemblerPod

    outputs: RunOutputs


class AssemblerPlayer(TransactionalPlayer):
    """Plays a history of assemblers."""

    SOURCES = (AssembleSettings().spans,)

    def __init__(self, history, keep_log=False):
        super().__init__(history, keep_log)
        self.settings, outputs = _configured(history.setting)
        names = self.settings.topics
        self._spans = self.settings.assemble.spans
        self._late = self.settings.assemble.late
        assembled = assembled_topic_name(self.settings.kafka.group)
        for name in (names.raw, names.dead_letter, self._spans, self._late, assembled):
            self.cluster.create(SimTopic.new(name, history.setting.partitions))
        self.world = AssemblerWorld(self.cluster, self.settings, history.seed, self, outputs)
        self.faults = Faults(self.world, self._spans)
        for _ in range(history.setting.pods):
            self.world.add_pod()

    async def run(self):
        with patch.object(transaction_log, "STEP_RECORDS", STEP_RECORDS):
            return await super().run()

    def _publish(self, number, publication):
        value = b"no spans" if publication.spans is None else _export(publication.spans, publication.is_json)
        at = int((EPOCH + self._loop.time() - publication.age) * 1000)
        record = OutputRecord(self._spans, publication.partition, at, b"%d" % number, value, ())
        log = self.cluster.topics[self._spans].logs[publication.partition]
        self.log("publish", publication.partition, log.append([record], at))
        self._published += 1

    # --- oracles

    def check(self):
        """Check that every span is late or in exactly one published run, and that late spans arrived last."""
        names = self.settings.topics
        late, found = defaultdict(list), Counter()
        for value in self._values(self._late):
            (span_record,) = split(value)
            late[span_record.trace_id].append(span_record)
        for name in (names.raw, names.dead_letter):
            found.update((name, value) for value in self._values(name))
        expected = Counter()
        for partition, records in self.cluster.committed_records(self._spans).items():
            arrived = defaultdict(list)
            for record in records:
                if record.value == b"no spans":
                    expected[names.dead_letter, record.value] += 1
                    continue
                for span_record in split(record.value):
                    arrived[span_record.trace_id].append(span_record)
            for trace_id, spans in arrived.items():
                expected.update(self._outputs(trace_id, spans, late.pop(trace_id, []), partition))
        for at in found | expected:
            if found[at] != expected[at]:
                what = f"{found[at]} times in {at[0]}, not {expected[at]}"
                self.violated(f"exactly once: {at[1][:60]!r} is {what}")
        if late:
            self.violated(f"pass-through: late spans of unknown runs {[*late]}")

    def _outputs(self, trace_id, spans, late, partition):
        """Yield topic and value of the outputs of a run's spans, some of which were late."""
        in_run = spans[: len(spans) - len(late)]
        if _ids(spans[len(in_run) :]) != _ids(late):
            self.violated(f"conservation: of run {trace_id[-2:]}, late are {_ids(late)}, of {_ids(spans)}")
        if not in_run:
            self.violated(f"conservation: run {trace_id[-2:]} was late before it was published")
        run = SpanRun(trace_id, 0, 0, 0, 0)
        for record in in_run:
            run.spans.setdefault(record.span_id, record.value)
            run.root_time = 0 if record.is_root else run.root_time
        in_process = convert_run(CompleteRun.of(run), Options())
        for outcome in self.world.outputs.of_run(run, in_process, partition):
            output = outcome.letter if isinstance(outcome, RunDeadLetter) else outcome
            yield output.topic, output.value

    def _values(self, topic):
        return [
            record.value for records in self.cluster.committed_records(topic).values() for record in records
        ]


def _ids(spans):
    return sorted(span.span_id[-2:] for span in spans)


@cache
def _configured(setting):
    settings = Settings(
        kafka={"session_timeout": 6, "request_timeout": 15},
        limits={"drain": 2.9},
        assemble={
            "grace": setting.grace,
            "idle": setting.idle,
            "longest_wait": setting.longest_wait,
            "run_spans": setting.run_spans,
            "open_bytes": setting.open_bytes,
        },
    )
    names = (
        settings.topics.raw,
        settings.topics.dead_letter,
        settings.assemble.late,
        settings.assemble.spans,
    )
    topics = {name: Topic(name, setting.partitions, 10**6) for name in names}
    return settings, RunOutputs(settings, topics)
