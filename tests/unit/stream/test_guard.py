"""What ends a worker that could not go on: another partition count, and records that nothing becomes of."""

import pytest

from worker.errors import StalledError, TopicError


async def test_a_changed_partition_count_ends_the_worker(start):
    world = await start()
    await world.member.rebalance([0])
    await world.until(lambda: not world.app.readiness.reasons)

    world.topic.records.append([])
    with pytest.raises(TopicError, match="raw-traces has 3 partitions now, it had 2"):
        await world.app.guard.check(world.app.source)
    world.topic.records.clear()
    with pytest.raises(TopicError, match="raw-traces is no longer there"):
        await world.app.guard.check(world.app.source)


async def test_records_that_wait_while_none_is_finished_end_the_worker(start):
    world = await start(stall=5)
    world.publisher.hold("rejected")
    world.publish(0, 1)
    await world.member.rebalance([0])
    await world.until(lambda: world.publisher.waiting("rejected"))

    async def check_often():
        for _ in range(8):
            await world.app.guard.check(world.app.source)

    with pytest.raises(StalledError, match="partition 0"):
        await check_often()
