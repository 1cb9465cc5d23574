"""The programs in examples/: started with a stream's broker and topics."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

from knowledgepulse_kafka.partitioner import partition_of

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT = 120


async def produced(stream, *command, folder):
    """Run a producer; return the id of the trace that it published."""
    topics = stream.settings.topics
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stream.settings.kafka.bootstrap_servers, topics.raw,
        cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(LIMIT):
        said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return said.decode().split()[-1]


@asynccontextmanager
async def consuming(stream, *command, folder):
    """Run a consumer; yield a function that returns its next line."""
    topics = stream.settings.topics
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stream.settings.kafka.bootstrap_servers, topics.contribute, topics.rejected,
        cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    async def line():
        async with asyncio.timeout(LIMIT):
            return (await process.stdout.readline()).decode()

    try:
        yield line
    finally:
        process.kill()
        await process.communicate()


async def plays(make_stream, producer, consumer, folder, agent):
    """Check that a worker scores the trace of a producer, and that a consumer prints its score."""
    stream = await make_stream(2)
    trace_id = await produced(stream, *producer, folder=folder)
    (raw,) = await stream.read(stream.settings.topics.raw)
    trace = json.loads(raw.value)
    assert (trace["id"], trace["metadata"]["agent_id"], raw.key) == (trace_id, agent, agent.encode())
    assert raw.partition == partition_of(raw.key, 2)  # murmur2
    async with stream.worker() as worker:
        (output,) = await stream.outputs(worker, [raw])
        assert await worker.stop() == 0
    assert output.topic != stream.settings.topics.dead_letter, output.headers
    score = json.loads(dict(output.headers)["kp-score"])
    async with consuming(stream, *consumer, folder=folder) as line:
        said = await line()
    assert agent in said or trace_id in said
    assert str(score["score"]) in said
