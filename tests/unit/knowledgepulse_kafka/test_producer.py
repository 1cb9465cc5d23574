"""What a transactional producer knows of the topics that it sends to, and how it ends without brokers."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from knowledgepulse_kafka import producer as producer_module
from knowledgepulse_kafka.producer import TransactionalProducer, abandon
from knowledgepulse_kafka.throttle import Throttle


@pytest.fixture
async def producer():
    """A producer that is not connected."""
    producer = TransactionalProducer(throttle=Throttle(), transactional_id="id")
    yield producer
    await producer.stop()


async def test_a_topic_is_missing_once_a_broker_says_so_and_not_before_the_client_has_heard_of_it(
    producer, monkeypatch
):
    """A producer that was started again asked for its topics, and the process ended at once.

    A deleted topic was told together with others, which the client's metadata lacked for a moment. One that
    may not be described any more left a healthy worker without partitions.
    """
    known = set()
    monkeypatch.setattr(producer.client.cluster, "topics", lambda: known)

    async def partitions_for(topic):
        assert await producer.missing_topics() == [], "the client asks for it first"
        known.add(topic)
        return {0}

    monkeypatch.setattr(producer, "partitions_for", partitions_for)
    for topic in ("contribute", "rejected", "dead-letter"):
        await producer._require(TopicPartition(topic, 0))
    assert await producer.missing_topics() == []

    codes = {
        "contribute": LeaderNotAvailableError.errno,
        "rejected": UnknownTopicOrPartitionError.errno,
        "dead-letter": TopicAuthorizationFailedError.errno,
    }

    async def send(_node, request):
        return SimpleNamespace(topics=[(codes[name], name, False, []) for name in request._topics])

    known.clear()
    assert await producer.missing_topics() == [], "no broker is known"
    monkeypatch.setattr(producer.client, "get_random_node", lambda: 7)
    monkeypatch.setattr(producer.client, "send", send)
    assert sorted(await producer.missing_topics()) == ["dead-letter", "rejected"]


@pytest.fixture
async def cut_off(producer, monkeypatch):
    """A producer in a transaction whose coordinator is gone."""

    async def never(*_):
        await asyncio.Event().wait()

    monkeypatch.setattr(producer_module, "_CANCELLED_LIMIT", 0.01)
    monkeypatch.setattr(producer._sender, "_find_coordinator", never)
    producer._txn_manager.set_pid_and_epoch(7, 0)
    await producer._sender.start()
    await producer.begin_transaction()
    producer._txn_manager.maybe_add_partition_to_txn(TopicPartition("contribute", 0))
    await asyncio.sleep(0)
    return producer


async def test_an_abandoned_producer_ends_although_its_requests_wait_without_end(cut_off):
    """A stop of the worker took 51 s while the only broker was gone."""
    await abandon(cut_off)

    assert cut_off._sender.sender_task.done()
    assert producer_module._requests_of(cut_off) == []


async def test_a_cancelled_transaction_waits_only_a_moment_for_its_abort(cut_off):
    async def transaction():
        try:
            await asyncio.Event().wait()
        finally:
            await cut_off.abort_transaction()

    task = asyncio.create_task(transaction())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    await abandon(cut_off)


async def test_offsets_are_committed_once_the_records_are_written(producer, monkeypatch):
    written, looked_up = asyncio.Event(), asyncio.Event()

    async def find_coordinator(*_):
        looked_up.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(producer._message_accumulator, "flush_for_commit", written.wait)
    monkeypatch.setattr(producer._sender, "_find_coordinator", find_coordinator)
    committing = asyncio.create_task(producer._commit_offsets({}, "group"))
    await asyncio.sleep(0)
    assert not looked_up.is_set()

    written.set()
    await looked_up.wait()
    committing.cancel()
