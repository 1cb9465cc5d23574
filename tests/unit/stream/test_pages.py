"""The worker's web pages, requested over a raw connection."""

import asyncio

import pytest


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
)
async def test_a_connection_without_a_complete_request_is_closed(start, monkeypatch, sent):
    """Each uses a descriptor, and without free descriptors a worker cannot reach a broker."""
    monkeypatch.setattr("worker.stream.app.IDLE_LIMIT", 0.2)
    world = await start()
    await world.member.rebalance([])
    reader, writer = await connected(world)
    writer.write(sent)

    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()


async def connected(world):
    async with asyncio.timeout(20):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", world.settings.web.port)
            except OSError:  # not listening yet
                await asyncio.sleep(0.01)
