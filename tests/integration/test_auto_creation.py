"""A broker that creates each missing topic that a client asks for, as Kafka does by default."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from knowledgepulse_kafka.topic_creation import never_creating
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from support.brokers import configured_broker
from support.streams import Message, Stream, admin_of, own_settings, source_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """The address of the broker."""
    folder = tmp_path_factory.mktemp("creating")
    with configured_broker(folder, {"auto.create.topics.enable": "true"}) as servers:
        yield servers


async def has_topic(servers, name):
    async with admin_of(servers) as admin:
        return name in await admin.list_topics()


async def ask(client, name):
    """Ask a client's broker for a topic's metadata."""
    await client.set_topics([name])
    await client.force_metadata_update()


async def test_no_client_creates_a_topic_by_asking_for_it_and_those_of_others_still_do(servers):
    for kind in (AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient):
        client = never_creating(kind(bootstrap_servers=servers))
        await client.start()
        await ask(getattr(client, "_client", None) or client.client, "asked-by-us")
        if kind is AIOKafkaAdminClient:
            await client.describe_topics(["asked-by-us"])
        await (client.close if kind is AIOKafkaAdminClient else client.stop)()

    other = AIOKafkaClient(bootstrap_servers=servers)
    await other.bootstrap()
    await ask(other, "asked-by-others")
    await other.close()
    async with asyncio.timeout(60):
        while not await has_topic(servers, "asked-by-others"):
            await asyncio.sleep(0.1)
    assert not await has_topic(servers, "asked-by-us")


async def test_a_worker_names_the_topics_that_were_deleted_and_continues_once_they_are_there(
    servers, tmp_path, real_traces
):
    stream = Stream(own_settings(servers, "deleted", {"embedding": {"backend": "lexical"}}), tmp_path)
    await stream.create_topics(2)
    topics, changelog = stream.settings.topics, changelog_topic_name(stream.settings.kafka.group)
    messages = [Message(value, partition=number % 2) for number, value in enumerate(real_traces[:40])]
    async with stream.worker() as worker:
        raw = await stream.publish(messages[:20])
        await stream.outputs(worker, raw)
        for name in (topics.rejected, topics.contribute, changelog):
            await stream.delete_topic(name)
        raw = await stream.publish(messages[20:])
        await worker.logged(f"{topics.contribute}, {topics.rejected}; `kp-worker topics` creates them")
        assert not await has_topic(servers, topics.rejected)
        await stream.create_topics(2)

        outputs = await stream.outputs(worker, [record for record in raw if record.offset >= 10])
        assert await worker.stop() == 0

    assert sorted(map(source_of, outputs)) == [
        (record.partition, record.offset) for record in raw if record.offset >= 10
    ]
    assert "poison" not in worker.log()
    assert "AssertionError" not in worker.log()
    assert "Timeout (" not in worker.log()  # the process ended by itself, and said why
