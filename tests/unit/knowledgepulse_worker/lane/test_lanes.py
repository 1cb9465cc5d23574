"""The lanes of all partitions: independent of each other, and all drained."""

import asyncio
import contextlib
import dataclasses
import threading

import pytest

from knowledgepulse_worker.errors import DeliveryError, LedgerError
from knowledgepulse_worker.lane import lane as lane_module
from knowledgepulse_worker.lane import lanes as lanes_module
from knowledgepulse_worker.lane.ring import Changelog, Ledger
from knowledgepulse_worker.records.journal import Journal, Suspect, Treatment, shared_memory
from knowledgepulse_worker.records.record import Location
from support.lanes import score

pytestmark = pytest.mark.usefixtures("no_leaks")


async def processed(harness, lanes, *records):
    """Take records and wait until all are finished."""
    for record in records:
        await lanes.take(record)
    ends = {record.partition: record.offset + 1 for record in records}
    await harness.until(lambda: ends.items() <= lanes.watermarks().items())


def nearest(output):
    return score(output)["nearest"]


def lane_tasks():
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("lane")]


async def test_traces_are_compared_only_within_their_partition(make_harness, raw):
    harness = make_harness()
    lanes = harness.lanes()

    await processed(harness, lanes, raw(0), raw(7, partition=2), raw(1), raw(8, partition=2))

    by_source = {dict(output.headers)["kp-source"]: nearest(output) for output in harness.outputs()}
    assert by_source == {
        b"raw-traces/0/0": None,
        b"raw-traces/0/1": "kp:trace:0/0",
        b"raw-traces/2/7": None,
        b"raw-traces/2/8": "kp:trace:2/7",
    }
    assert {record.partition for record in harness.outputs()} == {0, 2}
    assert (sorted(harness.changelog(0).entries), sorted(harness.changelog(2).entries)) == ([0, 1], [7, 8])


async def test_a_stalled_partition_does_not_block_another(make_harness, raw):
    harness = make_harness(in_flight_records=1)
    harness.publisher.hold("dead-letter")
    lanes = harness.lanes()
    await lanes.take(raw(0, b"no JSON"))
    blocked = asyncio.create_task(lanes.take(raw(1)))

    await processed(harness, lanes, raw(0, partition=1), raw(1, partition=1))

    assert lanes.watermarks() == {0: 0, 1: 2}
    harness.publisher.release("dead-letter")
    await blocked


async def test_a_lane_yields_to_the_others_after_a_large_record(make_harness, raw, monkeypatch):
    """Otherwise the others' records wait for one large record after another."""
    harness = make_harness()
    lanes = harness.lanes()
    sleep, pauses = asyncio.sleep, []

    async def sleeping(seconds):
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(lanes_module.asyncio, "sleep", sleeping)
    large = {"padding": lanes_module.LARGE_BYTES}

    await processed(harness, lanes, raw(0, **large))
    assert not pauses  # it is the only lane
    await processed(harness, lanes, raw(0, partition=1), raw(1))
    assert not pauses
    await processed(harness, lanes, raw(2, **large))
    assert len(pauses) == 1

    monkeypatch.setattr(lanes_module, "YIELD_FACTOR", 1e9)
    await processed(harness, lanes, raw(3, **large))
    assert pauses[-1] == harness.limits.stall / 10  # a longer pause would look like a stall


@pytest.mark.parametrize("owner_before", ["same process", "another process"])
async def test_a_rewind_is_committed_before_the_ledger_changes(owner_before, make_harness, raw):
    """Killed in between, a worker would leave a rewritten ledger and a committed position beyond it."""
    changelog = Changelog(0)
    old = make_harness()
    lanes = old.lanes([changelog].__getitem__)
    await processed(old, lanes, raw(0), raw(1))
    if owner_before == "another process":
        lanes = make_harness().lanes([changelog].__getitem__)
    lanes.committed({0: 2})
    known = dict(changelog.entries)

    taking = asyncio.create_task(lanes.take(raw(0, padding=1)))
    await old.until(lanes.commit_requested.is_set)
    await old.settle()
    assert not taking.done()
    assert lanes.watermarks() == {0: 0}
    lanes.committed({0: 2})  # a commit that was already under way
    await old.settle()
    assert changelog.entries == known

    lanes.committed({0: 0})
    await taking
    await old.until(lambda: lanes.watermarks() == {0: 1})
    assert changelog.entries[0] != known[0]


async def test_abandoned_partitions_publish_nothing_more(make_harness, raw):
    """Their new owner has read the ledger by now, and scores the records missing from it."""
    harness = make_harness()
    harness.publisher.hold(harness.ledger)
    lanes = harness.lanes()
    for partition in range(2):
        await lanes.take(raw(0, partition=partition))
    await harness.until(lambda: len(harness.publisher.waiting(harness.ledger)) == 2)

    await lanes.abandon()
    await lanes.take(raw(1))
    harness.publisher.release(harness.ledger)
    await harness.settle()

    assert harness.outputs() == []
    assert lanes.watermarks() == {}
    assert harness.metric("kp_in_flight_records") == 0


@pytest.mark.parametrize("ending", ["drained", "abandoned"])
async def test_a_suspect_that_waits_for_its_turn_gets_no_lane_after_its_assignment(ending, make_harness, raw):
    """The end of the assignment is what ends its wait; nobody would drain the lane."""
    harness = make_harness()
    descriptor = shared_memory()
    Journal(descriptor).prepare({Location(1, 0): Suspect(2, Treatment.ISOLATED)})
    harness.services = dataclasses.replace(harness.services, journal=Journal(descriptor))
    harness.embedder.free.clear()
    lanes = harness.lanes()
    await lanes.take(raw(0))
    suspect = asyncio.create_task(lanes.take(raw(0, partition=1)))
    await harness.settle()

    if ending == "drained":
        await lanes.drain()
        lanes.clear()
    else:
        await lanes.abandon()
    harness.embedder.free.set()
    await suspect
    await harness.settle()

    assert lane_tasks() == []
    assert harness.failures == []
    assert harness.outputs() == []


async def test_drain_raises_the_error_of_every_lane_that_cannot_be_drained(make_harness, raw):
    harness = make_harness(drain=0.01)
    harness.publisher.hold(*harness.scored)
    lanes = harness.lanes()
    for partition in range(2):
        await lanes.take(raw(0, partition=partition))
    await harness.until(lambda: len(harness.publisher.waiting(*harness.scored)) == 2)

    with pytest.RaisesGroup(DeliveryError, DeliveryError):
        await lanes.drain()

    assert lanes.watermarks() == {0: 0, 1: 0}


@pytest.mark.parametrize(("partition", "offset"), [(1, 0), (0, 3)])
async def test_no_lane_is_created_during_a_drain(partition, offset, make_harness, raw):
    """Nothing would drain it: it would publish the same records as the partition's next owner."""
    harness = make_harness()
    harness.publisher.hold(*harness.scored)
    lanes = harness.lanes()
    await lanes.take(raw(5))
    await harness.until(lambda: harness.publisher.waiting(*harness.scored))
    if partition == 0:  # a rewind: its lane is drained before the new one is created
        taking = asyncio.create_task(lanes.take(raw(offset)))
        await harness.settle()
        draining = asyncio.create_task(lanes.drain())
        await harness.settle()
    else:
        draining = asyncio.create_task(lanes.drain())
        await harness.settle()
        taking = asyncio.create_task(lanes.take(raw(offset, partition=partition)))
    harness.publisher.release(*harness.scored)

    await draining
    await taking
    await harness.settle()

    assert lane_tasks() == []
    assert [dict(output.headers)["kp-source"] for output in harness.outputs()] == [b"raw-traces/0/5"]


@pytest.mark.parametrize("drained", [False, True])
async def test_a_large_ledger_is_opened_beside_the_event_loop(drained, make_harness, raw, monkeypatch):
    """It takes seconds: other lanes and the group's heartbeats go on, and the partition may leave."""
    changelog = Changelog(0)
    old = make_harness()
    await processed(old, old.lanes([changelog].__getitem__), raw(0))
    await old.close()
    monkeypatch.setattr(lane_module, "LARGE_RING", 0)
    harness = make_harness()
    harness.embedder.identity = "another"
    opening, go_on = threading.Event(), threading.Event()
    real_open = Ledger.open

    def slow_open(*args):
        opening.set()
        assert go_on.wait(60)
        return real_open(*args)

    monkeypatch.setattr(Ledger, "open", slow_open)
    lanes = harness.lanes([changelog].__getitem__)
    taking = asyncio.create_task(lanes.take(raw(1)))
    assert await asyncio.to_thread(opening.wait, 60)
    await harness.settle()
    assert not taking.done()

    if drained:
        await lanes.drain()
    go_on.set()
    await taking
    await harness.settle()

    assert (lane_tasks() == []) == drained
    keys = [record.key for record in harness.publisher.records(harness.ledger)]
    assert keys == ([] if drained else [b"0", b"1"])  # the tombstone of the other model's, and its own entry


# --- fatal errors


async def test_an_unavailable_ledger_is_a_fatal_error(make_harness, raw):
    """If the error reached Faust, it would restart the actor with the next record."""
    error = LedgerError("read up to 3, ends at 9")

    def fail(_partition):
        raise error

    harness = make_harness()
    lanes = harness.lanes(fail)

    await _take_like_faust(lanes, raw(0))

    assert harness.failures == [error]
    assert 0 not in lanes.watermarks()


async def test_an_unexpected_decoding_error_is_fatal_and_loses_no_record(make_harness, raw, monkeypatch):
    error = RuntimeError("a defect")

    def decode(value, limit):
        if value == b"no JSON":
            raise error
        return decode_trace(value, limit)

    decode_trace = lane_module.decode_trace
    monkeypatch.setattr(lane_module, "decode_trace", decode)
    harness = make_harness()
    lanes = harness.lanes()

    await _take_like_faust(lanes, raw(0, b"no JSON"))
    await _take_like_faust(lanes, raw(1, b"{}"))
    await harness.settle()

    assert lanes.watermarks() == {0: 0}
    assert harness.failures == [error]


async def _take_like_faust(lanes, record):
    """Take a record as Faust's actor does: an error ends the actor, and Faust starts it again."""
    with contextlib.suppress(Exception):
        await lanes.take(record)
