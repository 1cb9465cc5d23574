"""How a lane ends: drained, closed or failed."""

import asyncio

import pytest

from knowledgepulse_worker.errors import DeliveryError
from support.lanes import feed

pytestmark = pytest.mark.usefixtures("no_leaks")


def tasks():
    """Return the names of all tasks but the test's own and the batcher's."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return [task.get_name() for task in others if task.get_name() != "batcher"]


async def test_draining_scores_no_further_records(make_harness, raw):
    """Otherwise a drain could last for as long as there are records in the lane."""
    harness = make_harness()
    harness.publisher.hold(*harness.scored)
    lane = await harness.lane()
    await feed(lane, raw(0))
    await harness.until(lambda: harness.publisher.waiting(*harness.scored))
    harness.embedder.free.clear()
    await feed(lane, raw(1))
    await harness.until(lambda: harness.embedder.requested == 2)

    draining = asyncio.create_task(lane.drain(20))
    await harness.settle()
    harness.embedder.free.set()
    await harness.until(lambda: len(harness.embedder.texts) == 2)
    await harness.settle()
    harness.publisher.release(*harness.scored)
    await draining

    assert lane.watermark == 1
    assert list(harness.entries()) == [0]


async def test_draining_raises_when_the_broker_does_not_confirm_in_time(make_harness, raw):
    harness = make_harness()
    harness.publisher.hold(*harness.scored)
    lane = await harness.lane()
    await feed(lane, raw(0))
    await harness.until(lambda: harness.publisher.waiting(*harness.scored))

    with pytest.raises(DeliveryError, match=r"1 records unconfirmed .*limits\.drain"):
        await lane.drain(0.01)

    assert lane.watermark == 0
    assert tasks() == []


async def test_draining_releases_a_take_that_waits_for_a_hung_embedder(make_harness, raw):
    harness = make_harness(admitted=1)
    harness.embedder.free.clear()
    lane = await harness.lane()
    await feed(lane, *map(raw, range(4)))
    taking = asyncio.create_task(lane.take(raw(4)))
    await harness.settle()
    assert not taking.done()

    await lane.drain(20)
    await taking
    await harness.settle()

    assert lane.watermark == 0
    assert harness.outputs() == []
    assert harness.metric("kp_in_flight_records") == 0
    assert tasks() == []


async def test_closing_leaves_nothing_behind_whatever_step_its_records_are_in(make_harness, raw):
    """At least one record is in each step: embedding, remembering, publishing and finishing."""
    harness = make_harness()
    harness.publisher.hold(*harness.scored)
    lane = await harness.lane()
    await feed(lane, raw(0))
    await harness.until(lambda: harness.publisher.waiting(*harness.scored))
    harness.publisher.hold(harness.ledger)
    await feed(lane, raw(1), raw(2))
    await harness.until(lambda: len(harness.publisher.waiting(harness.ledger)) == 2)
    harness.embedder.free.clear()
    await feed(lane, raw(3), raw(4))
    await harness.settle()

    await lane.close()

    await harness.settle()
    assert tasks() == []
    assert harness.metric("kp_in_flight_records") == harness.metric("kp_in_flight_bytes") == 0
    assert lane.watermark == 0
    assert harness.failures == []
