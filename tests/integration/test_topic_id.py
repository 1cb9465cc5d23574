"""A recreated topic differs from the one before by its id."""

from __future__ import annotations

import pytest

from knowledgepulse_worker.kafka.wire.topic_id import TopicIds

pytestmark = pytest.mark.integration


async def test_a_topic_keeps_its_id_until_it_is_recreated(make_stream):
    stream = await make_stream(3)
    topic = TopicIds(stream.settings.kafka, stream.settings.topics.raw)
    await topic.start()
    try:
        first = await topic.current([0, 2])
        assert len(first) == 16
        assert await topic.current([1]) == first
        await stream.recreate_topic(stream.settings.topics.raw, 3)

        assert await topic.current([0, 1, 2]) not in (b"", first)
    finally:
        await topic.stop()
