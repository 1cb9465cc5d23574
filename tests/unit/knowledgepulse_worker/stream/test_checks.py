"""The checks end a worker when the partition count changes or the stream stalls."""

import time
from contextlib import nullcontext

import pytest

from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.errors import StalledError
from knowledgepulse_worker.stream.checks import CHECK_INTERVAL, Watchdog


async def test_a_changed_partition_count_ends_the_worker(start, monkeypatch):
    world = await start()
    await world.member.rebalance([0])
    await world.until(lambda: not world.app.readiness.reasons)

    world.cluster.add_partitions("raw-traces", 3)
    with pytest.raises(TopicError, match="raw-traces now has 3 partitions instead of 2"):
        await world.check()
    del world.cluster.topics["raw-traces"]
    with pytest.raises(TopicError, match="raw-traces no longer exists"):
        await world.check()

    async def none_gone(_names):
        return []

    monkeypatch.setattr(world.member, "gone", none_gone)
    await world.app.checks._require_partitions(0)  # the client's metadata lack it, and no broker says so


async def check_often(world, times):
    for _ in range(times):
        await world.check()


async def test_a_stalled_stream_ends_the_worker(start):
    world = await start(stall=5)
    world.hold()
    world.publish(0, 1)
    await world.member.rebalance([0])
    await world.until(lambda: world.metric("kp_in_flight_records") == 1)

    with pytest.raises(StalledError, match="partition 0"):
        await check_often(world, 8)


@pytest.mark.parametrize(
    ("owned", "error"),
    [
        pytest.param([0], "partition 0: its leader answers, but not on this connection", id="leader"),
        pytest.param([], "group group: its coordinator has not answered for 25 s", id="coordinator"),
    ],
)
@pytest.mark.parametrize("is_down", [True, False])
async def test_a_silent_broker_ends_an_idle_worker_only_if_brokers_answer_on_a_new_connection(
    start, monkeypatch, is_down, owned, error
):
    """A frozen broker made every idle worker restart each minute; one without partitions waited for ever."""
    world = await start(stall=5)
    await world.member.rebalance(owned)
    await world.until(lambda: not world.app.readiness.reasons)

    async def down(_topic, _partition):
        raise TopicError("no answer")

    if owned:
        monkeypatch.setattr(world.member, "last_poll_timestamp", lambda _: 1)
    if is_down:
        monkeypatch.setattr(world.reader, "bounds", down)
    with nullcontext() if is_down else pytest.raises(StalledError, match=error):
        await check_often(world, 60)


async def test_a_broker_that_answers_on_the_old_connection_again_ends_no_worker(start, monkeypatch):
    """Its answer there may come while a new connection is tried."""
    world = await start(stall=5)
    await world.member.rebalance([0])
    await world.until(lambda: not world.app.readiness.reasons)
    last, tried = 1, []

    async def answer(_topic, partition):
        nonlocal last
        tried.append(partition)
        last = time.time() * 1000

    monkeypatch.setattr(world.member, "last_poll_timestamp", lambda _: last)
    monkeypatch.setattr(world.reader, "bounds", answer)
    await check_often(world, 8)
    assert tried == [0]


# --- the watchdog


def checks(seconds):
    return range(int(seconds / CHECK_INTERVAL))


def test_a_partition_without_progress_while_records_wait_is_stalled():
    watchdog = Watchdog(10, "records are waiting, but none was finished")
    for second in checks(11):
        watchdog.check({2: second, 3: 41})
    with pytest.raises(StalledError, match=r"partition 3: records are waiting.* for 10 s \(limits.stall\)"):
        watchdog.check({2: 11, 3: 41})


def test_a_stall_tells_what_it_waited_for():
    """Without a transaction coordinator, the last error named only the partition."""
    wait = Wait("FindCoordinator", "broker-1:9092", "COORDINATOR_NOT_AVAILABLE (15)")
    watchdog = Watchdog(0, "records are waiting", waits=lambda: [wait])
    watchdog.check({3: 41})
    with pytest.raises(StalledError, match=r"; waited for FindCoordinator to .*: COORDINATOR_NOT_AVAILABLE"):
        watchdog.check({3: 41})


def test_a_partition_may_make_no_progress_up_to_the_limit():
    watchdog = Watchdog(10, "")
    for second in checks(100):
        watchdog.check({3: second // 10})


def test_the_wait_is_reset_when_no_record_waits():
    """As after recovery, or when everything is briefly finished."""
    watchdog = Watchdog(10, "")
    for second in checks(100):
        watchdog.check({} if second % 10 == 0 else {3: 41})
