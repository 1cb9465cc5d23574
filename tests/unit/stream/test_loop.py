"""Kafka's connections on uvloop."""

import asyncio

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from chaos.proxy import reset_connection
from worker.stream.loop import use_uvloop


@pytest.fixture
def uvloop(monkeypatch):
    monkeypatch.setattr(AIOKafkaConnection, "send", AIOKafkaConnection.send)
    before = asyncio.get_event_loop_policy()
    use_uvloop()
    yield
    asyncio.set_event_loop_policy(before)


async def reset(_reader, writer):
    reset_connection(writer)


async def sent_when_just_reset():
    """Send by a connection that the broker has reset, before the client has read of that."""
    async with await asyncio.start_server(reset, "127.0.0.1") as server:
        connection = AIOKafkaConnection(*server.sockets[0].getsockname())
        connection._versions = {MetadataRequest.API_KEY: (0, 0)}
        connection._reader, connection._writer = await asyncio.open_connection(
            connection.host, connection.port
        )
        connection._read_task = asyncio.create_task(asyncio.Event().wait())
        with pytest.raises(ConnectionResetError):
            await connection._reader.read()
        assert connection.connected(), "the client knows it already"

        with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:\d+.* closed"):
            connection.send(MetadataRequest([]))

        assert not connection.connected(), "the client would not connect again"


def test_a_connection_that_was_just_reset_is_taken_for_closed(uvloop):
    """The client would take uvloop's error for a failure of its own, and send no heartbeat any more."""
    asyncio.run(sent_when_just_reset())
