"""A cluster of three brokers, one of which dies: a coordinator, a leader of partitions, or a replica."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.client import AIOKafkaClient

from chaos.brokers import running_brokers
from chaos.play import judge, play
from chaos.rows import ROWS
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from support import metrics_page as page
from support.kafka_release import needs_kafka
from support.streams import Stream, admin_of, headers_of, own_settings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]  # three brokers start, and start again

LIMIT = 120


@pytest.fixture(scope="module")
def brokers():
    with running_brokers(3) as brokers:
        yield brokers


@pytest.mark.timeout(900)  # every wait in a row has its own limit
async def test_every_outcome_is_committed_once_although_a_coordinator_dies(brokers, tmp_path):
    """The short form of a row of chaos: each worker has a transaction open then."""
    row = ROWS["coordinators"]
    judge(row, await play(row, row.short, brokers, tmp_path, print))


@pytest.fixture
async def stream(brokers, tmp_path):
    """A stream whose raw topic has a partition on the first two nodes and allows unclean elections."""
    stream = Stream(own_settings(brokers.direct, "unclean", {"embedding": {"backend": "lexical"}}), tmp_path)
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    async with admin_of(brokers.direct) as admin:
        raw = NewTopic(stream.settings.topics.raw, -1, -1, {0: [1, 2]}, config)
        await admin.create_topics([raw])
    async with TopicAdmin(stream.settings.kafka, stream.settings.topics) as admin:
        await admin.create_missing(1, replication_factor=3)
    return stream


async def produce(stream, values, partition=0):
    """Publish traces; return once the leader has them."""
    async with AIOKafkaProducer(bootstrap_servers=stream.settings.kafka.bootstrap_servers) as producer:
        for value in values:
            await producer.send_and_wait(stream.settings.topics.raw, value, partition=partition)


async def leads(stream, node):
    """Wait until a node leads the raw topic's partition."""
    client = AIOKafkaClient(bootstrap_servers=stream.settings.kafka.bootstrap_servers)
    await client.bootstrap()
    await client.set_topics([stream.settings.topics.raw])
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                await client.force_metadata_update()
                partitions = client.cluster._partitions.get(stream.settings.topics.raw, {})
                if [partition.leader for partition in partitions.values()] == [node.number]:
                    return
                await asyncio.sleep(0.2)
    finally:
        await client.close()


async def score_beyond(follower, worker, stream, traces):
    """Let a worker score 20 records, of which the follower lacks the last 10."""
    await produce(stream, traces[:10])
    await worker.published(10)
    await follower.kill()
    await produce(stream, traces[10:20])
    await worker.published(20)


async def require_one_output_each(stream, metrics, shown):
    """Check that each of 45 records got an output, of which 10 are gone, and that this was told.

    ``shown``: the truncation on the status page.
    """
    outputs, raw = await stream.all_outputs(), stream.settings.topics.raw
    held = await stream.read(raw)
    assert len(held) == 35
    assert len(outputs) == 45
    sources = {headers_of(output)["kp-source"] for output in outputs}
    assert sources == {f"{raw}/0/{record.offset}" for record in held}
    assert page.value(metrics, "kp_truncated_offsets_total") == 10
    assert (shown["partition"], shown["first"], shown["offsets"]) == (0, 10, 10)


async def truncations(worker):
    """Return the truncations that the status page shows."""
    return json.loads((await worker.get("/api/status"))[1])["truncations"]


@needs_kafka("3.9")  # 3.3 in KRaft mode elects no leader by unclean.leader.election.enable
async def test_a_running_worker_goes_back_to_the_first_difference(brokers, stream, real_traces):
    """It reads on at an offset that the log no longer has, or at which it has another record."""
    first, second, _ = brokers.nodes
    async with stream.worker() as worker:
        await score_beyond(second, worker, stream, real_traces)
        await first.kill()
        await second.start_again()
        await leads(stream, second)
        await produce(stream, real_traces[20:45])
        await worker.published(45)
        metrics = await worker.metrics()
        (shown,) = await truncations(worker)
        await first.start_again()
        assert await worker.stop() == 0

    await require_one_output_each(stream, metrics, shown)
    assert "starting it again in" not in worker.log()


async def test_partitions_without_a_leader_or_with_too_few_replicas_are_named(brokers, tmp_path, real_traces):
    stream = Stream(own_settings(brokers.direct, "leaderless", {"embedding": {"backend": "none"}}), tmp_path)
    raw = stream.settings.topics.raw
    async with admin_of(brokers.direct) as admin:
        await admin.create_topics([NewTopic(raw, -1, -1, {0: [1], 1: [2]}, {"min.insync.replicas": "1"})])
        outputs = {partition: [1, 3] for partition in (0, 1)}
        await admin.create_topics([NewTopic(name, -1, -1, outputs) for name in stream.settings.topics.scored])
    async with TopicAdmin(stream.settings.kafka, stream.settings.topics) as admin:
        await admin.create_missing(2, replication_factor=3)

    async with stream.worker() as worker:
        await worker.owns(2)
        await produce(stream, real_traces[:5], partition=1)
        await worker.published(5)
        await brokers.nodes[1].kill()
        reason = (
            f"Waiting for Kafka: no answer from partition leaders for .*; Metadata to {raw}/1: LEADER_NOT_"
        )
        await worker.says(reason)
        await produce(stream, real_traces[5:10], partition=0)
        await worker.published(10)
        await brokers.nodes[1].start_again()
        await produce(stream, real_traces[10:15], partition=1)
        await worker.published(15)
        await worker.says("Healthy")

        await brokers.nodes[2].kill()
        await produce(stream, real_traces[15:20], partition=0)
        reason = "Waiting for Kafka: .*; Produce to .*: 1 of 2 replicas in sync"
        await worker.says(rf"{reason} \(min\.insync\.replicas\)")
        assert 'request="Produce"' in await worker.metrics()
        for name in stream.settings.topics.scored:
            await stream.configure_topic(name, {"min.insync.replicas": "1"})
        outputs = await stream.outputs(worker, await stream.read(raw))
        await worker.says("Healthy")
    assert len(outputs) == 20
