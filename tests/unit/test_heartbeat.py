"""A sign of life, through a real pipe."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import pytest

from worker import heartbeat
from worker.errors import WorkerError
from worker.heartbeat import beat, heard


@pytest.fixture
def pipe(monkeypatch):
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.001)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(writer)
    with suppress(OSError):  # a test may have closed it
        os.close(reader)


async def test_an_event_loop_that_turns_is_heard_again_and_again(pipe):
    reader, writer = pipe
    assert heard(reader) is None
    beating = asyncio.create_task(beat(writer, list))
    for _ in range(3):
        async with asyncio.timeout(10):
            while heard(reader) is None:
                await asyncio.sleep(0)
    beating.cancel()


async def test_a_parent_that_reads_nothing_does_not_block_the_event_loop(pipe):
    _, writer = pipe
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    beating = asyncio.create_task(beat(writer, list))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not beating.done()
    beating.cancel()


async def test_a_parent_that_is_gone_ends_it(pipe):
    """Else a worker without a parent would go on beside the one that takes its place."""
    reader, writer = pipe
    os.close(reader)
    with pytest.raises(WorkerError, match="parent"):
        await beat(writer, list)


async def test_the_last_beat_says_why_the_process_is_not_ready(pipe):
    reader, writer = pipe
    reasons = ["a", "b"]
    beating = asyncio.create_task(beat(writer, lambda: reasons))
    await asyncio.sleep(0)
    assert heard(reader) == ["a", "b"]
    reasons = []
    async with asyncio.timeout(10):
        while heard(reader) != []:
            await asyncio.sleep(0)
    beating.cancel()
