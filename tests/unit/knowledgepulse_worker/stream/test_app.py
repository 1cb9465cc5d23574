"""The app: the effects of an assignment, and of a lane's end."""


async def test_an_assignment_sets_the_gauges_of_partitions_and_limits(start):
    world = await start(partitions=3, in_flight_records=7, in_flight_bytes=2_000_000)

    await world.member.rebalance([0, 2])

    assert world.metric("kp_partitions", state="owned") == 2
    assert world.metric("kp_partitions", state="topic") == 3
    assert world.metric("kp_in_flight_records_limit") == 14
    assert world.metric("kp_in_flight_bytes_limit") == 4_000_000
    assert world.metric("kp_rebalances_total") == 1


async def test_a_revoked_partition_s_gauges_are_removed(start):
    world = await start()
    world.publish(0, 1)
    await world.member.rebalance([0, 1])
    await world.until(lambda: world.positions == {0: 1})
    await world.check()
    assert world.metric("kp_consumer_lag_records", partition="0") == 0

    await world.member.rebalance([1])

    assert world.metric("kp_consumer_lag_records", partition="0") is None
