"""How a lane ends."""

import asyncio

import pytest

from knowledgepulse_worker.errors import EmbeddingError
from support.lanes import feed

pytestmark = pytest.mark.usefixtures("no_leaks")


def tasks():
    """Return the names of all tasks but the test's own and the batcher's."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return [task.get_name() for task in others if task.get_name() != "batcher"]


async def test_closing_releases_a_take_that_waits_for_a_hung_embedder(make_harness, raw):
    harness = make_harness(admitted=1)
    harness.embedder.free.clear()
    lane = await harness.lane()
    await feed(lane, *map(raw, range(4)))
    taking = asyncio.create_task(lane.take(raw(4)))
    await harness.settle()
    assert not taking.done()

    lane.close()
    await taking
    await harness.settle()

    assert harness.position == 0
    assert harness.outputs() == []
    assert lane.in_flight.records == 0
    assert tasks() == []


async def test_closing_releases_a_take_that_waits_for_room(make_harness, raw):
    harness = make_harness(in_flight_records=1)
    lane = await harness.lane()
    await feed(lane, raw(0))
    taking = asyncio.create_task(lane.take(raw(1)))
    await harness.settle()

    lane.close()
    await taking

    assert lane.taken == 1


async def test_a_failing_embedder_releases_a_take_that_waits_for_room(make_harness, raw):
    """The process ends by itself; a lane that waits would only hold it up."""
    harness = make_harness(in_flight_records=1)
    lane = await harness.lane()
    harness.embedder.error = EmbeddingError("out of memory")
    await feed(lane, raw(0))
    taking = asyncio.create_task(lane.take(raw(1)))

    await harness.until(lambda: harness.failures)
    await harness.settle()

    assert taking.done()
    assert lane.taken == 1


async def test_closing_leaves_nothing_behind_whatever_step_its_records_are_in(make_harness, raw):
    """Some records are being embedded, others are complete, and their transaction is under way."""
    harness = make_harness()
    lane = await harness.lane()
    await feed(lane, raw(0), raw(1))
    await harness.until(lambda: len(lane.uncommitted.complete()) == 2)
    harness.publisher.gate.clear()
    committing = asyncio.create_task(harness.commit(lane))
    harness.embedder.free.clear()
    await feed(lane, raw(2), raw(3))
    await harness.settle()

    lane.close()
    harness.publisher.gate.set()
    await committing
    await harness.settle()

    assert tasks() == []
    assert lane.in_flight.records == lane.in_flight.size == 0
    assert harness.failures == []


async def test_a_closed_lane_takes_nothing_at_once(make_harness, raw):
    """Without an embedder, a record behind the one at which it failed would be committed."""
    harness = make_harness(embedding=False)
    lane = await harness.lane()
    lane.close()

    assert not lane.take_at_once(raw(0))
