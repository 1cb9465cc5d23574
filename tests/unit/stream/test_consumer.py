"""Fetching while a rebalance changes what is fetched."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from types import SimpleNamespace

import faust
import pytest
from aiokafka.errors import IllegalGenerationError, NoError, RebalanceInProgressError, UnknownMemberIdError
from aiokafka.protocol.group import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from faust.types import TP

from worker.stream.consumer import MAX_CHECKED, WatermarkConsumer, _MemberThread
from worker.stream.lease import Lease
from worker.stream.ledger import Entry
from worker.stream.records import fingerprint
from worker.stream.store import raw_bytes_topic

RAW, OTHER, CHANGELOG = TP("raw", 0), TP("raw", 1), TP("changelog", 0)


class Thread:
    """Stands in for the thread that the client library runs in; a fetch ends when the test says so."""

    def __init__(self):
        self.calls = []
        self.places = {}
        self.committed = {RAW: 45, OTHER: 45}
        self.asked = None
        self.fetching = asyncio.Event()
        self.fetched = asyncio.Event()

    async def getmany(self, partitions, timeout):  # noqa: ASYNC109 - Faust's
        self.calls.append("fetch")
        self.asked = partitions
        self.fetching.set()
        await self.fetched.wait()
        self.calls.append("fetched")
        return {}

    async def seek_to_committed(self):
        self.calls.append("seek")
        return self.committed

    async def seek_wait(self, partitions):
        self.calls.append("seek")
        self.places |= partitions

    async def earliest_offsets(self, *partitions):
        return dict.fromkeys(partitions, 0)

    async def topic_id(self, topic):
        assert topic == RAW.topic
        return self.topic_ids.pop(0)


class Ledgers:
    """Stands in for the lanes: what their ledgers know of raw's partitions, and what is asked of them."""

    def __init__(self):
        self.entries = {}
        self.positions = {}
        self.asked = []

    async def drain(self):
        self.asked.append("drain")

    async def abandon(self):
        self.asked.append("abandon")

    def let_go(self):
        self.asked.append("let go")

    def committed(self, offsets):
        self.positions |= offsets

    def newest_before(self, partition, offset):
        known = [entry for entry in self.entries.get(partition, []) if entry.offset < offset]
        return max(known, key=lambda entry: entry.offset, default=None)


@pytest.fixture
def consumer(monkeypatch):
    """A consumer without the services around it; each partition of raw was committed up to 45."""
    here = object.__new__(WatermarkConsumer)
    here.attach(lanes=Ledgers(), lease=Lease(60), metrics=None, raw_topic=RAW.topic)
    here._thread = Thread()
    here._active_partitions = {RAW, OTHER}
    here._paused_partitions, here._buffered_partitions = set(), set()
    here._stopped, here._crashed = asyncio.Event(), asyncio.Event()
    here.can_resume_flow, here.suspend_flow = asyncio.Event(), asyncio.Event()
    here.not_waiting_next_records = asyncio.Event()
    here.app = SimpleNamespace(client_only=False, consumer_generation_id=1)
    here.scheduler = SimpleNamespace(iterate=lambda records: [])
    here._read_offset = defaultdict(lambda: None)
    here._committed_offset = defaultdict(lambda: None)
    monkeypatch.setattr(here, "_states", lambda: dict.fromkeys([RAW, OTHER]))
    return here


def message(offset, value=b"the old topic's"):
    return SimpleNamespace(offset=offset, key=b"key", value=value)


def entry(offset):
    return Entry(offset, 0, fingerprint(b"key", b"the old topic's"))


async def test_a_fetch_takes_only_what_was_active_as_it_began(consumer):
    """Recovery ended during a fetch, Faust emptied the set, and empty means every partition to aiokafka.

    Twelve records of a partition that had just moved were fetched so, dropped because it was not active yet,
    and never scored.
    """
    active = {CHANGELOG}
    fetch = asyncio.create_task(consumer._getmany(active, 1.0))
    await consumer._thread.fetching.wait()

    active.clear()

    assert consumer._thread.asked == {CHANGELOG}
    consumer._thread.fetched.set()
    await fetch


async def test_nothing_is_fetched_while_nothing_is_active(consumer):
    assert await consumer._getmany(set(), 1.0) == {}
    assert consumer._thread.calls == []


@pytest.mark.parametrize("then", ["on_buffer_drop", "resume_flow"])
async def test_once_a_partition_has_room_again_it_is_fetched_at_once(consumer, then):
    """Faust would sleep a second when all are full: with one partition, 60 records a second were read."""
    await consumer._fetchable()  # at once, since there are partitions to fetch from
    consumer.loop = asyncio.get_running_loop()
    consumer._active_partitions = set()
    consumer._buffered_partitions = {RAW}
    consumer._resumed = {RAW}

    waiting = asyncio.create_task(consumer._fetchable())
    async with asyncio.timeout(20):
        while not consumer._activated._waiters:
            await asyncio.sleep(0)
    getattr(consumer, then)(*[RAW] * (then == "on_buffer_drop"))
    for _ in range(20):  # but no second
        await asyncio.sleep(0)

    assert waiting.done()
    assert consumer._active_partitions == {RAW}


@pytest.mark.parametrize("go", ["perform_seek", "seek_wait"])
async def test_positions_are_put_right_between_fetches(consumer, go):
    """Else what the fetch brings is from after the place that the consumer goes back to."""
    fetch = asyncio.create_task(consumer._getmany({CHANGELOG}, 1.0))
    await consumer._thread.fetching.wait()

    arguments = () if go == "perform_seek" else ({CHANGELOG: 3},)
    seek = asyncio.create_task(getattr(consumer, go)(*arguments))
    await asyncio.sleep(0)
    consumer._thread.fetched.set()
    await asyncio.gather(fetch, seek)

    assert consumer._thread.calls == ["fetch", "fetched", "seek"]


# --- nothing is passed over that was there to be read


async def test_a_first_record_that_is_further_on_than_expected_is_fetched_once_more(consumer):
    """What lies before it may have been fetched in a rebalance, and dropped."""
    await consumer.perform_seek()
    left = set()

    assert await consumer._is_doubtful(RAW, message(57), left)

    assert consumer._thread.places == {RAW: 45}
    assert left == {RAW}
    assert not await consumer._is_doubtful(RAW, message(45), set())


async def test_a_gap_that_is_still_there_the_second_time_is_stepped_over(consumer):
    """Compaction, or a transaction's markers."""
    await consumer.perform_seek()

    assert await consumer._is_doubtful(RAW, message(57), set())
    assert not await consumer._is_doubtful(RAW, message(57), set())
    assert not await consumer._is_doubtful(RAW, message(60), set()), "only a first record tells"


async def test_a_partition_without_a_commit_is_expected_to_begin_at_its_beginning(consumer):
    consumer._thread.committed = {RAW: None, OTHER: 45}
    await consumer.perform_seek()

    assert await consumer._is_doubtful(RAW, message(12), set())


# --- a topic that was made anew, whose old positions the group still has


async def test_a_partition_that_nothing_was_committed_of_begins_anew(consumer):
    """Records of it that were fetched in a rebalance had moved its position, and were never scored."""
    consumer._thread.committed = {RAW: 45, OTHER: None}

    await consumer.perform_seek()

    assert consumer._thread.places == {OTHER: 0}


async def test_what_was_committed_is_read_again_to_see_that_it_is_the_same_and_goes_no_further(consumer):
    consumer.lanes.entries[0] = [entry(40), entry(43), entry(50)]

    await consumer.perform_seek()

    assert consumer._thread.places == {RAW: 43}
    assert [await consumer._is_known(RAW, message(offset), set()) for offset in (43, 44, 45, 46)] == [
        True,
        True,
        False,
        False,
    ]


async def test_another_record_in_its_place_is_a_new_topic_that_is_read_from_its_beginning(consumer, caplog):
    """The group's position was the old topic's: what the new one has before it was never scored."""
    consumer.lanes.entries[0] = [entry(44)]
    await consumer.perform_seek()
    left = set()

    assert await consumer._is_known(RAW, message(44, b"another"), left)

    assert consumer._thread.places == {RAW: 0}
    assert left == {RAW}, "what was fetched behind it waits until it is fetched again"
    assert not await consumer._is_known(RAW, message(0, b"another"), set())
    assert "partition 0: another record is at offset 44" in caplog.text


async def test_a_topic_that_has_become_shorter_is_not_held_up(consumer):
    consumer.lanes.entries[0] = [entry(44)]
    await consumer.perform_seek()

    assert [await consumer._is_known(RAW, message(offset), set()) for offset in (0, 1, 44)] == [False] * 3


async def test_a_ledger_that_knows_nothing_near_the_position_is_not_asked(consumer):
    consumer.lanes.entries = {0: [], 1: [entry(44 - MAX_CHECKED)]}

    await consumer.perform_seek()

    assert consumer._thread.places == {}
    assert not await consumer._is_known(RAW, message(45), set())


async def test_when_one_partition_begins_anew_the_others_are_looked_at_too(consumer):
    """Their positions may be valid in the new topic, and nothing else would tell."""
    await consumer.perform_seek()
    consumer.lanes.entries = {0: [entry(49)], 1: [entry(60), entry(70)]}
    consumer._next = {RAW: 50, OTHER: 61}
    left = set()

    await consumer._suspect_the_others(RAW, left)

    assert consumer._thread.places == {OTHER: 60}
    assert left == {OTHER}
    assert await consumer._is_known(OTHER, message(60), left)
    assert not await consumer._is_known(OTHER, message(61), left), "it has not been handed on yet"


@pytest.mark.parametrize(
    ("topic_ids", "is_new"),
    [("A", False), ("AAA", False), ("AB", True), ([None, "A", None, "A"], False), (["A", None, "B"], True)],
    ids=str,
)
async def test_a_topic_with_another_id_is_a_new_one(consumer, topic_ids, is_new):
    consumer._thread.topic_ids = list(topic_ids)
    while consumer._thread.topic_ids:
        await consumer._look_at_topic()

    assert consumer._is_new_topic == is_new


async def test_a_broker_that_has_not_heard_of_the_new_topic_is_not_believed(consumer):
    """Else each of its answers would send the worker back to the beginning."""
    consumer._thread.topic_ids = ["A", "B", "A", "B"]
    await consumer._look_at_topic()
    await consumer._look_at_topic()
    await anything_fetched(consumer)
    assert consumer._thread.places == {RAW: 0, OTHER: 0}

    await consumer._look_at_topic()
    await consumer._look_at_topic()

    assert not consumer._is_new_topic


async def test_a_new_topic_is_read_from_its_beginning_before_anything_else_is_fetched(consumer):
    """What was expected of the old one is forgotten."""
    consumer._checks[RAW], consumer._expected[OTHER] = None, 45
    consumer._next[OTHER] = 46
    consumer._doubted.add(OTHER)
    consumer._is_new_topic = True

    await anything_fetched(consumer)

    assert consumer._thread.calls[:2] == ["seek", "fetch"]
    assert consumer._thread.places == {RAW: 0, OTHER: 0}
    assert not any([consumer._checks, consumer._expected, consumer._next, consumer._doubted])


async def test_a_new_topic_waits_for_the_recovery_that_would_seek_to_what_is_committed(consumer):
    consumer._active_partitions = {CHANGELOG}
    consumer._is_new_topic = True

    await anything_fetched(consumer)
    assert consumer._thread.places == {}

    consumer._active_partitions = {RAW}
    await anything_fetched(consumer)
    assert consumer._thread.places == {RAW: 0, OTHER: 0}


async def anything_fetched(consumer):
    consumer._thread.fetched.set()
    consumer.can_resume_flow.set()
    assert [one async for one in consumer.getmany(1.0)] == []


async def test_lanes_are_told_where_the_group_is(consumer):
    await consumer.perform_seek()

    assert consumer.lanes.positions == {0: 45, 1: 45}


@pytest.mark.parametrize(
    ("is_member", "asked"), [(True, ["drain", "commit", "let go"]), (False, ["abandon"])]
)
async def test_only_what_still_belongs_to_the_worker_is_finished(monkeypatch, consumer, is_member, asked):
    """A group that gave it to others has not waited for this worker."""

    async def commit():
        consumer.lanes.asked.append("commit")

    async def no_commit_is_under_way():
        pass

    monkeypatch.setattr(consumer, "commit", commit)
    monkeypatch.setattr(consumer, "maybe_wait_for_commit_to_finish", no_commit_is_under_way)
    consumer._thread.is_member = is_member

    await consumer._finish()

    assert consumer.lanes.asked == asked


@pytest.mark.parametrize(
    ("request_", "error", "renews"),
    [
        (HeartbeatRequest("group", 1, "member"), NoError, True),
        (HeartbeatRequest("group", 1, "member"), RebalanceInProgressError, True),
        (HeartbeatRequest("group", 1, "member"), UnknownMemberIdError, False),
        (SyncGroupRequest("group", 1, "member", None, []), NoError, True),
        (SyncGroupRequest("group", 1, "member", None, []), IllegalGenerationError, False),
        (LeaveGroupRequest("group", "member"), NoError, False),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_the_lease_is_renewed_as_of_when_a_coordinator_was_asked_that_knows_the_member(
    consumer, request_, error, renews
):
    renewed = []
    consumer.lease = SimpleNamespace(renew=renewed.append)
    thread = object.__new__(_MemberThread)
    thread.consumer = consumer
    answer = SimpleNamespace(error_code=error.errno)

    async def send(request):
        assert request is request_
        answered.append(time.monotonic())
        return answer

    answered = []

    assert await thread._renewing(send)(request_) is answer

    assert len(renewed) == renews
    assert all(asked <= answered[0] for asked in renewed)


def routine(error=None, *, done=True):
    return SimpleNamespace(done=lambda: done, cancelled=lambda: False, exception=lambda: error)


@pytest.mark.parametrize(
    ("running", "pending", "failure"),
    [
        (routine(done=False), None, None),
        (routine(done=False), "a heartbeat's error", "a heartbeat's error"),
        (routine("its own error"), None, "its own error"),
        (routine(), None, None),
    ],
    ids=["all is well", "a heartbeat failed", "the routine failed", "closed"],
)
def test_what_ended_the_client_s_part_in_its_group_is_told(consumer, running, pending, failure):
    """Nobody else would say; the worker would fetch and score, and could neither commit nor publish."""
    consumer._thread._consumer = None
    assert consumer.failure() is None, "before it has started"

    coordinator = SimpleNamespace(_coordination_task=running, _pending_exception=pending)
    consumer._thread._consumer = SimpleNamespace(_coordinator=coordinator)

    assert consumer.failure() == failure


def test_faust_is_asked_to_keep_no_offsets():
    """It would keep that of every record, whatever is committed: ten megabytes for 100 000 records."""
    assert not raw_bytes_topic(faust.App("without-acks", store="memory://"), "raw", 1).acks
