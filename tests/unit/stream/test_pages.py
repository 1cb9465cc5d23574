"""The worker's web pages, asked over a connection."""

import asyncio
from contextlib import suppress

import pytest


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
)
async def test_a_connection_that_sends_no_whole_request_is_closed(start, monkeypatch, sent):
    """Each takes a descriptor, and without descriptors a worker can reach no broker."""
    monkeypatch.setattr("worker.stream.app.IDLE_LIMIT", 0.2)
    world = await start()
    await world.member.rebalance([])
    reader, writer = await connected(world)
    writer.write(sent)

    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()


async def test_connections_beyond_the_limit_are_closed_and_the_others_answered(start, monkeypatch):
    """1 200 of them would take every descriptor of a process that may have 1 024."""
    monkeypatch.setattr("worker.stream.web.MAX_CONNECTIONS", 3)
    world = await start()
    await world.member.rebalance([])
    connections = [await connected(world) for _ in range(6)]

    async with asyncio.timeout(20):
        for reader, _ in connections[3:]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        reader, writer = connections[0]
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
    for _, writer in connections:
        writer.close()


async def connected(world):
    async with asyncio.timeout(20):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", world.settings.web.port)
            except OSError:  # not listening yet
                await asyncio.sleep(0.01)
