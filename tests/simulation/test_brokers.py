"""The simulated brokers reproduce the surprising behaviour of real Kafka."""

import asyncio
import math

import pytest
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.kafka.lease import Lease
from knowledgepulse_worker.records.record import OutputRecord
from simulation import loop
from simulation.brokers import SimTopic, new_cluster
from simulation.member import SimMember
from simulation.producer import SimPublisher

AT = TopicPartition("raw", 0)
POSITION = OffsetAndMetadata(1, "")


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

        return loop.run(course)

    return run


def record(partition=0, value=b"v"):
    return OutputRecord("raw", partition, 0, b"k", value, ())


async def joined(cluster, host="host"):
    member, listener = SimMember(cluster, host, ("raw",), Lease(10), 10, 10), Listener()
    member.subscribe(topics={"raw"}, listener=listener)
    await listener.assigned.wait()
    return member


def test_positions_are_not_lost_while_a_new_coordinator_loads_the_group(simulated):
    async def main(cluster):
        cluster.create(SimTopic.new("raw", 1))
        member = await joined(cluster)
        await member.commit({AT: OffsetAndMetadata(7, "")})
        cluster.group.move(1, loading=3.0)
        started = cluster.loop.time()
        return await member.committed(AT), cluster.loop.time() - started

    position, seconds = simulated(main)
    assert position.offset == 7
    assert seconds >= 3


def test_an_open_transaction_holds_back_what_others_append_behind_it(simulated):
    async def main(cluster):
        topic = SimTopic.new("raw", 1)
        cluster.create(topic)
        member = await joined(cluster)
        topic.logs[0].append([record(value=b"before")], 0)
        topic.logs[0].open_from = topic.logs[0].end
        topic.logs[0].append([record(value=b"aborted")], 0)
        fetched = []
        for _ in range(5):
            fetched += (await member.getmany(timeout_ms=200)).get(AT, [])
        high, stable = member.highwater(AT), member.last_stable_offset(AT)
        topic.logs[0].abort()
        topic.logs[0].append([record(value=b"after")], 0)
        for _ in range(5):
            fetched += (await member.getmany(timeout_ms=200)).get(AT, [])
        return [one.value for one in fetched], high, stable

    assert simulated(main) == ([b"before", b"after"], 2, 1)


def test_of_a_request_some_batches_may_be_written_and_others_not(simulated):
    """The producer resends only the batches that were not written."""

    async def main(cluster):
        topic = SimTopic.new("raw", 4)
        cluster.create(topic)
        for partition in range(4):
            cluster.leaders["raw", partition] = 0
        cluster.starved.add(0)
        lease = Lease(math.inf)
        lease.renew(0)
        publisher = SimPublisher(cluster, "host", lease, timeout=30)
        deliveries = [await publisher.send(record(partition)) for partition in range(4)]
        await asyncio.wait(deliveries, return_when=asyncio.FIRST_COMPLETED)
        written = sum(log.end for log in topic.logs)
        await asyncio.gather(*deliveries)
        return written, [log.end for log in topic.logs]

    written, ends = simulated(main)
    assert 0 < written < 4
    assert ends == [1, 1, 1, 1]


def test_a_lost_answer_repeats_a_batch(simulated):
    """The producer is not idempotent, so consumers drop repeated records by their source."""

    async def main(cluster):
        topic = SimTopic.new("raw", 1)
        cluster.create(topic)
        cluster.network.deaf.add(("host", cluster.leader("raw", 0)))
        lease = Lease(math.inf)
        lease.renew(0)
        publisher = SimPublisher(cluster, "host", lease, timeout=30)
        delivery = await publisher.send(record())
        await asyncio.sleep(0.05)
        cluster.network.deaf.clear()
        await delivery
        return topic.logs[0].end

    assert simulated(main) == 2


def test_a_commit_of_a_former_member_is_taken_by_an_empty_group_only(simulated):
    async def main(cluster):
        cluster.create(SimTopic.new("raw", 1))
        outcomes = []
        cluster.group.commit(0, "", -1, {("raw", 0): POSITION}, outcomes.append)
        await joined(cluster)
        cluster.group.commit(0, "", -1, {("raw", 0): POSITION._replace(offset=2)}, outcomes.append)
        return [type(one).__name__ for one in outcomes], cluster.group.committed

    assert simulated(main) == (["NoneType", "UnknownMemberIdError"], {("raw", 0): POSITION})
