"""The lanes of all partitions: apart from each other, and none forgotten."""

import asyncio
import contextlib
import json

import pytest

from worker.errors import DeliveryError, LedgerError
from worker.lane import lane as lane_module
from worker.lane import lanes as lanes_module
from worker.lane.ledger import Changelog

pytestmark = pytest.mark.usefixtures("no_leaks")


async def processed(world, lanes, *records):
    """Hand records over and wait until all are finished."""
    for record in records:
        await lanes.take(record)
    ends = {record.partition: record.offset + 1 for record in records}
    await world.until(lambda: ends.items() <= lanes.watermarks().items())


def nearest(output):
    return json.loads(dict(output.headers)["kp-score"])["nearest"]


def lane_tasks():
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("lane")]


async def test_no_partition_s_traces_are_compared_with_another_s(world, raw):
    here = world()
    lanes = here.lanes()

    await processed(here, lanes, raw(0), raw(7, partition=2), raw(1), raw(8, partition=2))

    by_source = {dict(output.headers)["kp-source"]: nearest(output) for output in here.outputs()}
    assert by_source == {
        b"raw-traces/0/0": None,
        b"raw-traces/0/1": "kp:trace:0/0",
        b"raw-traces/2/7": None,
        b"raw-traces/2/8": "kp:trace:2/7",
    }
    assert {record.partition for record in here.outputs()} == {0, 2}
    assert (sorted(here.changelog(0).entries), sorted(here.changelog(2).entries)) == ([0, 1], [7, 8])


async def test_a_stopped_partition_does_not_hold_up_another(world, raw):
    here = world(in_flight_records=1)
    here.publisher.hold("dead-letter")
    lanes = here.lanes()
    await lanes.take(raw(0, b"no JSON"))
    blocked = asyncio.create_task(lanes.take(raw(1)))

    await processed(here, lanes, raw(0, partition=1), raw(1, partition=1))

    assert lanes.watermarks() == {0: 0, 1: 2}
    here.publisher.release("dead-letter")
    await blocked


async def test_after_a_large_record_its_lane_leaves_the_event_loop_to_the_others(world, raw, monkeypatch):
    """Else the others' records wait for one large record after another."""
    here = world()
    lanes = here.lanes()
    sleep, pauses = asyncio.sleep, []

    async def sleeping(seconds):
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(lanes_module.asyncio, "sleep", sleeping)
    large = {"padding": lanes_module.LARGE_BYTES}

    await processed(here, lanes, raw(0, **large))
    assert not pauses  # nobody else is there
    await processed(here, lanes, raw(0, partition=1), raw(1))
    assert not pauses
    await processed(here, lanes, raw(2, **large))
    assert len(pauses) == 1

    monkeypatch.setattr(lanes_module, "YIELD_FACTOR", 1e9)
    await processed(here, lanes, raw(3, **large))
    assert pauses[-1] == here.limits.stall / 10  # a longer pause would look like a stall


async def test_a_commit_is_told_to_the_lane_that_waits_for_it(world, raw):
    here = world(uncommitted_records=1)
    lanes = here.lanes()
    await processed(here, lanes, raw(0), raw(0, partition=1))
    taking = asyncio.create_task(lanes.take(raw(1)))
    await lanes.commit_wanted.wait()
    assert not taking.done()

    lanes.committed({0: 1, 2: 7})
    await taking


async def test_records_that_come_again_in_a_running_process_are_published_as_before(world, raw):
    """The read position goes back when a topic is rewound, or when a commit was lost."""
    here = world()
    lanes = here.lanes()
    records = [raw(0), raw(1)]
    await processed(here, lanes, *records)
    first = here.outputs()

    await processed(here, lanes, *records)
    await here.until(lambda: len(here.outputs()) == 4)
    await processed(here, lanes, raw(2))

    assert here.outputs()[:4] == first * 2
    assert len(here.embedder.texts) == 3
    assert here.metric("kp_novelty_cache_entries", partition="0") == 3


@pytest.mark.parametrize("before", ["read on", "read by another"])
async def test_a_partition_that_goes_back_has_that_committed_before_its_ledger_changes(before, world, raw):
    """Killed in between, a worker would leave a ledger of what comes anew and a position behind all of it."""
    changelog = Changelog(0)
    old = world()
    lanes = old.lanes([changelog].__getitem__)
    await processed(old, lanes, raw(0), raw(1))
    if before == "read by another":
        lanes = world().lanes([changelog].__getitem__)
    lanes.committed({0: 2})
    known = dict(changelog.entries)

    taking = asyncio.create_task(lanes.take(raw(0, padding=1)))
    await old.until(lanes.commit_wanted.is_set)
    await old.settle()
    assert not taking.done()
    assert lanes.watermarks() == {0: 0}
    lanes.committed({0: 2})  # one that was under way
    await old.settle()
    assert changelog.entries == known

    lanes.committed({0: 0})
    await taking
    await old.until(lambda: lanes.watermarks() == {0: 1})
    assert changelog.entries[0] != known[0]


async def test_what_was_given_to_others_is_left_to_them(world, raw):
    """They have read the ledger by now, and score what it does not know."""
    here = world()
    here.publisher.hold(here.ledger)
    lanes = here.lanes()
    for partition in range(2):
        await lanes.take(raw(0, partition=partition))
    await here.until(lambda: len(here.publisher.waiting(here.ledger)) == 2)

    await lanes.abandon()
    await lanes.take(raw(1))
    here.publisher.release(here.ledger)
    await here.settle()

    assert here.outputs() == []
    assert lanes.watermarks() == {}
    assert here.metric("kp_in_flight_records") == 0


async def test_draining_finishes_every_lane_and_letting_go_leaves_no_watermark_to_commit(world, raw):
    here = world()
    here.publisher.hold(*here.scored)
    lanes = here.lanes()
    for partition in range(3):
        await lanes.take(raw(0, partition=partition))
    await here.until(lambda: len(here.publisher.waiting(*here.scored)) == 3)
    draining = asyncio.create_task(lanes.drain())
    await here.settle()
    assert not draining.done()

    here.publisher.release(*here.scored)
    await draining
    assert lanes.watermarks() == {0: 1, 1: 1, 2: 1}
    assert here.metric("kp_novelty_cache_entries", partition="1") == 1

    lanes.clear()
    assert lanes.watermarks() == {}


async def test_a_lane_that_cannot_be_drained_is_told_and_the_others_are_closed(world, raw):
    here = world(drain=0.01)
    here.publisher.hold(*here.scored)
    lanes = here.lanes()
    for partition in range(2):
        await lanes.take(raw(0, partition=partition))
    await here.until(lambda: len(here.publisher.waiting(*here.scored)) == 2)

    with pytest.RaisesGroup(DeliveryError, DeliveryError):
        await lanes.drain()

    assert lanes.watermarks() == {0: 0, 1: 0}


@pytest.mark.parametrize("partition", [0, 1])
async def test_between_a_drain_and_the_next_recovery_every_record_is_ignored(partition, world, raw):
    """They come again, to whoever has the partition then; those before this one would be stepped over."""
    here = world()
    lanes = here.lanes()
    await processed(here, lanes, raw(0))
    await lanes.drain()

    await lanes.take(raw(1, partition=partition))
    assert lanes.watermarks() == {0: 1}

    lanes.clear()
    lanes.open()
    await processed(here, lanes, raw(1))
    assert [nearest(output) for output in here.outputs()] == [None, "kp:trace:0/0"]


@pytest.mark.parametrize(("partition", "offset"), [(1, 0), (0, 3)])
async def test_a_lane_that_is_wanted_during_a_drain_is_not_made(partition, offset, world, raw):
    """Nobody would drain it: it would go on publishing what another worker publishes then."""
    here = world()
    here.publisher.hold(*here.scored)
    lanes = here.lanes()
    await lanes.take(raw(5))
    await here.until(lambda: here.publisher.waiting(*here.scored))
    if partition == 0:  # it goes back, so its lane is drained before the new one is made
        taking = asyncio.create_task(lanes.take(raw(offset)))
        await here.settle()
        draining = asyncio.create_task(lanes.drain())
        await here.settle()
    else:
        draining = asyncio.create_task(lanes.drain())
        await here.settle()
        taking = asyncio.create_task(lanes.take(raw(offset, partition=partition)))
    here.publisher.release(*here.scored)

    await draining
    await taking
    await here.settle()

    assert lane_tasks() == []
    assert [dict(output.headers)["kp-source"] for output in here.outputs()] == [b"raw-traces/0/5"]


async def test_a_lane_drained_while_it_opens_starts_nothing(world, raw, monkeypatch):
    """Tombstones are sent at the opening, which takes as long as the producer's buffer is full."""
    changelog = Changelog(0)
    old = world()
    await processed(old, old.lanes([changelog].__getitem__), *map(raw, range(10)))
    await old.close()
    here = world()
    here.embedder.identity = "another"
    room = asyncio.Event()
    send = here.publisher.send

    async def send_when_there_is_room(record):
        await room.wait()
        return await send(record)

    monkeypatch.setattr(here.publisher, "send", send_when_there_is_room)
    lanes = here.lanes([changelog].__getitem__)
    taking = asyncio.create_task(lanes.take(raw(10)))
    await here.settle()
    assert not taking.done()

    await lanes.drain()
    room.set()
    await taking
    await here.settle()

    assert lane_tasks() == []


# --- what ends the process


async def test_a_ledger_that_cannot_be_had_is_told(world, raw):
    """Faust would restart the actor that handed the record over, and go on with the next one."""
    error = LedgerError("read up to 3, ends at 9")

    def fail(_partition):
        raise error

    here = world()
    lanes = here.lanes(fail)

    await _take_anyhow(lanes, raw(0))

    assert here.failures == [error]
    assert 0 not in lanes.watermarks()


async def test_an_unexpected_error_in_decoding_is_told_and_the_record_is_not_lost(world, raw, monkeypatch):
    error = RuntimeError("a defect")

    def decode(value, limit):
        if value == b"no JSON":
            raise error
        return decode_trace(value, limit)

    decode_trace = lane_module.decode_trace
    monkeypatch.setattr(lane_module, "decode_trace", decode)
    here = world()
    lanes = here.lanes()

    await _take_anyhow(lanes, raw(0, b"no JSON"))
    await _take_anyhow(lanes, raw(1, b"{}"))
    await here.settle()

    assert lanes.watermarks() == {0: 0}
    assert here.failures == [error]


async def test_a_partition_that_goes_back_but_cannot_be_drained_is_told(world, raw):
    here = world(drain=0.01)
    here.publisher.hold(*here.scored)
    lanes = here.lanes()
    await lanes.take(raw(5))
    await here.until(lambda: here.publisher.waiting(*here.scored))

    await _take_anyhow(lanes, raw(3))

    assert [type(error) for error in here.failures] == [DeliveryError]
    assert lanes.watermarks()[0] <= 5


async def _take_anyhow(lanes, record):
    """As Faust's actor does: an error ends it, and it is started again."""
    with contextlib.suppress(Exception):
        await lanes.take(record)
