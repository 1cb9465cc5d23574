"""The source: what it fetches, hands over, recovers and commits."""

import asyncio

import pytest
from aiokafka.errors import KafkaError

from knowledgepulse_kafka.errors import MembershipError
from knowledgepulse_kafka.records import Position
from knowledgepulse_kafka.transactional_publisher import metadata_of
from knowledgepulse_worker.lane import assignment
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.stream import log_changes
from knowledgepulse_worker.stream.recovery import PARALLEL_READERS
from support.program import Program


async def test_a_worker_that_waits_for_a_position_says_so(start):
    """A transaction in which the former owner died holds the position back for seconds."""
    world = await start()
    world.member.unstable.add(0)
    await world.member.rebalance([0])
    await world.settle()
    assert world.app.observe().recovering == 1

    world.member.unstable.clear()
    await world.until(lambda: world.app.observe().recovering == 0)


async def test_an_incomplete_recovery_ends_the_program_before_its_partition_is_consumed(start):
    first = await start()
    first.publish(0, 1, 2)
    await first.take_over(2)
    await first.stop()

    second = await start(first.cluster)
    second.reader.truncated.add(0)
    second.publish(0, 3)
    await second.member.rebalance([0])
    await second.until(lambda: second.program.error)

    assert second.outputs() == [1, 2]
    assert second.app.readiness.reasons


async def test_a_recovery_ends_with_its_assignment(start):
    """It would read into a changelog that the next assignment reads, too."""
    world = await start()
    world.reader.gates[0] = asyncio.Event()
    await world.member.rebalance([0])
    await world.until(lambda: world.reader.reading)
    former = world.source.tasks[0]

    await world.member.rebalance([1])
    world.reader.gates[0].set()
    await world.until(lambda: world.source.tasks[1].is_recovered)

    assert not former.is_recovered
    assert world.program.error is None


async def test_a_record_of_a_stranger_in_the_changelog_is_skipped_and_counted(start, caplog):
    """It ended every worker that got the partition."""
    first = await start()
    first.publish(0, 1, 2)
    await first.take_over(2)
    await first.stop()

    for key in (b"x", b"0", b"position"):
        first.append(first.changelog, 0, key, b"y")
    second = await start(first.cluster)
    second.publish(0, 3)
    await second.take_over(3)

    assert second.outputs() == [1, 2, 3]
    (line,) = [message for message in caplog.messages if "foreign" in message]
    assert line.startswith(f"{first.changelog}/0: foreign records skipped: 3, such as offset ")
    assert line.endswith("; let nobody but the workers write to this topic")


async def test_partitions_that_are_assigned_before_the_program_runs_are_read(start_in):
    """A group that exists admits a member before Faust has started."""

    class Late(Program):
        async def start(self):
            await self.source.session.member.rebalance([0])
            await super().start()

    world = await start_in(Late)
    world.publish(0, 1)
    await world.until(lambda: world.positions or world.member.fetches > 1000)
    assert world.positions == {0: 1}


async def test_ledgers_are_recovered_a_few_at_a_time(start):
    partitions = PARALLEL_READERS + 3
    world = await start(partitions=partitions)
    gate = asyncio.Event()
    world.reader.gates = dict.fromkeys(range(partitions), gate)

    await world.member.rebalance(range(partitions))
    await world.until(lambda: len(world.reader.reading) == PARALLEL_READERS)
    gate.set()
    await world.until(lambda: not world.app.readiness.reasons)

    assert world.reader.max_parallel == PARALLEL_READERS


async def test_a_partition_without_a_ledger_is_not_read_and_the_others_are(start):
    world = await start(ledgers=1)
    world.publish(0, 1)
    world.publish(1, 2)

    await world.member.rebalance([0, 1])
    await world.finished(1)
    await world.settle()

    assert world.outputs() == [1]
    assert [place.partition for place in world.member.paused()] == [1]
    assert world.metric("kp_partitions", state="owned") == 1
    assert not world.app.readiness.reasons


async def test_a_partition_that_was_added_since_the_start_ends_the_program(start):
    """A new process knows how many partitions the outputs and the changelog have now."""
    world = await start()
    world.cluster.add_partitions("raw-traces", 3)

    await world.member.rebalance([0, 2])
    await world.until(lambda: world.program.error)

    assert str(world.program.error) == "raw-traces now has more than 2 partitions"


async def test_a_worker_without_partitions_is_ready(start):
    world = await start()

    await world.member.rebalance([])

    await world.until(lambda: not world.app.readiness.reasons)


def hold_next(monkeypatch, target, method):
    """Hold the next call of a look-up; return events of its begin, and of its end without an answer."""
    look_up, asked, given_up = getattr(target, method), asyncio.Event(), asyncio.Event()

    async def hold_first(*arguments):
        if not asked.is_set():
            asked.set()
            await given_up.wait()
            if method == "epoch_ends":
                raise TimeoutError
        return await look_up(*arguments)

    monkeypatch.setattr(target, method, hold_first)
    return asked, given_up


@pytest.mark.parametrize("look_up", ["topic", "leader epoch"])
async def test_a_look_up_that_outlives_its_assignment_leaves_the_next_alone(start, monkeypatch, look_up):
    """Its partition would be paused for good, or its position set behind records that are read again."""
    monkeypatch.setattr(log_changes, "_LOOK_UP_LIMIT", 60)
    world = await start(in_flight_records=1)
    world.cluster.fetches_by_id = False  # which would need no look-up
    await world.member.rebalance([0])
    world.publish(0, 0)
    await world.committed({0: 1})
    world.hold()
    world.publish(0, 1, 2)
    await world.until(lambda: world.metric("kp_in_flight_records") == 1)

    target = (world.topic_ids, "current") if look_up == "topic" else (world.member, "epoch_ends")
    asked, given_up = hold_next(monkeypatch, *target)
    world.log(0).begin_epoch()
    world.publish(0, 3)
    await asked.wait()
    world.member.expel()
    world.hold(False)
    await world.member.rebalance([0])
    await world.until(lambda: not world.member.paused())
    given_up.set()
    await world.committed({0: 4})

    assert world.outputs() == [0, 1, 2, 3]


async def test_a_batch_of_an_ended_assignment_is_dropped(start, monkeypatch):
    """Taking one of its records would skip the records before it that are read again."""
    world = await start()
    feed, held = PartitionTask.feed, []
    monkeypatch.setattr(PartitionTask, "feed", lambda *batch: held.append(batch))
    world.publish(0, 0, 1)
    await world.member.rebalance([0])
    await world.until(lambda: held)
    world.publish(0, 2)
    await world.until(lambda: len(held) == 2)

    monkeypatch.setattr(PartitionTask, "feed", feed)
    await world.member.rebalance([0])
    feed(*held[1])
    await world.committed({0: 3})

    assert world.outputs() == [0, 1, 2]


async def test_a_worker_outside_its_group_commits_nothing_and_waits_for_nothing(start):
    """Its successor publishes those records."""
    world = await start(drain=600)
    world.hold()
    world.publish(0, 1, 2)
    await world.member.rebalance([0])
    await world.until(lambda: world.metric("kp_in_flight_records") == 2)

    world.member.expel()
    world.hold(False)
    async with asyncio.timeout(60):
        await world.member.rebalance([1])

    assert world.positions == {}
    assert world.source.assignment.lanes == []


async def test_once_its_partitions_are_lost_a_worker_commits_nothing_until_it_has_others(start, caplog):
    """Each transaction would be aborted; a line in the log tells once."""
    world = await start()
    await world.member.rebalance([0])
    world.lose()
    world.publish(0, 1)
    await world.until(lambda: world.metric("kp_aborted_transactions_total", reason="rebalance") == 1)
    await world.settle()
    assert world.metric("kp_aborted_transactions_total", reason="rebalance") == 1
    assert len([message for message in caplog.messages if "aborted" in message]) == 1

    world.lose(False)
    await world.take_over(1)


async def test_a_changelog_that_lost_its_end_is_read_again_from_its_beginning(start):
    """It was created again, or an unclean election lost what was confirmed: it is not known any more."""
    world = await start()
    await world.member.rebalance([0])
    world.source.tasks[0].changelog.committed(5, b"0", b"an entry")

    await world.member.rebalance([0])
    await world.until(lambda: world.source.tasks[0].is_recovered)

    assert not world.source.tasks[0].changelog.entries


@pytest.mark.parametrize("moment", ["revoked", "assigned"])
async def test_an_error_in_a_rebalance_ends_the_program(start, monkeypatch, moment):
    """The client would only log it, and lanes that nobody drained would go on."""
    world = await start()
    await world.member.rebalance([0])

    def fail(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(world.source, moment, fail)
    await world.member.rebalance([0])

    await world.until(lambda: world.program.error)


async def test_partitions_that_leave_are_committed_in_as_many_transactions_as_it_takes(start, monkeypatch):
    """One has no more partitions than brokers commit in time; the records of the others were scored again."""
    monkeypatch.setattr(assignment, "FIRST_PARTITIONS", 1)
    monkeypatch.setattr(assignment, "LEAST_PARTITIONS", 4)
    world = await start(partitions=3)
    await world.member.rebalance([0, 1, 2])
    world.hold()
    for partition in range(3):
        world.publish(partition, 10 + partition)
    await world.until(
        lambda: sum(len(lane.uncommitted.complete()) for lane in world.source.assignment.lanes) == 3
    )

    leaving = asyncio.create_task(world.member.rebalance([]))
    await asyncio.sleep(0.01)
    world.hold(False)
    await leaving

    await world.committed({0: 1, 1: 1, 2: 1})
    assert sorted(world.outputs()) == [10, 11, 12]


async def test_a_last_transaction_that_takes_too_long_ends_the_process(start):
    """The next process fences it off; a transaction that was committed nevertheless counts."""
    world = await start(drain=0.05)
    await world.member.rebalance([0])
    world.hold()
    world.publish(0, 1)
    await world.until(lambda: world.metric("kp_in_flight_records") == 1)

    await world.member.rebalance([])

    await world.until(lambda: world.program.error)
    assert "limits.drain" in str(world.program.error)


async def test_a_rejected_member_is_detected_before_the_first_fetch(start):
    """The group rejects a worker with a different assignor when it joins."""
    world = await start()
    world.member.error = KafkaError("inconsistent group protocol")

    with pytest.raises(MembershipError, match="inconsistent group protocol"):
        await world.check()


async def test_partitions_assigned_while_the_source_stops_are_not_taken(start):
    """Their recovery outlived the partitions, and ended an orderly stop with an error."""
    world = await start()
    await world.member.rebalance([])
    await world.source.stop()

    world.publish(0, *range(3))
    await world.member.rebalance([0])
    await world.settle()

    assert world.outputs() == []
    assert world.app.observe().recovering == 0
    assert world.failures == []


async def test_a_client_that_went_back_though_the_log_is_whole_reads_on_where_it_was(start):
    """As when the log ends before its position under one leader, and the next has all of it."""
    world = await start()
    world.publish(0, *range(5))
    await world.take_over(5)

    world.member.seek(*world.member.assignment(), 0)
    await world.settle()
    world.publish(0, 5)
    await world.committed({0: 6})

    assert world.outputs() == list(range(6))


async def test_a_recreated_topic_is_read_however_long_its_beginning_takes_to_find(start, monkeypatch):
    """A look-up that was cut short had taken the new topic's id, and was never repeated."""
    monkeypatch.setattr(log_changes, "_LOOK_UP_INTERVAL", 0.0)
    monkeypatch.setattr(log_changes, "_LOOK_UP_LIMIT", 0.01)
    world = await start()
    world.publish(0, *range(5))
    await world.take_over(5)
    seek = world.member.seek_to_beginning

    async def slowly(*partitions):
        await asyncio.sleep(0.05)
        await seek(*partitions)

    monkeypatch.setattr(world.member, "seek_to_beginning", slowly)
    world.create_again("raw-traces")
    world.publish(0, *range(100, 105))
    await world.until(lambda: len(world.outputs()) == 10)

    assert world.outputs()[5:] == list(range(100, 105))


async def test_a_partition_that_recovers_while_a_recreated_topic_is_sought_is_read_from_its_beginning(
    start, monkeypatch
):
    """It was read from the former topic's position on, and the records before were lost without a line."""
    monkeypatch.setattr(log_changes, "_LOOK_UP_INTERVAL", 0.0)
    first = await start()
    for partition in (0, 1):
        first.publish(partition, partition)
    await first.member.rebalance([0, 1])
    await first.committed({0: 1, 1: 1})
    await first.stop()

    second = await start(first.cluster)
    gate = second.reader.gates[1] = asyncio.Event()
    await second.member.rebalance([0, 1])
    await second.until(lambda: second.source.tasks[0].is_recovered)
    seek, sought, is_recovered = second.member.seek_to_beginning, asyncio.Event(), asyncio.Event()

    async def slowly(*partitions):
        await seek(*partitions)
        sought.set()
        await is_recovered.wait()

    monkeypatch.setattr(second.member, "seek_to_beginning", slowly)
    second.create_again("raw-traces")
    second.publish(1, 10, 11)
    await sought.wait()
    monkeypatch.setattr(second.member, "seek_to_beginning", seek)
    gate.set()
    await second.until(lambda: second.source.tasks[1].is_recovered)
    is_recovered.set()

    await second.finished(0, 1, 10, 11)


async def test_while_no_records_come_a_leader_that_is_down_holds_up_no_other_partition(start, monkeypatch):
    monkeypatch.setattr(log_changes, "_LOOK_UP_INTERVAL", 0.0)
    monkeypatch.setattr(log_changes, "_LOOK_UP_LIMIT", 0.01)
    world = await start()
    await world.member.rebalance([0, 1])
    await world.until(lambda: not world.app.readiness.reasons)
    look_up, asked = world.topic_ids.current, asyncio.Event()

    async def current(partitions):
        if 1 in partitions:
            asked.set()
            await asyncio.Event().wait()
        return await look_up(partitions)

    monkeypatch.setattr(world.topic_ids, "current", current)
    await asked.wait()
    world.publish(0, 1)

    await world.finished(1)


async def test_a_recreation_found_in_a_rebalance_is_left_to_the_next_assignment(start, monkeypatch):
    """Without partitions, the client sought the beginning of all, forever, and nothing was fetched again."""
    world = await start()
    world.cluster.fetches_by_id = False  # which would need no look-up
    await world.member.rebalance([0])
    await world.until(lambda: not world.app.readiness.reasons)
    look_up, seek = world.topic_ids.current, world.member.seek_to_beginning
    sought, has_asked = list[tuple[object, ...]](), asyncio.Event()

    async def current(partitions):
        if has_asked.is_set():
            return await look_up(partitions)
        await world.source.revoked()  # the rebalance begins while the leader is asked
        has_asked.set()
        return b"second"

    async def seek_to_beginning(*partitions):
        sought.append(partitions)
        await seek(*partitions)

    monkeypatch.setattr(world.topic_ids, "current", current)
    monkeypatch.setattr(world.member, "seek_to_beginning", seek_to_beginning)
    world.publish(0, 100)
    await has_asked.wait()
    for _ in range(10):
        await asyncio.sleep(0)  # what the answer starts gets its turn
    await world.member.rebalance([0])
    await world.finished(100)

    assert () not in sought


async def test_a_commit_for_the_topic_before_that_arrives_late_skips_nothing(start):
    """A commit names its topic by name only: one that was under way becomes a position in the new topic."""
    first = await start()
    first.publish(0, *range(5))
    await first.take_over(5)
    late = first.cluster.group.committed["raw-traces", 0].metadata
    await first.stop()
    first.create_again("raw-traces")
    second = await start(first.cluster)
    second.publish(0, 100, 101)
    await second.take_over(2)
    await second.stop()

    second.move_to(0, 5, late)
    third = await start(second.cluster)
    third.publish(0, *range(102, 110))
    await third.take_over(10)

    assert set(third.outputs()) == {*range(5), *range(100, 110)}


async def skipped(world):
    await world.check()
    return world.metric("kp_skipped_offsets_total")


async def after_five(start):
    """Return the brokers that a worker leaves which has committed five records."""
    world = await start()
    world.publish(0, *range(5))
    await world.take_over(5)
    await world.stop()
    return world.cluster


async def test_offsets_deleted_while_no_worker_ran_are_counted_and_logged(start, caplog):
    world = await start()
    world.move_to(0, 2)
    world.publish(0, *range(10))
    world.log(0).delete_before(5)
    await world.take_over(10)

    assert await skipped(world) == 3
    assert await skipped(world) == 3, "once"
    assert "partition 0: offsets 2 to 4 were deleted from raw-traces before they were read" in caplog.text


async def test_deleted_records_that_had_outputs_before_the_group_was_set_back_do_not_count(start):
    second = await start(await after_five(start))
    second.publish(0, *range(5, 10))
    second.move_to(0, 2)
    second.log(0).delete_before(7)
    await second.take_over(10)

    assert await skipped(second) == 2


async def test_offsets_deleted_behind_a_full_lane_are_counted(start):
    world = await start(in_flight_records=1)
    world.hold()
    world.publish(0, *range(30))
    await world.member.rebalance([0])
    await world.until(lambda: world.metric("kp_in_flight_records") == 1)
    await world.settle()

    world.log(0).delete_before(20)
    world.hold(False)
    await world.committed({0: 30})

    assert world.outputs()[-10:] == list(range(20, 30))
    assert len(world.outputs()) + await skipped(world) == 30


async def test_gaps_of_transactions_and_compaction_do_not_count_as_skipped(start):
    """Even if older records have been deleted after they were read."""
    world = await start()
    world.publish(0, 1)
    await world.take_over(1)
    world.log(0).skip(4)
    world.append("raw-traces", 0, b"5", b"")
    await world.committed({0: 6})
    world.log(0).delete_before(1)

    assert await skipped(world) == 0


@pytest.mark.parametrize(("first", "position", "count"), [(5, None, 0), (2, 6, 4)])
async def test_a_position_that_no_worker_committed_passes_over_records_and_none_passes_over_nothing(
    start, first, position, count
):
    world = await start()
    world.publish(0, *range(10))
    world.log(0).delete_before(first)
    if position is not None:
        world.move_to(0, position)
    await world.take_over(10)

    assert await skipped(world) == count


@pytest.mark.parametrize("position", [8, 10])
async def test_offsets_that_a_position_of_no_worker_passes_over_are_counted_and_logged(
    start, caplog, position
):
    """A consumer with group.protocol=consumer committed for a partition: 287 records were never scored."""
    second = await start(await after_five(start))
    second.publish(0, *range(5, 10))
    second.move_to(0, position)
    await second.member.rebalance([0])
    await second.settle()
    await second.take_over(10)

    assert await skipped(second) == position - 5
    assert await skipped(second) == position - 5, "once"
    assert set(second.outputs()) == {*range(5), *range(position, 10)}, "the position is obeyed"
    assert f"partition 0: offsets 5 to {position - 1} of raw-traces were not read" in caplog.text


async def test_a_position_that_workers_committed_before_their_last_is_not_obeyed(start, caplog):
    """A coordinator was elected that lacked the last positions: outputs were there twice."""
    second = await start(await after_five(start))
    second.publish(0, 5, 6)
    second.move_to(0, 2, metadata_of(Position(2, b"first")))
    await second.take_over(7)

    assert second.outputs() == [*range(7)]
    assert "has lost the last positions in raw-traces that workers committed, after 2" in caplog.text


async def test_a_position_beyond_the_end_is_not_obeyed(start, caplog):
    """The client began anew, so that outputs were there twice, and offsets were counted that are none."""
    second = await start(await after_five(start))
    second.publish(0, 5, 6)
    second.move_to(0, 30)
    await second.take_over(7)

    assert await skipped(second) == 0
    assert second.outputs() == [*range(7)]
    assert "to 30, beyond the end, 7; continuing from offset 5, as the ledger says" in caplog.text


async def test_a_workers_position_ahead_of_a_changelog_that_lost_records_passes_nothing_over(start, caplog):
    """With the changelog deleted, the next scores were other ones without a line."""
    second = await start(await after_five(start))
    second.create_again(second.changelog)
    second.publish(0, 5)
    await second.take_over(6)

    assert await skipped(second) == 0
    assert "partition 0: the changelog lacks the entries before offset 5" in caplog.text
    assert second.metric("kp_cache_resets_total", reason="lost") == 1


async def test_a_changelog_that_is_created_again_while_a_worker_runs_is_told_once(start, caplog):
    """Nothing told it: the next owner of the partition compared with nothing."""
    world = await start()
    world.publish(0, *range(5))
    await world.take_over(5)
    world.log(0, world.changelog).truncate(0)
    for offset in (5, 6):
        world.publish(0, offset)
        await world.committed({0: offset + 1})

    assert world.metric("kp_cache_resets_total", reason="lost") == 1
    assert caplog.text.count("-ledger-changelog was created again, or has lost its end") == 1


async def test_the_beginning_offsets_are_looked_up_again_after_a_broker_failure(start):
    world = await start()
    world.move_to(0, 2, metadata_of(Position(2, b"first")))
    world.publish(0, *range(10))
    world.log(0).delete_before(5)
    world.member.look_up_error = KafkaError("the broker is down")
    await world.take_over(10)

    assert await skipped(world) + await skipped(world) >= 3
    assert await skipped(world) == 3


async def test_lag_includes_open_transactions_which_have_a_gauge_of_their_own(start):
    world = await start()
    world.publish(0, *range(10))
    world.log(0).open_from = 4
    await world.take_over(4)
    await world.check()

    assert world.metric("kp_consumer_lag_records", partition="0") == 6
    assert world.metric("kp_open_transaction_records", partition="0") == 6

    world.log(0).open_from = None
    world.log(0).skip(0)
    await world.committed({0: 10})
    await world.check()
    assert world.metric("kp_consumer_lag_records", partition="0") == 0
    assert world.metric("kp_open_transaction_records", partition="0") == 0
