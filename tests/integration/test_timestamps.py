"""Timestamps as producers write them, and records that are deleted before or after they are scored."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from knowledgepulse_worker.kafka.topics import changelog_topic_name
from knowledgepulse_worker.tools.audit import audit
from support import metrics_page as page
from support.streams import Message, headers_of, source_of

pytestmark = pytest.mark.integration

NO_LIMIT = str(2**63 - 1)
YEAR_9999 = 253_402_300_799_000
REFUSED = (YEAR_9999, 2**63 - 2, -2, -86_400_000)


async def test_no_timestamp_stops_a_partition_and_each_is_kept(make_stream, real_traces):
    stream = await make_stream(1)
    topics = stream.settings.topics
    await stream.configure_topic(topics.raw, {"message.timestamp.after.max.ms": NO_LIMIT})
    now = time.time_ns() // 1_000_000
    times = [now, *REFUSED, now, -1, 0, now]
    traces = [Message(real_traces[n], timestamp_ms=at) for n, at in enumerate(times)]
    letters = [Message(b"no trace", timestamp_ms=at) for at in times]
    raw = await stream.publish([*traces, *letters])
    assert [record.timestamp for record in raw] == times * 2

    async with stream.worker() as worker:
        outputs = {source_of(record): record for record in await stream.outputs(worker, raw)}
        assert await worker.stop() == 0

    assert f"{topics.contribute} has message.timestamp.after.max.ms=3600000, {topics.raw} has {NO_LIMIT}" in (
        worker.log()
    )
    for record in raw:
        output = outputs[0, record.offset]
        original = headers_of(output).get("kp-timestamp")
        if record.timestamp in REFUSED:
            assert original == str(record.timestamp)
            assert output.timestamp >= now
        else:
            assert original is None
            assert output.timestamp == record.timestamp or (
                record.timestamp == -1 and output.timestamp >= now
            )
    report = await audit(stream.settings)
    assert (report.ok, report.unknown) == (True, 0)


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


async def test_offsets_deleted_before_they_were_read_are_counted_and_audited(make_stream, real_traces):
    stream = await make_stream(1)
    raw = stream.settings.topics.raw
    await stream.publish(Message(trace) for trace in real_traces[:5])
    async with stream.worker() as worker:
        await worker.published(5)
        assert await worker.stop() == 0
    await stream.publish(Message(trace) for trace in real_traces[5:20])
    await stream.delete_records(raw, 0, before=12)

    async with stream.worker() as worker:
        await worker.published(8)
        await worker.logged(f"offsets 5 to 11 were deleted from {raw} before they were read")
        assert page.value(await worker.metrics(), "kp_skipped_offsets_total") == 7
        assert await worker.stop() == 0

    report = await audit(stream.settings)
    assert report.partitions[0].deleted == [(5, 11)]
    assert report.missing == 0


@pytest.mark.parametrize(
    ("which", "setting", "value"),
    [("changelog", "cleanup.policy", "delete"), ("dead_letter", "max.message.bytes", "100")],
)
async def test_a_topic_that_would_lose_what_must_be_kept_ends_the_start(make_stream, which, setting, value):
    stream = await make_stream(1)
    changelog = changelog_topic_name(stream.settings.kafka.group)
    name = changelog if which == "changelog" else stream.settings.topics.dead_letter
    await stream.configure_topic(name, {setting: value})

    async with stream.worker() as worker:
        async with asyncio.timeout(120):
            assert await worker.process.wait() == os.EX_CONFIG

    assert f"{name} has {setting}={value}, must have" in worker.log()
