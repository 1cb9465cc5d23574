"""The stream's scores are the offline scorer's, whatever happens on the way."""

from __future__ import annotations

import json
import random

import pytest

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
