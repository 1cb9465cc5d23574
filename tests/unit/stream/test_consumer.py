"""Fetching while a rebalance changes what is fetched."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from types import SimpleNamespace

import faust
import pytest
from faust.types import TP

from worker.stream.consumer import MAX_CHECKED, WatermarkConsumer
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


class Ledgers:
    """Stands in for the lanes: what their ledgers know of raw's partitions."""

    def __init__(self):
        self.entries = {}

    def newest_before(self, partition, offset):
        known = [entry for entry in self.entries.get(partition, []) if entry.offset < offset]
        return max(known, key=lambda entry: entry.offset, default=None)


@pytest.fixture
def consumer(monkeypatch):
    """A consumer without the services around it; each partition of raw was committed up to 45."""
    here = object.__new__(WatermarkConsumer)
    here.attach(lanes=Ledgers(), metrics=None, raw_topic=RAW.topic)
    here._thread = Thread()
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


def test_faust_is_asked_to_keep_no_offsets():
    """It would keep that of every record, whatever is committed: ten megabytes for 100 000 records."""
    assert not raw_bytes_topic(faust.App("without-acks", store="memory://"), "raw", 1).acks
