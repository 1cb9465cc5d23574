"""The simulated brokers reproduce the surprising behaviour of real Kafka."""

import asyncio
import gc

import pytest
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import OutOfOrderSequenceNumber
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.errors import RefusedError
from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.testing.brokers import SimTopic, new_cluster
from knowledgepulse_kafka.testing.member import SimMember
from knowledgepulse_kafka.testing.transactional_producer import SimProducer
from knowledgepulse_kafka.testing.virtual_time import Process
from knowledgepulse_kafka.testing.virtual_time import run as run_in_virtual_time
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.throttling import HeldBackError

AT = TopicPartition("raw", 0)


class Listener(ConsumerRebalanceListener):
    def __init__(self):
        self.assigned = asyncio.Event()

    async def on_partitions_revoked(self, revoked):
        self.assigned.clear()

    async def on_partitions_assigned(self, assigned):
        self.assigned.set()


@pytest.fixture
def simulated():
    """Run a coroutine function with a cluster in virtual time."""

    def run(main):
        async def course():
            return await main(new_cluster())

        return run_in_virtual_time(course)

    return run


def record(partition=0, value=b"v"):
    return OutputRecord("raw", partition, 0, b"k", value, ())


async def joined(cluster, host="host"):
    member, listener = SimMember(cluster, host, ("raw",), 10, 10), Listener()
    member.subscribe(topics={"raw"}, listener=listener)
    await listener.assigned.wait()
    return member


def test_positions_are_not_lost_while_a_new_coordinator_loads_the_group(simulated):
    async def main(cluster):
        cluster.create(SimTopic.new("raw", 1))
        member = await joined(cluster)
        cluster.group.committed["raw", 0] = OffsetAndMetadata(7, "")
        cluster.group.move(1, loading=3.0)
        started = cluster.loop.time()
        return await member.committed([AT]), cluster.loop.time() - started

    positions, seconds = simulated(main)
    assert positions[AT].offset == 7
    assert seconds >= 3


async def publishing(cluster, transactional_id="id", **given):
    producer = SimProducer(
        cluster,
        "host",
        lambda _: None,
        transactional_id=transactional_id,
        transaction_timeout_ms=10_000,
        **given,
    )
    await producer.start()
    return producer


async def ended(cluster):
    """Wait until the markers of all transactions are written."""
    while not cluster.transactions.have_ended:
        await asyncio.sleep(0.1)


async def send(producer, *records):
    """Send records, each to its partition in a batch of its own; return their offsets."""
    sent = []
    for message in records:
        sent += await producer.send_batches(TopicPartition("raw", message.partition), [message], [])
    return [await batch.written() for batch in sent]


def test_of_a_request_some_batches_may_be_written_and_others_not(simulated):
    """The producer resends only the batches that were not written."""

    async def main(cluster):
        topic = SimTopic.new("raw", 4)
        cluster.create(topic)
        for partition in range(4):
            cluster.leaders["raw", partition] = 0
        cluster.starved.add(0)
        async with await publishing(cluster) as producer:
            sending = asyncio.create_task(send(producer, *map(record, range(4))))
            while not (written := sum(log.end for log in topic.logs)):
                await asyncio.sleep(0.001)
            await sending
        await ended(cluster)
        return written, [len(log.committed()) for log in topic.logs]

    written, committed = simulated(main)
    assert 0 < written < 4
    assert committed == [1, 1, 1, 1]


def test_a_lost_answer_repeats_no_batch(simulated):
    """The brokers recognize a batch that is sent again, and give its offset."""

    async def main(cluster):
        topic = SimTopic.new("raw", 1)
        cluster.create(topic)
        async with await publishing(cluster) as producer:
            await send(producer, record())
            cluster.network.deaf.add(("host", cluster.leader("raw", 0)))
            sending = asyncio.create_task(send(producer, record(value=b"again")))
            await asyncio.sleep(0.05)
            cluster.network.deaf.clear()
            offsets = await sending
        await ended(cluster)
        return offsets, [record.value for record in topic.logs[0].committed()]

    assert simulated(main) == ([1], [b"v", b"again"])


def test_after_a_refused_batch_a_producer_can_write_no_more_to_the_partition(simulated):
    async def main(cluster):
        cluster.create(SimTopic.new("raw", 1, max_bytes=10))
        async with await publishing(cluster) as producer:
            with pytest.raises(RefusedError):
                await send(producer, record(value=b"v" * 10))
            with pytest.raises(OutOfOrderSequenceNumber):
                await send(producer, record())
        async with await publishing(cluster) as producer:
            return await send(producer, record())

    assert simulated(main) == [1]  # behind the marker of the first transaction


def test_a_producer_that_exceeds_its_quota_is_answered_at_once_and_read_again_later(simulated):
    """The client waits for as long as it was told, since the broker would not read it."""

    async def main(cluster):
        cluster.create(SimTopic.new("raw", 1))
        cluster.quota = 10.0
        times = []
        async with await publishing(cluster) as producer:
            for _ in range(2):
                started = cluster.loop.time()
                await send(producer, record(value=b"v" * 39))
                times.append(cluster.loop.time() - started)
        return times

    first, second = simulated(main)
    assert first < 1
    assert 3 <= second < 4


def test_records_that_a_quota_would_keep_from_a_transaction_until_its_deadline_are_not_sent(simulated):
    async def main(cluster):
        cluster.create(SimTopic.new("raw", 1))
        cluster.quota = 1.0
        throttle = Throttle(clock=cluster.loop.time)
        producer = await publishing(cluster, throttle=throttle)
        throttle.begin_sending(5.0)
        with pytest.raises(HeldBackError):
            async with producer:
                await send(producer, record(value=b"v" * 20), record())
        return throttle.recent

    assert simulated(main) > 5


@pytest.fixture
def reported():
    """Return a list, and a function that puts the errors that nobody reads in a loop there."""
    errors = []

    def report(loop):
        loop.set_exception_handler(lambda _, context: errors.append(context["message"]))

    return errors, report


def test_the_error_of_a_request_that_nobody_waits_for_any_more_is_not_reported(simulated, reported):
    """A commit gives up the positions once its records failed; each simulation printed these errors."""
    errors, report = reported

    async def main(cluster):
        report(cluster.loop)
        cluster.create(SimTopic.new("raw", 1))
        member = await joined(cluster)
        producer = await publishing(cluster)
        await publishing(cluster)  # which fences off the first
        sending = asyncio.create_task(
            producer.send_group_offsets({AT: OffsetAndMetadata(7, "")}, member.group)
        )
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait([sending])
        await producer.stop()

    simulated(main)
    gc.collect()
    assert errors == []


def test_the_error_with_which_a_killed_process_ends_is_not_reported(simulated, reported):
    """Nobody is left to read it; each simulation printed it."""
    errors, report = reported

    async def fail():
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    async def main(cluster):
        report(cluster.loop)
        process = Process("killed")
        process.start(fail())
        await asyncio.sleep(1)
        process.is_dead = True

    simulated(main)
    gc.collect()
    assert errors == []
