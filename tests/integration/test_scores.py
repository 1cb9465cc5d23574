"""The stream's scores are the offline scorer's, whatever happens on the way."""

from __future__ import annotations

import json

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
async def test_the_real_traces_score_as_offline_for_each_partition(make_stream, real_traces):
    stream = await make_stream(4, embedding={"backend": "sentence-transformers", "precision": "float32"})
    raw = await stream.publish(Message(line, json.loads(line)["id"].encode()) for line in real_traces[:24])
    assert len({record.partition for record in raw}) == 4

    async with stream.worker() as worker:
        outputs = await stream.outputs(worker, raw)

    assert len(outputs) == len(raw)
    assert_equal_to_offline(stream.settings, raw, outputs)
