"""When transactions begin: at once while there is little to do, and as far apart as ever in a backlog."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from knowledgepulse_kafka.testing.virtual_time import VirtualLoop
from knowledgepulse_worker.stream.group_commit import GroupCommit


@pytest.fixture
def _asyncio_loop_factory():
    """Waits take no time."""
    return VirtualLoop


INTERVAL, LEAST, TAKEN = 0.1, 0.01, 0.002


@dataclass
class Lanes:
    """What the lanes have to do, as a test sets it."""

    is_scoring: bool = False
    has_backlog: bool = False
    has_complete: bool = False
    is_throttled: bool = False


class Worker:
    """Lanes whose outputs are committed by transactions of a given duration.

    Attributes:
        begins: when each transaction began, in virtual seconds since the start.
        waited_for: what each has waited for.
    """

    def __init__(self, interval=INTERVAL, least=LEAST, taken=TAKEN):
        self.lanes = Lanes()
        self.begins, self.waited_for = [], []
        self.taken = taken
        self.is_member = True
        self.commit = GroupCommit(
            interval, least, lanes=self.lanes, commit=self._commit, on_committed=self.waited_for.append
        )
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()

    async def _commit(self):
        self.begins.append(round(self._loop.time() - self._started, 6))
        is_committed, self.lanes.has_complete = self.lanes.has_complete and self.is_member, False
        await asyncio.sleep(self.taken)
        self.lanes.has_complete |= not (is_committed or self.is_member)
        return is_committed

    def complete(self):
        self.lanes.has_complete = True
        self.commit.completed()

    async def completing(self, seconds, every=0.001):
        """Complete outputs all the time, for some seconds."""
        for _ in range(round(seconds / every)):
            self.complete()
            await asyncio.sleep(every)

    @property
    def apart(self):
        """The seconds from begin to begin."""
        return [round(after - begin, 4) for begin, after in zip(self.begins, self.begins[1:], strict=False)]


@asynccontextmanager
async def running(**given):
    worker = Worker(**given)
    task = asyncio.create_task(worker.commit.run(lambda: True))
    yield worker
    task.cancel()


async def test_a_lone_output_is_committed_at_once():
    """It waited for a timer, a quarter of the commit interval on average."""
    async with running() as worker:
        for _ in range(3):
            await asyncio.sleep(7)
            worker.complete()
        await asyncio.sleep(7)

    assert worker.begins == [7, 14, 21]
    assert worker.waited_for == ["output"] * 3


async def test_nothing_is_done_while_nothing_is_complete():
    async with running() as worker:
        await asyncio.sleep(1000)

    assert worker.begins == []


async def test_transactions_are_at_least_the_least_interval_apart():
    async with running() as worker:
        await worker.completing(1)

    assert set(worker.apart) == {LEAST}
    assert worker.waited_for[0] == "output"
    assert set(worker.waited_for[1:]) == {"interval"}


async def test_what_completes_during_a_transaction_is_committed_by_the_next_one():
    async with running() as worker:
        worker.complete()
        await asyncio.sleep(TAKEN / 2)
        worker.complete()
        await asyncio.sleep(1)

    assert worker.begins == [0, LEAST]


@pytest.mark.parametrize(("taken", "apart"), [(0.008, 0.032), (0.012, 0.048), (0.02, 0.05), (0.07, 0.07)])
async def test_transactions_that_take_longer_are_further_apart(taken, apart):
    """Otherwise they would take all of a busy processor, and no further apart than they were before."""
    async with running(taken=taken) as worker:
        await worker.completing(1)

    assert set(worker.apart) == {apart}
    assert set(worker.waited_for[1:]) == {"transaction" if taken < apart else "output"}


async def test_transactions_are_as_far_apart_as_the_interval_while_there_is_a_backlog():
    """A transaction takes processor time, and no record of a backlog is early by another one's commit."""
    async with running() as worker:
        worker.lanes.has_backlog = worker.lanes.is_scoring = True
        await worker.completing(1)

    assert set(worker.apart) == {INTERVAL}
    assert set(worker.waited_for[1:]) == {"backlog"}


async def test_the_end_of_a_backlog_is_noticed():
    async with running() as worker:
        worker.complete()
        worker.lanes.has_backlog = True
        await asyncio.sleep(0.025)
        worker.complete()
        await asyncio.sleep(0.025)
        worker.lanes.has_backlog = False
        await asyncio.sleep(1)

    assert worker.begins == [0, 0.055]
    assert worker.waited_for[1] == "backlog"


async def test_a_lane_without_room_waits_for_nothing():
    async with running() as worker:
        worker.lanes.has_backlog = True
        for _ in range(3):
            worker.lanes.has_complete = True
            worker.commit.requested()
            await asyncio.sleep(2 * TAKEN)

    assert worker.apart == [2 * TAKEN] * 2
    assert worker.waited_for == ["room"] * 3


async def test_a_throttled_producer_commits_no_more_often_than_in_a_backlog():
    async with running() as worker:
        worker.lanes.is_throttled = True
        await worker.completing(1)

    assert set(worker.apart) == {INTERVAL}
    assert set(worker.waited_for[1:]) == {"brokers"}


async def test_what_could_not_be_committed_is_tried_again():
    """A worker is not a member of its group for as long as it rejoins, and no other output may follow."""
    async with running() as worker:
        worker.is_member = False
        worker.complete()
        await asyncio.sleep(0.25)
        worker.is_member = True
        await asyncio.sleep(1)

    assert worker.apart == [INTERVAL] * 3
    assert worker.waited_for == ["brokers"]


@pytest.mark.parametrize(("is_scoring", "apart"), [(False, INTERVAL / 2), (True, INTERVAL)])
async def test_a_least_interval_like_the_interval_leaves_transactions_as_far_apart_as_in_0_5(
    is_scoring, apart
):
    """A file of 0.5 that sets `kafka.commit_interval` keeps its pace."""
    async with running(least=INTERVAL) as worker:
        worker.lanes.is_scoring = is_scoring
        await worker.completing(1)

    assert set(worker.apart) == {apart}
