"""A recreated topic differs from the one before by its id."""

from __future__ import annotations

import pytest

from knowledgepulse_kafka.topic_id import TopicIds
from support.streams import Message

pytestmark = pytest.mark.integration


async def test_a_topic_keeps_its_id_until_it_is_recreated(make_stream):
    stream = await make_stream(3)
    topic = TopicIds(stream.settings.kafka.client_config(), stream.settings.topics.raw)
    await topic.start()
    try:
        first = await topic.current([0, 2])
        assert len(first) == 16
        assert await topic.current([1]) == first
        await stream.recreate_topic(stream.settings.topics.raw, 3)

        assert await topic.current([0, 1, 2]) not in (b"", first)
    finally:
        await topic.stop()


async def test_the_same_traces_published_again_to_a_recreated_topic_are_scored(make_stream, real_traces):
    """It ends where the former one was read to, so no fetch returns anything.

    A worker that looks for the topic while it is missing starts again.
    """
    stream = await make_stream(2)
    messages = [Message(value, partition=number % 2) for number, value in enumerate(real_traces[:20])]
    async with stream.worker() as worker:
        raw = await stream.publish(messages)
        await stream.outputs(worker, raw)
        await stream.recreate_topic(stream.settings.topics.raw, 2)
        await stream.publish(messages)

        topics = stream.settings.topics
        await stream.arrived(40, topics.contribute, topics.rejected)
        assert await worker.stop() == 0
