"""By its id, a topic that was made anew is told from the one before."""

from __future__ import annotations

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest

from worker.stream.topic_id import topic_id

pytestmark = pytest.mark.integration


@pytest.fixture
async def client(broker):
    client = AIOKafkaClient(bootstrap_servers=broker.bootstrap_servers)
    await client.bootstrap()
    yield client
    await client.close()


async def test_a_topic_keeps_its_id_until_it_is_made_anew(make_stream, client):
    stream = await make_stream(3)
    raw = stream.settings.topics.raw

    first = await topic_id(client, raw)
    assert first is not None
    assert await topic_id(client, raw) == first
    await stream.remake_topic(raw, 3)

    assert await topic_id(client, raw) not in (None, first)


async def test_a_topic_that_is_not_there_has_none_and_is_not_made(client):
    assert await topic_id(client, "no-such-topic") is None
    assert await topic_id(client, "no-such-topic") is None


async def test_a_broker_from_before_there_were_ids_gives_none(make_stream, client):
    stream = await make_stream(1)
    raw = stream.settings.topics.raw
    assert await topic_id(client, raw) is not None
    for connection in client._conns.values():
        connection._versions[MetadataRequest.API_KEY] = (0, 9)

    assert await topic_id(client, raw) is None


async def test_while_no_broker_is_known_there_is_none_and_nothing_in_the_log(caplog):
    assert await topic_id(AIOKafkaClient(bootstrap_servers="127.0.0.1:1"), "raw") is None
    assert caplog.messages == []
