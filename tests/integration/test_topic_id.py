"""A recreated topic differs from the one before by its id."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.protocol.metadata import MetadataRequest

from worker.kafka.wire.topic_id import TopicIds

pytestmark = pytest.mark.integration


@pytest.fixture
async def ids():
    """Connects to a stream's raw topic; disconnects at the end."""
    started = []

    async def connect(stream):
        started.append(TopicIds(stream.settings.kafka, stream.settings.topics.raw))
        await started[-1].start()
        return started[-1]

    yield connect
    for one in started:
        await one.stop()


async def test_a_topic_keeps_its_id_until_it_is_recreated(make_stream, ids):
    stream = await make_stream(3)
    topic = await ids(stream)

    first = await topic.current([0, 2])
    assert len(first) == 16
    assert await topic.current([1]) == first
    await stream.recreate_topic(stream.settings.topics.raw, 3)

    assert await topic.current([0, 1, 2]) not in (b"", first)


async def test_the_id_of_a_missing_topic_is_awaited_and_the_topic_is_not_created(make_stream, ids):
    stream = await make_stream(1)
    topic = await ids(stream)
    first = await topic.current([0])
    await stream.delete_topic(stream.settings.topics.raw)

    waiting = asyncio.create_task(topic.current([0]))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.5)
    await stream.create_topics(1)

    assert await waiting not in (b"", first)


async def test_brokers_without_topic_ids_give_an_empty_one(make_stream, ids):
    stream = await make_stream(1)
    topic = await ids(stream)
    assert await topic.current([0]) != b""
    for connection in topic._client._conns.values():
        connection._versions[MetadataRequest.API_KEY] = (0, 9)

    assert await topic.current([0]) == b""
