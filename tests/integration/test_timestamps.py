"""Timestamps as producers write them, and records that are deleted before or after they are scored."""

from __future__ import annotations

import time

import pytest

from support import metrics_page as page
from support.streams import Message

pytestmark = pytest.mark.integration


async def test_outputs_older_than_their_topic_keeps_are_counted_and_named(make_stream, real_traces):
    """A backfill: the outputs have the time of their records, and the topic deletes by it."""
    stream = await make_stream(1)
    topics = stream.settings.topics
    await stream.configure_topic(topics.raw, {"retention.ms": "-1"})
    for name in (topics.contribute, topics.rejected):
        await stream.configure_topic(name, {"retention.ms": "604800000", "max.message.bytes": "9000000"})
    year_ago = time.time_ns() // 1_000_000 - 365 * 86_400_000
    await stream.publish(Message(trace, timestamp_ms=year_ago) for trace in real_traces[:5])

    async with stream.worker() as worker:
        await worker.published(5)
        assert page.value(await worker.metrics(), "kp_expired_outputs_total") == 5
        assert await worker.stop() == 0

    assert f"{topics.rejected} has retention.ms=604800000, {topics.raw} has -1: " in worker.log()
    assert worker.log().count("deletes records after 604800 s (retention.ms), but an output") == 1
