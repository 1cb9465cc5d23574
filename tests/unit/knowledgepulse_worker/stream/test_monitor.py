"""The monitor ends a worker when the partition count changes or the stream stalls."""

import pytest

from knowledgepulse_worker.errors import StalledError, TopicError


async def test_a_changed_partition_count_ends_the_worker(start):
    world = await start()
    await world.member.rebalance([0])
    await world.until(lambda: not world.app.readiness.reasons)

    world.topic.records.append([])
    with pytest.raises(TopicError, match="raw-traces now has 3 partitions instead of 2"):
        await world.check()
    world.topic.records.clear()
    with pytest.raises(TopicError, match="raw-traces no longer exists"):
        await world.check()


async def test_a_stalled_stream_ends_the_worker(start):
    world = await start(stall=5)
    world.publisher.gate.clear()
    world.publish(0, 1)
    await world.member.rebalance([0])
    await world.until(lambda: world.metric("kp_in_flight_records") == 1)

    async def check_often():
        for _ in range(8):
            await world.check()

    with pytest.raises(StalledError, match="partition 0"):
        await check_often()
