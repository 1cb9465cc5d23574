"""The worker's verdict on itself while its reasons are real, and once they are gone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from chaos.brokers import running_brokers
from chaos.embedder import Order, Orders
from chaos.process import HELD, HOLD, HOLD_START, MUTE, ORDERS, RELEASE, UNMUTE
from knowledgepulse_kafka.group_member import GroupMember
from support import metrics_page as page
from support.kafka_release import needs_kafka
from support.processes import send, tree
from support.streams import Message, Stream, own_settings

pytestmark = pytest.mark.integration

LIMIT = 120
LEXICAL = {"embedding": {"backend": "lexical"}}


@pytest.fixture(scope="module")
def brokers():
    """A broker that no other module uses."""
    with running_brokers(1) as brokers:
        yield brokers


@pytest.fixture
async def own_stream(brokers, tmp_path):
    """A stream on that broker."""
    stream = Stream(own_settings(brokers.direct, "verdict", LEXICAL), tmp_path)
    await stream.create_topics(2)
    return stream


@pytest.fixture
def orders(tmp_path):
    """What the embedder of :func:`faulty` is told."""
    return Orders(tmp_path / "orders.json", Order())


def faulty(stream, orders):
    """Start a worker in which signals inject faults."""
    return stream.worker(module="chaos.process", environment={ORDERS: str(orders.path)})


def signal_child(worker, number):
    send(tree(worker.process.pid)[1:], number)


async def becomes(worker, state, reason=""):
    """Wait until the verdict has this state, for this reason, in probe, page, metric and log.

    The probe may be a heartbeat behind, and on a busy machine the state may change meanwhile.
    """
    async with asyncio.timeout(LIMIT):
        while True:
            found = await worker.verdict()
            shown = json.loads((await worker.get("/api/status"))[1])["verdict"]
            metrics = (await worker.get("/metrics"))[1]
            if (
                (found["state"], shown["state"], shown["since"]) == (state, state, found["since"])
                and page.value(metrics, "kp_state", state=state) == 1
                and reason in found["text"]
                and reason in worker.log()
            ):
                return found
            await asyncio.sleep(0.1)


async def publish(stream, traces):
    await stream.publish([Message(trace, b"key", partition=0) for trace in traces])


async def test_a_worker_whose_broker_hangs_waits_for_kafka_until_it_is_back(brokers, own_stream, real_traces):
    """Its page said "live", and its probe "ready", with a lag of 0."""
    await publish(own_stream, real_traces[:5])
    async with own_stream.worker() as worker:
        await worker.published(5)
        assert (await becomes(worker, "healthy"))["text"] == "Healthy"

        broker = brokers.nodes[0].process.pid
        os.kill(broker, signal.SIGSTOP)
        try:
            waiting = await becomes(worker, "waiting_for_kafka", "Waiting for Kafka: no answer from ")
            assert waiting["runbook"] == "KpWaiting"
        finally:
            os.kill(broker, signal.SIGCONT)
        await becomes(worker, "healthy")
    assert worker.told_once("Waiting for Kafka: no answer from ")
    assert "Waiting for Kafka: over after " in worker.log()


async def test_a_worker_that_is_cut_off_from_its_coordinator_says_so(make_stream, orders, real_traces):
    """Partition leaders answer it, so the lag is 0 until the group expels it, and beyond."""
    stream = await make_stream(2)
    async with faulty(stream, orders) as worker:
        await worker.owns(2)
        await becomes(worker, "healthy")

        signal_child(worker, MUTE)
        reason = "Waiting for Kafka: no answer from the group's coordinator for "
        assert (await becomes(worker, "waiting_for_kafka", reason))["runbook"] == "KpWaiting"
        while await stream.members():  # for longer than the session timeout
            await asyncio.sleep(0.2)
        await becomes(worker, "waiting_for_kafka", reason)
        signal_child(worker, UNMUTE)
        await becomes(worker, "healthy")
        await publish(stream, real_traces[:5])
        await worker.published(5)
    assert worker.told_once(reason)


async def test_a_worker_whose_transaction_does_not_end_waits_for_kafka(make_stream, orders, real_traces):
    """Coordinator and leaders answer while too few replicas are in sync to write."""
    stream = await make_stream(2)
    async with faulty(stream, orders) as worker:
        await worker.owns(2)
        await becomes(worker, "healthy")

        signal_child(worker, HOLD["commit"])
        await publish(stream, real_traces[:5])
        await worker.logged(HELD)
        await becomes(worker, "waiting_for_kafka", "Waiting for Kafka: a transaction has not been committed")
        signal_child(worker, RELEASE)
        await becomes(worker, "healthy")


async def test_a_worker_that_starts_again_without_a_transaction_coordinator_waits_for_kafka(
    make_stream, orders, real_traces, tmp_path
):
    """Its probe said that it was starting, for as long as nothing answered its producer."""
    stream, away = await make_stream(2), tmp_path / "away"
    environment = {ORDERS: str(orders.path), HOLD_START: str(away)}
    async with stream.worker(module="chaos.process", environment=environment) as worker:
        await worker.owns(2)
        await becomes(worker, "healthy")

        away.touch()
        signal_child(worker, signal.SIGKILL)
        reason = "Waiting for Kafka: no answer from the transaction coordinator for "
        await worker.says(reason)
        away.unlink()
        await becomes(worker, "healthy")
        await publish(stream, real_traces[:5])
        await worker.published(5)
    assert worker.told_once(reason)


@asynccontextmanager
async def foreign_member(stream):
    """Have a consumer with group.protocol=consumer read the raw topic in the workers' group."""
    kafka = stream.settings.kafka
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": kafka.group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([stream.settings.topics.raw])

    async def poll():
        while True:
            await asyncio.to_thread(consumer.poll, 0.1)

    polling = asyncio.create_task(poll())
    try:
        async with asyncio.timeout(LIMIT):
            while not consumer.assignment():
                await asyncio.sleep(0.1)
        yield consumer
    finally:
        polling.cancel()
        await asyncio.wait([polling])
        await asyncio.to_thread(consumer.close)


@needs_kafka("4.0")
async def test_a_worker_in_a_group_that_a_client_with_kip_848_joined_first_says_so(own_stream, real_traces):
    """It was "Healthy", while the client had half of the partitions and committed past their records."""
    raw = own_stream.settings.topics.raw
    for partition in (0, 1):
        await own_stream.publish([Message(trace, partition=partition) for trace in real_traces[:5]])
    async with AsyncExitStack() as stack:
        async with foreign_member(own_stream) as consumer:
            worker = await stack.enter_async_context(own_stream.worker())
            await worker.owns(1)
            reason = "Foreign member: a client with group.protocol=consumer is in the workers' group"
            assert (await becomes(worker, "foreign_member", reason))["runbook"] == "foreign_member"
            await worker.published(5)
            (place,) = consumer.assignment()
            passed_over = Position(raw, place.partition, 5)
            await asyncio.to_thread(consumer.commit, offsets=[passed_over], asynchronous=False)
        await own_stream.publish([Message(trace, partition=place.partition) for trace in real_traces[5:10]])
        await worker.published(10)
        await becomes(worker, "healthy")
        assert page.value(await worker.metrics(), "kp_skipped_offsets_total") == 5


class Reluctant(ConsumerRebalanceListener):
    """Keeps its partitions in a rebalance until it is told to give them up."""

    def __init__(self):
        self.owns, self.gives_up = asyncio.Event(), asyncio.Event()

    async def on_partitions_assigned(self, assigned):
        if assigned:
            self.owns.set()

    async def on_partitions_revoked(self, revoked):
        if revoked:
            await self.gives_up.wait()


async def test_a_worker_that_waits_for_another_member_of_its_group_says_so(own_stream):
    """Its coordinator answers, but not before the other member has joined again."""
    kafka, listener = own_stream.settings.kafka, Reluctant()
    member = GroupMember(kafka.client_config(), 10**6, rebalance_timeout=LIMIT)
    await member.start()
    try:
        member.subscribe([own_stream.settings.topics.raw], listener=listener)
        async with asyncio.timeout(LIMIT):
            await listener.owns.wait()
        async with own_stream.worker() as worker:
            await worker.logged("scoring ")
            reason = f"; JoinGroup to {kafka.bootstrap_servers}: no answer for "
            found = await becomes(worker, "waiting_for_kafka", reason)
            assert found["text"].startswith("Waiting for Kafka: the group has been rebalancing for ")
            listener.gives_up.set()
            await worker.owns(1)
            await becomes(worker, "healthy")
    finally:
        listener.gives_up.set()
        await member.stop()


async def test_a_position_that_a_stranger_holds_back_keeps_only_its_own_partition(own_stream, real_traces):
    """No partition was read, without a line, for as long as the stranger's transaction was open."""
    kafka, raw = own_stream.settings.kafka, own_stream.settings.topics.raw
    for partition in (0, 1):
        await own_stream.publish([Message(trace, partition=partition) for trace in real_traces[:5]])
    stranger = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=f"{raw}-stranger")
    async with stranger, AsyncExitStack() as stack:
        async with stranger.transaction():
            await stranger.send_offsets_to_transaction({TopicPartition(raw, 0): 0}, kafka.group)
            worker = await stack.enter_async_context(own_stream.worker())
            await worker.published(5)
            # After half a minute, which a busy machine may take until here, it is no ordinary recovery.
            found = "(Recovering: 1 of 2 partitions|Waiting for Kafka: 1 of 2 partitions not recovered); "
            await worker.says(found + re.escape(f"OffsetFetch to {raw}/0: UNSTABLE_OFFSET_COMMIT (88)"))
            labels = {"request": "OffsetFetch", "error": "UNSTABLE_OFFSET_COMMIT (88)"}
            assert page.value(await worker.metrics(), "kp_waiting_seconds", **labels) > 0
        await worker.published(10)
        await becomes(worker, "healthy")


async def test_a_worker_whose_model_is_slow_is_behind_until_it_is_fast_again(
    make_stream, orders, real_traces
):
    """A handful of records is less than a minute's work at the rate of the last minute."""
    stream = await make_stream(2)
    await publish(stream, real_traces[:100])
    async with faulty(stream, orders) as worker:
        await worker.published(100)
        await becomes(worker, "healthy")

        orders.block(seconds=LIMIT)
        await publish(stream, real_traces[100:105])
        behind = await becomes(worker, "behind", "Behind: 5 records, none finished for ")
        assert behind["runbook"] == "KpLagGrowing"
        orders.as_usual()
        await becomes(worker, "healthy")
        await worker.published(105)


async def test_what_the_page_shows_goes_on_in_the_next_process(make_stream, real_traces):
    """A restart emptied figures and lists, and "Dead letters, last 15 min" was 0 in a crash loop."""
    stream = await make_stream(2)
    async with stream.worker() as worker:
        await publish(stream, [*real_traces[:5], b"not JSON"])
        await worker.published(6)
        before = json.loads((await worker.get("/api/status"))[1])

        signal_child(worker, signal.SIGTERM)
        async with asyncio.timeout(LIMIT):
            after = before
            while after["worker"]["restarts"] == 0:
                await asyncio.sleep(0.1)
                after = json.loads((await worker.get("/api/status"))[1])

    assert after["outcomes"]["total"] == before["outcomes"]["total"]
    assert sum(after["outcomes"]["dead_letters"]["by_reason"].values()) == 1
    for name in ("latency", "fleet", "rejected", "dead_letters"):
        assert after[name] == before[name], name
