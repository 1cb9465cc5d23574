"""The app: what an assignment changes, and what it does with the batches that the source hands over."""

import asyncio

from worker.kafka.reader import raw_record
from worker.stream.source import Batch


async def test_an_assignment_sets_the_gauges_of_what_is_owned_and_its_limits(start):
    world = await start(partitions=3, in_flight_records=7, in_flight_bytes=2_000_000)

    await world.member.rebalance([0, 2])

    assert world.metric("kp_partitions", state="owned") == 2
    assert world.metric("kp_partitions", state="topic") == 3
    assert world.metric("kp_in_flight_records_limit") == 14
    assert world.metric("kp_in_flight_bytes_limit") == 4_000_000
    assert world.metric("kp_rebalances_total") == 1


async def test_a_partition_that_leaves_takes_its_gauges_along(start):
    world = await start()
    world.publish(0, 1)
    await world.member.rebalance([0, 1])
    await world.until(lambda: world.topic.committed == {0: 1})
    await world.app.source.refresh_positions()
    assert world.metric("kp_consumer_lag_records", partition="0") == 0

    await world.member.rebalance([1])

    assert world.metric("kp_consumer_lag_records", partition="0") is None


async def test_a_batch_of_an_assignment_that_ended_is_left_to_its_redelivery(start):
    """Taking a record of it would skip those that are redelivered before it."""
    world = await start()
    record = world.topic.publish(0, b"{}")
    await world.member.rebalance([1])
    done = asyncio.Event()

    await world.app._take(Batch([raw_record(record)], is_current=lambda: False, done=done.set))

    assert world.app.lanes.watermarks() == {}
    assert not done.is_set()


async def test_what_a_lane_cannot_go_on_from_reaches_the_process(start):
    world = await start()
    world.publisher.failing.add("rejected")
    world.publish(0, 1)

    await world.member.rebalance([0])
    await world.until(lambda: world.failures)

    assert world.topic.committed == {}
