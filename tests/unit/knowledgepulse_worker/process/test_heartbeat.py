"""Messages and heartbeats through a real pipe."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import pytest

from knowledgepulse_worker.errors import WorkerError
from knowledgepulse_worker.process import heartbeat
from knowledgepulse_worker.process.heartbeat import PipeReader, PipeWriter, beat

SHORT = {"alone": [0, 7]}


@pytest.fixture
def pipe(monkeypatch):
    monkeypatch.setattr(heartbeat, "HEARTBEAT_INTERVAL", 0.001)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(writer)
    with suppress(OSError):  # a test may have closed it
        os.close(reader)


async def test_a_running_event_loop_sends_beats_continually(pipe):
    reader = PipeReader(pipe[0])
    assert [*reader.messages()] == []
    beating = asyncio.create_task(beat(PipeWriter(pipe[1]), dict))
    for _ in range(3):
        async with asyncio.timeout(60):
            while not [*reader.messages()]:
                await asyncio.sleep(0)
    beating.cancel()


async def test_a_parent_that_reads_nothing_does_not_block_the_event_loop(pipe):
    writer = PipeWriter(pipe[1])
    while writer.send(SHORT):
        pass
    beating = asyncio.create_task(beat(writer, dict))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not beating.done()
    beating.cancel()


async def test_the_heartbeat_raises_when_the_parent_is_gone(pipe):
    """Otherwise an orphaned worker would keep running alongside its replacement."""
    reader, writer = pipe
    os.close(reader)
    with pytest.raises(WorkerError, match="parent"):
        await beat(PipeWriter(writer), dict)


def test_a_message_to_a_parent_that_is_gone_raises_nothing(pipe):
    """It is sent while the process ends, which it must not prevent."""
    reader, writer = pipe
    os.close(reader)

    assert not PipeWriter(writer).send(SHORT)


@pytest.mark.parametrize("size", [1, 5_000, 70_000, 150_000])
def test_every_message_that_was_sent_arrives_whole_and_in_order(pipe, size):
    """One that is longer than a page may be written in part when the pipe fills up."""
    reader, writer = PipeReader(pipe[0]), PipeWriter(pipe[1])
    sent, read = [], []

    for number in range(300):
        message = {"number": number, "text": "x" * (size if number % 7 == 0 else 1)}
        while not writer.send(message):
            read += reader.messages()
        sent.append(message)
    while len(read) < len(sent):
        writer.send(SHORT)
        read += reader.messages()

    assert [record for record in read if record != SHORT] == sent


def test_what_was_written_is_read_after_the_writer_s_end(pipe):
    """The last words of a process say which record it died at."""
    reader, writer = pipe
    child = os.fork()
    if child == 0:
        PipeWriter(writer).send(SHORT)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)

    assert [*PipeReader(reader).messages()] == [SHORT]


def test_a_message_that_death_cut_off_is_ignored(pipe):
    reader, writer = pipe
    os.write(writer, b'{"alone": [0, 7]}\n{"alone": [0')

    assert [*PipeReader(reader).messages()] == [SHORT]


def test_the_end_of_the_pipe_is_no_message(pipe):
    """The process has closed it, and is about to end: the supervisor waits for that."""
    reader, writer = pipe
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, writer)
    os.close(null)
    assert [*PipeReader(reader).messages()] == []
