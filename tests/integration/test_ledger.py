"""What a group that was set back has scored is cut from its ledger, logged and counted."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from support import metrics_page as page
from support.offline import offline
from support.streams import Message, score_of, source_of

pytestmark = pytest.mark.integration


async def go_back(stream, offset):
    """Reset the group to an offset, as an operator does while no worker runs."""
    await stream.left()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=stream.settings.kafka.bootstrap_servers,
        group_id=stream.settings.kafka.group,
        enable_auto_commit=False,
    )
    async with consumer:
        tp = TopicPartition(stream.settings.topics.raw, 0)
        consumer.assign([tp])
        await consumer.commit({tp: offset})


def offline_scores(settings, values):
    return [score.quality_score for score in offline(settings, values)]


def scores(outputs):
    """By offset, in the order of publishing."""
    found = {}
    for record in outputs:
        found.setdefault(source_of(record)[1], []).append(score_of(record)["score"])
    return found


async def run_through(stream, raw):
    """A worker from its start to its end; returns all outputs and the last metrics."""
    async with stream.worker() as worker:
        await stream.outputs(worker, raw)
        metrics = await worker.metrics()
        assert await worker.stop() == 0
    topics = stream.settings.topics
    return await stream.read(topics.contribute, topics.rejected), metrics, worker.log()


async def publish(stream, lines):
    return await stream.publish(Message(line, b"key") for line in lines)


async def test_a_rewind_is_a_new_run_of_what_came_before_it(make_stream, real_traces):
    """Scored as for the first time, not against what came later."""
    stream = await make_stream(1)
    raw = await publish(stream, real_traces[:60])
    await run_through(stream, raw)
    await go_back(stream, 0)

    again = await publish(stream, real_traces[60:61])
    outputs, metrics, log = await run_through(stream, again[-1:])

    expected = offline_scores(stream.settings, real_traces[:61])
    assert page.value(metrics, "kp_cache_resets_total", reason="rewind") == 1
    assert "invalid entries cut from the ledger: rewind" in log
    for offset, published in scores(outputs).items():
        assert published == pytest.approx([expected[offset]] * (1 if offset == 60 else 2))
