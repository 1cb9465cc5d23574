"""What is no longer valid is recognised, cut, logged and counted; what still is stays."""

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


async def run_through(stream, raw, settings=None):
    """A worker from its start to its end; returns all outputs and the last metrics."""
    async with stream.worker(settings) as worker:
        await stream.outputs(worker, raw)
        metrics = await worker.metrics()
        assert await worker.stop() == 0
    topics = stream.settings.topics
    return await stream.read(topics.contribute, topics.rejected), metrics, worker.log()


def resets(metrics, reason):
    return page.value(metrics, "kp_cache_resets_total", reason=reason)


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
    assert resets(metrics, "rewind") == 1
    assert "invalid entries cut from the ledger: rewind" in log
    for offset, published in scores(outputs).items():
        assert published == pytest.approx([expected[offset]] * (1 if offset == 60 else 2))


async def test_vectors_of_another_model_are_never_compared(make_stream, real_traces):
    """The unit tests of embedders show that each change of one changes its identity."""
    stream = await make_stream(1)
    raw = await publish(stream, real_traces[:20])
    await run_through(stream, raw)

    changed = stream.configured(embedding={"text": "agent"})
    raw = await publish(stream, real_traces[:20])
    outputs, metrics, log = await run_through(stream, raw, changed)

    assert resets(metrics, "model") == 1
    assert "invalid entries cut from the ledger: model" in log
    found = scores(outputs)
    assert [found[offset] for offset in range(20, 40)] == [
        pytest.approx([score]) for score in offline_scores(changed, real_traces[:20])
    ]
