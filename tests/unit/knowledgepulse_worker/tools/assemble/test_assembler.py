"""Partitions of a group member: where each is read from, and how time passes in a quiet one."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.client_types import CommittedPosition, Place
from knowledgepulse_kafka.errors import LostPartitionsError
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.assembler import LONGEST_STEP, Assembler
from knowledgepulse_worker.tools.assemble.assembly_metrics import AssemblyMetrics
from knowledgepulse_worker.tools.assemble.run_outputs import RunOutputs
from knowledgepulse_worker.tools.assemble.transaction_log import AssemblyState
from support.spans import converted, export, spans_of

SETTINGS = Settings(assemble={"grace": 10})
NAMES = (
    SETTINGS.topics.raw,
    SETTINGS.topics.dead_letter,
    SETTINGS.assemble.late,
    SETTINGS.assemble.spans,
)


PLACE = Place(SETTINGS.assemble.spans, 0)


class Kafka:
    """One partition as a group member's reader and the log of its transactions.

    Attributes:
        polls: what each poll returns: records, or a function to call.
        now: the clock, which each poll moves by `step` seconds.
        confirms: whether the brokers say that nothing is left to read.
    """

    def __init__(self, spans, polls, restart_offset=None, position=0, bounds=range(1000)):
        self.spans = spans
        self.polls = list(polls)
        self.now, self.step = 0.0, 1.0
        self.confirms = True
        self.steps = []
        self.sought = []
        self.lost = False
        self._restart_offset, self._position, self._bounds = restart_offset, position, bounds
        self._offset = restart_offset or 0

    # the reader

    @asynccontextmanager
    async def join(self, rebalances):
        self.rebalances = rebalances
        yield self

    async def assign(self):
        """Assign the partition, and read it from where the assembler says."""
        restart_offset = None if self._restart_offset is None else CommittedPosition(self._restart_offset, "")
        await self.rebalances.recover({PLACE: restart_offset}, self._begin)

    async def _begin(self, _place, offset):
        self._offset = offset
        self.sought.append(offset)

    async def bounds(self, _place):
        return self._bounds

    async def poll(self, _seconds):
        if not self.sought:
            await self.assign()
        self.now += self.step
        what = self.polls.pop(0)
        if callable(what):
            return await what()
        records = [_record(self._offset + number, value) for number, value in enumerate(what)]
        self._offset += len(records)
        return records

    async def at_end(self, places):
        return set(places) if self.confirms else set()

    # the log

    async def read(self):
        return AssemblyState(self._position, {})

    async def publish(self, session, step):
        assert session is self
        if self.lost:
            self.lost = False
            raise LostPartitionsError("the group has rebalanced")
        self.steps.append(step)

    @property
    def traces(self):
        return [
            output for step in self.steps for output in step.outputs if output.topic == SETTINGS.topics.raw
        ]

    async def run(self):
        """Work until all polls are done."""
        topics = {name: Topic(name, 1, 2**20) for name in NAMES}
        assembler = Assembler(
            SETTINGS.assemble,
            self.join,
            lambda _partition: self,
            converted,
            RunOutputs(SETTINGS, topics),
            AssemblyMetrics(CollectorRegistry()),
            lambda: self.now,
        )
        await assembler.work(lambda: not self.polls)


def _record(offset, value):
    return Record(*PLACE, offset, 0, 0, b"", value, None, 0, 0, ())


@pytest.fixture
def run(real_traces):
    return export(spans_of(real_traces[0]))


async def test_time_passes_by_the_clock_where_nothing_is_left_to_read(run):
    kafka = Kafka(run, [[run], *[[]] * 10])
    await kafka.run()
    assert len(kafka.traces) == 1


async def test_time_stands_still_unless_the_brokers_confirm_that_nothing_is_left(run):
    kafka = Kafka(run, [[run], *[[]] * 20])
    kafka.confirms = False
    await kafka.run()
    assert kafka.traces == []


@pytest.mark.parametrize(("quiet_polls", "traces"), [(1, 0), (2, 1)])
async def test_no_more_than_a_step_passes_at_once(run, quiet_polls, traces):
    """A process that was suspended has not seen what was written meanwhile."""
    assert SETTINGS.assemble.grace == 2 * LONGEST_STEP
    kafka = Kafka(run, [[run], *[[]] * quiet_polls])
    kafka.step = 3600
    await kafka.run()
    assert len(kafka.traces) == traces


@pytest.mark.parametrize(
    ("restart_offset", "position", "bounds", "start"),
    [
        (None, 0, range(5, 1000), 5),
        (7, 9, range(5, 1000), 7),
        (7, 9, range(8, 1000), 8),  # deleted by retention
        (7, 9, range(8), 0),  # recreated
        (None, 9, range(8), 0),
    ],
)
async def test_a_partition_is_read_from_its_restart_offset(run, restart_offset, position, bounds, start):
    kafka = Kafka(run, [[]], restart_offset, position, bounds)
    await kafka.run()
    assert kafka.sought == [start]


async def test_a_partition_whose_step_the_group_refuses_is_read_again(run):
    """Another member may own it; if not, it is assigned again."""
    kafka = Kafka(run, [])

    async def rebalance():
        await kafka.rebalances.revoked()
        await kafka.assign()
        return []

    kafka.polls = [[run], *[[]] * 20, rebalance, [run], *[[]] * 10]
    kafka.lost = True
    await kafka.run()

    assert kafka.sought == [0, 0]
    assert len(kafka.traces) == 1
