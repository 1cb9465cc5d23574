"""The tasks of an assignment: independent of each other, committed together, and dropped together."""

import asyncio
import dataclasses
import threading

import pytest

from knowledgepulse_kafka.commit_outcome import Committed, Throttled
from knowledgepulse_kafka.records import Location, Position
from knowledgepulse_kafka.throttle import LONG_THROTTLE
from knowledgepulse_kafka.transactional_publisher import TRANSACTION_TIMEOUT_MS
from knowledgepulse_worker.lane import assignment as assignment_module
from knowledgepulse_worker.lane import commit as commit_module
from knowledgepulse_worker.lane import fair_scheduler, partition_ledger, record_reader
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.process.quarantine import Caution, Quarantine
from support.lanes import commit, headers, score
from support.waits import Spin

pytestmark = pytest.mark.usefixtures("no_leaks")


async def take(assignment, record):
    """Take a record in its partition's task."""
    await assignment.tasks[record.partition].take(record)


async def processed(harness, assignment, *records):
    """Take records and commit them."""
    for record in records:
        await take(assignment, record)
    await committed(harness, assignment, {record.partition: record.offset + 1 for record in records})


def positions(assignment):
    """Return the position of each partition from which a record was taken."""
    return {number: task.committed for number, task in assignment.tasks.items() if task.lane is not None}


async def committed(harness, assignment, expected):
    """Commit until the tasks have reached positions."""
    spin = Spin()
    while not expected.items() <= positions(assignment).items():
        await commit(assignment, harness.publisher.publish)
        await spin.turn()


def nearest(output):
    return score(output)["nearest"]


async def test_traces_are_compared_only_within_their_partition(make_harness, raw):
    harness = make_harness()
    assignment = harness.assignment()

    await processed(harness, assignment, raw(0), raw(7, partition=2), raw(1), raw(8, partition=2))

    by_source = {dict(output.headers)["kp-source"]: nearest(output) for output in harness.outputs()}
    assert by_source == {
        b"raw-traces/0/0": None,
        b"raw-traces/0/1": "kp:trace:0/0",
        b"raw-traces/2/7": None,
        b"raw-traces/2/8": "kp:trace:2/7",
    }
    assert {record.partition for record in harness.outputs()} == {0, 2}
    assert all(sorted(harness.changelog(number).entries) == [b"0", b"1"] for number in (0, 2))
    assert harness.publisher.positions == {0: Position(2), 2: Position(9)}


async def test_each_changelog_knows_how_far_it_was_written(make_harness, raw):
    """If the partition stays, and another worker had it in between, recovery reads on from there."""
    harness = make_harness()
    assignment = harness.assignment()
    for offset, partition in ((0, 0), (0, 1), (1, 1)):
        await take(assignment, raw(offset, partition=partition))

    await committed(harness, assignment, {0: 1, 1: 2})

    assert [assignment.tasks[number].changelog.end for number in (0, 1)] == [2, 3]


async def test_one_transaction_commits_all_partitions(make_harness, raw):
    harness = make_harness()
    assignment = harness.assignment()
    for partition in range(3):
        await take(assignment, raw(0, b"no JSON", partition=partition))

    await commit(assignment, harness.publisher.publish)

    assert harness.publisher.transactions == 1
    assert harness.publisher.positions == dict.fromkeys(range(3), Position(1))


async def test_nothing_is_committed_while_nothing_happens(make_harness, raw):
    harness = make_harness()
    assignment = harness.assignment()
    await processed(harness, assignment, raw(0))

    assert await commit(assignment, harness.publisher.publish) == {}
    assert harness.publisher.transactions == 1


async def test_a_transaction_that_a_quota_holds_back_is_committed_later_in_small_parts(
    make_harness, raw, monkeypatch
):
    """A broker reads a second request after the transaction has timed out; all lanes get their turn."""
    monkeypatch.setattr(commit_module, "THROTTLED_BYTES", 1)
    harness = make_harness()
    assignment, throttle = harness.assignment(), harness.services.throttles.producer
    for offset, partition in ((0, 0), (1, 0), (0, 1)):
        await take(assignment, raw(offset, b"no JSON", partition=partition))
    harness.publisher.is_throttled = True

    assert await commit(assignment, harness.publisher.publish) == {}
    throttle.note(1.0)
    harness.publisher.is_throttled = False
    assert await commit(assignment, harness.publisher.publish) == {}  # the throttle time is not over
    monkeypatch.setattr(throttle, "_until", 0.0)
    positions = [await commit(assignment, harness.publisher.publish) for _ in range(3)]

    assert positions == [{0: 1}, {0: 2}, {1: 1}]
    assert harness.metric("kp_aborted_transactions_total", reason="throttled") == 1


async def test_what_a_broker_refuses_under_a_quota_is_found_with_one_batch_a_partition(make_harness, raw):
    """Batches of their own would be held back, and the same records would be refused again."""
    harness = make_harness()
    assignment, throttle = harness.assignment(), harness.services.throttles.producer
    for offset, partition in ((0, 1), (0, 0), (1, 0), (2, 0)):
        await take(assignment, raw(offset, b"no JSON", partition=partition))
    harness.publisher.refused_in_batch.add(harness.dead_letter)
    throttle.note(LONG_THROTTLE)

    async def publish(records, positions, alone=()):
        places = [(record.topic, record.partition) for record in records]
        if any(places.count((record.topic, record.partition)) > 1 for record in alone if record in records):
            return Throttled("a batch is held back")
        return await harness.publisher.publish(records, positions, alone)

    throttle._until = 0.0
    positions = [await commit(assignment, publish) for _ in range(4)]

    assert positions == [{0: 1}, {0: 2}, {0: 3, 1: 1}, {}]
    assert harness.metric("kp_aborted_transactions_total", reason="throttled") == 0


async def test_a_replacement_outlives_an_attempt_that_a_quota_ends(make_harness, raw):
    """Otherwise the broker would refuse the same record in one transaction after another."""
    harness = make_harness()
    assignment, sent = harness.assignment(), []
    await take(assignment, raw(0, b"no JSON"))
    harness.publisher.refused.add(harness.dead_letter)

    async def publish(records, positions, alone=()):
        sent.append(next(record for record in records if record.topic == harness.dead_letter))
        outcome = await harness.publisher.publish(records, positions, alone)
        harness.publisher.refused.clear()
        harness.publisher.is_throttled = not harness.publisher.is_throttled
        return outcome

    positions = [await commit(assignment, publish) for _ in range(2)]

    refused, shortened, again = sent
    assert positions == [{}, {0: 1}]
    assert shortened is again
    assert shortened is not refused
    assert harness.services.replacements.count == 1


async def test_a_lane_yields_to_the_others_after_a_large_record(make_harness, raw, monkeypatch):
    """Otherwise the others' records wait for one large record after another."""
    harness = make_harness()
    assignment = harness.assignment()
    sleep, pauses = asyncio.sleep, []

    async def sleeping(seconds):
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(fair_scheduler.asyncio, "sleep", sleeping)
    large = {"padding": fair_scheduler.LARGE_BYTES}

    await processed(harness, assignment, raw(0, **large))
    assert not pauses  # it is the only lane
    await processed(harness, assignment, raw(0, partition=1), raw(1))
    assert not pauses
    await processed(harness, assignment, raw(2, **large))
    assert len(pauses) == 1

    monkeypatch.setattr(fair_scheduler, "YIELD_FACTOR", 1e9)
    await processed(harness, assignment, raw(3, **large))
    assert pauses[-1] == harness.limits.stall / 10  # a longer pause would look like a stall


async def test_a_suspect_is_cleared_once_its_outcome_is_committed(make_harness, raw):
    """Otherwise the verdict would stay Poison, and a death much later would count against the record."""
    harness = make_harness()
    quarantine = Quarantine(Caution(suspects=frozenset({Location(0, 0)})))
    harness.services = dataclasses.replace(harness.services, quarantine=quarantine)
    assignment = harness.assignment()
    taking = asyncio.create_task(take(assignment, raw(0)))

    await committed(harness, assignment, {0: 1})
    await taking

    assert not quarantine.any


async def test_a_suspect_that_waits_for_its_turn_gets_no_lane_after_its_assignment(make_harness, raw):
    """The end of the assignment is what ends its wait; nothing would close the lane."""
    harness = make_harness()
    quarantine = Quarantine(Caution(below={1: 1}), most=1)
    harness.services = dataclasses.replace(harness.services, quarantine=quarantine)
    harness.embedder.free.clear()
    assignment = harness.assignment()
    await take(assignment, raw(0))
    suspect = asyncio.create_task(take(assignment, raw(0, partition=1)))
    await harness.settle()

    assignment.close()
    harness.embedder.free.set()
    await suspect

    assert assignment.lanes == []
    assert harness.failures == []


async def test_what_was_taken_before_a_position_moves_back_is_committed_first(make_harness, raw):
    """The next lane commits a position behind it, so that no one would read it again."""
    harness = make_harness()
    assignment = harness.assignment()
    await take(assignment, raw(0))
    await take(assignment, raw(1))

    taking = asyncio.create_task(take(assignment, raw(1)))
    await harness.settle()
    assert not taking.done()

    await committed(harness, assignment, {0: 2})
    await taking
    await committed(harness, assignment, {0: 2})
    assert [headers(output)["kp-source"] for output in harness.outputs()][:2] == [
        b"raw-traces/0/0",
        b"raw-traces/0/1",
    ]


async def test_a_position_that_moves_back_gets_another_lane_without_an_embedder_too(make_harness, raw):
    """Records that nothing has to wait for are taken at once, but only those that continue the lane."""
    harness = make_harness(embedding=False)
    assignment = harness.assignment()
    task = assignment.tasks[0]
    task.feed([raw(0), raw(1)])
    await committed(harness, assignment, {0: 2})
    former = task.lane

    task.feed([raw(1)])

    await harness.until(lambda: task.lane is not former)


async def test_a_position_that_moves_back_gets_no_lane_after_its_assignment(make_harness, raw):
    """Nothing would close it: it would score the same records as the partition's next owner."""
    harness = make_harness()
    harness.embedder.free.clear()
    assignment = harness.assignment()
    await take(assignment, raw(5))
    taking = asyncio.create_task(take(assignment, raw(3)))
    await harness.settle()
    assignment.close()

    harness.embedder.free.set()
    await taking

    assert assignment.lanes == []
    assert harness.failures == []


async def test_a_large_ledger_is_opened_beside_the_event_loop(make_harness, raw, monkeypatch):
    """It takes seconds: other lanes and the group's heartbeats go on, and the partition may leave."""
    changelogs = {0: Changelog(0)}
    old = make_harness()
    await processed(old, old.assignment(changelogs), raw(0))
    monkeypatch.setattr(partition_ledger, "LARGE_LEDGER", 0)
    harness = make_harness()
    opening, go_on = threading.Event(), threading.Event()
    valid_content = partition_ledger.valid_content

    def slow_content(*args, **kwargs):
        opening.set()
        assert go_on.wait(60)
        return valid_content(*args, **kwargs)

    monkeypatch.setattr(partition_ledger, "valid_content", slow_content)
    assignment = harness.assignment(changelogs)
    taking = asyncio.create_task(take(assignment, raw(1)))
    assert await asyncio.to_thread(opening.wait, 60)
    await harness.settle()
    assert not taking.done()

    go_on.set()
    await taking
    await committed(harness, assignment, {0: 2})

    assert nearest(harness.outputs()[0]) == "kp:trace:0/0"


# --- fatal errors


async def test_an_unexpected_decoding_error_is_fatal_and_loses_no_record(make_harness, raw, monkeypatch):
    """No record behind it is taken, whose position would be committed."""
    error = RuntimeError("a defect")

    def decode(value, *limits):
        if value == b"no JSON":
            raise error
        return decode_scorable(value, *limits)

    decode_scorable = record_reader.decode_scorable
    monkeypatch.setattr(record_reader, "decode_scorable", decode)
    harness = make_harness()
    task = harness.assignment().tasks[0]

    task.feed([raw(0, b"no JSON"), raw(1, b"{}")])
    task.feed([raw(2, b"{}")])
    await harness.settle()

    assert (task.committed, task.lane.taken) == (0, 1)
    assert harness.failures == [error]


async def test_a_transaction_has_no_more_partitions_than_fit_in_half_of_its_timeout(
    make_harness, raw, monkeypatch
):
    """With 1,000 partitions, one took longer than brokers wait, and all ledgers were recovered."""
    assert assignment_module.LONGEST_TRANSACTION == TRANSACTION_TIMEOUT_MS / 2000
    monkeypatch.setattr(assignment_module, "FIRST_PARTITIONS", 2)
    monkeypatch.setattr(assignment_module, "LEAST_PARTITIONS", 1)
    harness = make_harness()
    assignment = harness.assignment()
    for partition in (2, 0, 1):
        await take(assignment, raw(0, partition=partition))
    await harness.until(lambda: sum(len(lane.uncommitted.complete()) for lane in assignment.lanes) == 3)

    first = assignment.prepare()
    assert (set(first.positions), assignment.has_left_out) == ({2, 0}, True)
    monkeypatch.setattr(assignment_module.time, "monotonic", lambda: first.began + 10)
    assignment.settle(first, await harness.publisher.commit(first))
    second = assignment.prepare()

    assert (set(second.positions), assignment.has_left_out) == ({1}, False)
    assert assignment._most == 1
    monkeypatch.setattr(assignment_module.time, "monotonic", lambda: second.began + 0.01)
    assignment.settle(second, await harness.publisher.commit(second))
    assert assignment._most > 490


@pytest.mark.parametrize("offsets", [range(-1, 0), range(1000)], ids=["too few", "too many"])
async def test_offsets_of_other_records_are_not_taken_for_those_of_a_transaction(make_harness, raw, offsets):
    """A wrong offset would let the next owner cut, or read twice, what the changelog has."""
    harness = make_harness()
    assignment = harness.assignment()
    await take(assignment, raw(0))
    await harness.until(assignment.lanes[0].uncommitted.complete)

    with pytest.raises(ValueError, match="zip"):
        assignment.settle(assignment.prepare(), Committed([*offsets]))
