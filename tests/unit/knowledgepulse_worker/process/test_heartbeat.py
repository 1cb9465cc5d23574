"""Heartbeats through a real pipe."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import pytest

from knowledgepulse_worker.errors import WorkerError
from knowledgepulse_worker.process import heartbeat
from knowledgepulse_worker.process.heartbeat import beat, read_beat


@pytest.fixture
def pipe(monkeypatch):
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.001)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(writer)
    with suppress(OSError):  # a test may have closed it
        os.close(reader)


async def test_a_running_event_loop_sends_beats_continually(pipe):
    reader, writer = pipe
    assert read_beat(reader) is None
    beating = asyncio.create_task(beat(writer, list))
    for _ in range(3):
        async with asyncio.timeout(60):
            while read_beat(reader) is None:
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


async def test_the_heartbeat_raises_when_the_parent_is_gone(pipe):
    """Otherwise an orphaned worker would keep running alongside its replacement."""
    reader, writer = pipe
    os.close(reader)
    with pytest.raises(WorkerError, match="parent"):
        await beat(writer, list)


async def test_the_last_of_the_unread_beats_says_why_the_process_is_not_ready(pipe):
    reader, writer = pipe
    beating = asyncio.create_task(beat(writer, iter([["a"], ["b", "c"], []]).__next__))
    await asyncio.sleep(0)
    assert read_beat(reader) == ["a"]
    with suppress(RuntimeError):  # there is no fourth
        await beating
    assert read_beat(reader) == []


async def test_the_end_of_the_pipe_is_no_beat(pipe):
    """The process has closed it, and is about to end: the supervisor waits for that."""
    reader, writer = pipe
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, writer)
    os.close(null)
    assert read_beat(reader) is None
