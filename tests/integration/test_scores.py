"""The stream's scores are the offline scorer's, whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from knowledgepulse_worker.settings import override, render
from support import metrics_page as page
from support.offline import offline
from support.streams import Message, score_of, source_of

pytestmark = pytest.mark.integration

FLOAT32 = 1e-6


def assert_equal_to_offline(settings, raw, outputs):
    """Hold every output's score, parts and nearest against an offline run over its partition."""
    published = {source_of(record): score_of(record) for record in outputs}
    for partition in {record.partition for record in raw}:
        records = [record for record in raw if record.partition == partition]
        for record, expected in zip(records, offline(settings, [r.value for r in records]), strict=True):
            score = published[partition, record.offset]
            assert score["score"] == pytest.approx(expected.quality_score, abs=FLOAT32)
            assert score["novelty"] == pytest.approx(expected.novelty, abs=FLOAT32)
            assert score["nearest"] == expected.nearest
            assert score["overrides"] == list(expected.overrides)


@pytest.mark.model
@pytest.mark.parametrize("partitions", [1, 4])
async def test_the_real_traces_score_as_offline_for_each_partition(make_stream, real_traces, partitions):
    stream = await make_stream(
        partitions, embedding={"backend": "sentence-transformers", "precision": "float32"}
    )
    raw = await stream.publish(Message(line, json.loads(line)["id"].encode()) for line in real_traces)
    assert len({record.partition for record in raw}) == partitions

    async with stream.worker() as worker:
        outputs = await stream.outputs(worker, raw)

    assert len(outputs) == len(raw)
    assert_equal_to_offline(stream.settings, raw, outputs)


@pytest.mark.model
async def test_a_worker_that_is_killed_in_the_middle_changes_no_score(make_stream, real_traces):
    stream = await make_stream(2, embedding={"backend": "sentence-transformers", "precision": "float32"})
    raw = await stream.publish(Message(line, json.loads(line)["id"].encode()) for line in real_traces)

    async with stream.worker() as worker:
        await worker.published(50)
        await worker.kill()
    before = len(await stream.read(stream.settings.topics.contribute, stream.settings.topics.rejected))
    assert 50 <= before < len(raw)
    async with stream.worker() as worker:
        outputs = await stream.outputs(worker, raw)
        assert await worker.stop() == 0

    assert_equal_to_offline(stream.settings, raw, outputs)
    by_source = {}
    for record in outputs:
        repeat = (record.topic, record.key, record.value, record.headers, record.timestamp)
        assert by_source.setdefault(source_of(record), repeat) == repeat, "a repeat differs from the first"


async def test_a_partition_that_moves_takes_its_memory_along(make_stream, real_traces):
    stream = await make_stream(4)
    lines = [real_traces[number % len(real_traces)] for number in range(400)]
    random.Random(1).shuffle(lines)
    first, second = lines[:200], lines[200:]
    await stream.publish(Message(line, str(number).encode()) for number, line in enumerate(first))

    async with stream.worker() as one, stream.worker() as two:
        await one.owns(2)
        await two.owns(2)
        raw = await stream.publish(Message(line, str(number).encode()) for number, line in enumerate(second))
        assert await one.stop() == 0
        outputs = await stream.outputs(two, raw)
        assert await two.stop() == 0

    assert len(outputs) == len(raw), "a graceful move repeats nothing"
    assert_equal_to_offline(stream.settings, raw, outputs)


async def test_a_policy_that_changes_leaves_what_was_decided(make_stream, real_traces):
    """A redelivered record is published as its ledger entry says, not scored again."""
    stream = await make_stream(1, policy={"threshold": 0.0})
    await stream.publish(Message(line) for line in real_traces[:20])
    async with stream.worker() as worker:
        await worker.published(20)
        await worker.kill()  # before the commit, or after: both must hold

    strict = stream.configured(policy={"threshold": 1.0})
    async with stream.worker(strict) as worker:
        await stream.outputs(worker, await stream.publish(Message(line) for line in real_traces[20:30]))

    topics = stream.settings.topics
    assert {source_of(r) for r in await stream.read(topics.contribute)} == {
        (0, offset) for offset in range(20)
    }
    assert {source_of(r) for r in await stream.read(topics.rejected)} == {
        (0, offset) for offset in range(20, 30)
    }


async def test_a_policy_may_change_while_the_worker_runs(make_stream, real_traces):
    stream = await make_stream(1, policy={"threshold": 1.0})
    topics = stream.settings.topics
    async with stream.worker() as worker:
        await stream.outputs(worker, await stream.publish(Message(line) for line in real_traces[:5]))
        worker.config.write_text(render(override(worker.settings, "policy", {"threshold": 0.0})))
        async with asyncio.timeout(120):
            while page.value(await worker.metrics(), "kp_policy_reloads_total", result="ok") != 1:
                await asyncio.sleep(0.1)
        await stream.outputs(worker, await stream.publish(Message(line) for line in real_traces[5:10]))

    assert {source_of(record)[1] for record in await stream.read(topics.rejected)} == set(range(5))
    assert {source_of(record)[1] for record in await stream.read(topics.contribute)} == set(range(5, 10))
