"""A record that kills every process that embeds it is dead-lettered; all others are scored."""

from __future__ import annotations

import json

import pytest

from chaos.embedder import DEADLY, Order, Orders
from chaos.process import ORDERS
from support.streams import Message, headers_of, source_of

pytestmark = pytest.mark.integration


async def test_a_deadly_record_is_dead_lettered_and_its_neighbours_are_scored(
    make_stream, real_traces, tmp_path
):
    stream = await make_stream(2)
    lines = list(real_traces[:20])
    deadly = json.loads(lines[7])
    deadly["task"]["objective"] = DEADLY
    lines[7] = json.dumps(deadly).encode()

    raw = await stream.publish(Message(line, partition=number % 2) for number, line in enumerate(lines))
    orders = Orders(tmp_path / "orders.json", Order(seconds=0.05))
    async with stream.worker(module="chaos.process", environment={ORDERS: str(orders.path)}) as worker:
        outputs = {source_of(record): record for record in await stream.outputs(worker, raw)}
        await worker.shows(1, "kp_dead_letters_total", reason="poison")
        assert await worker.stop() == 0

    assert outputs.keys() == {(record.partition, record.offset) for record in raw}
    buried = {
        source: record
        for source, record in outputs.items()
        if record.topic == stream.settings.topics.dead_letter
    }
    assert list(buried) == [(1, 3)]
    assert buried[1, 3].value == lines[7]
    assert headers_of(buried[1, 3])["kp-reason"] == "poison"
    assert "partition 1, offset 3: killed 3 workers" in worker.log()
    assert "partition 1, offset 3: 1 worker died while this record was in progress alone" in worker.log()
