"""Topics change while workers run: partitions are added, and positions expire."""

from __future__ import annotations

import pytest
from aiokafka.admin import NewPartitions
from aiokafka.protocol.admin import DeleteGroupsRequest

from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.tools.audit import audit
from support.streams import Message, admin_of, score_of, source_of

pytestmark = pytest.mark.integration


async def add_partitions(stream, topic, count):
    """Increase a topic's partition count, as an operator does."""
    async with admin_of(stream.settings.kafka.bootstrap_servers) as admin:
        await admin.create_partitions({topic: NewPartitions(total_count=count)})


def on(partitions, values):
    """Return messages for these partitions in turn."""
    return [
        Message(value, b"key", partition=partitions[number % len(partitions)])
        for number, value in enumerate(values)
    ]


async def test_partitions_that_are_added_to_raw_are_read_and_no_ledger_is_lost(make_stream, real_traces):
    stream = await make_stream(2)
    raw = await stream.publish(on((0, 1), real_traces[:20]))
    async with stream.worker() as worker:
        await stream.outputs(worker, raw)
        await add_partitions(stream, stream.settings.topics.raw, 4)
        raw = await stream.publish(on((0, 1, 2, 3), real_traces[20:40]))

        outputs = await stream.outputs(worker, raw)
        assert await worker.stop() == 0

    assert len(outputs) == len({source_of(output) for output in outputs}) == 40
    by_partition = {
        number: [output for output in outputs if source_of(output)[0] == number] for number in range(4)
    }
    assert "nearest" in score_of(by_partition[0][10])  # compared with records from before
    report = await audit(stream.settings)
    assert (report.missing, report.differing) == (0, 0)
    assert f"{changelog_topic_name(stream.settings.kafka.group)} now has 4 partitions" in worker.log()


async def forget_positions(stream):
    """Delete the group's positions, as its coordinator does after `offsets.retention.minutes`."""
    await stream.left()
    async with admin_of(stream.settings.kafka.bootstrap_servers) as admin:
        coordinator = await admin.find_coordinator(stream.settings.kafka.group)
        answer = await admin._send_request(DeleteGroupsRequest([stream.settings.kafka.group]), coordinator)
    assert [code for _, code in answer.results] == [0]
    assert await stream.committed() == {}


async def test_a_group_whose_positions_have_expired_continues_where_its_ledger_ends(make_stream, real_traces):
    """Even after a dead letter, which has no entry in the ledger, and without any entries."""
    stream = await make_stream(2, embedding={"backend": "none"})
    async with stream.worker() as worker:
        raw = await stream.publish(on((0, 1), [*real_traces[:18], b"no trace", b"no trace"]))
        await stream.outputs(worker, raw)
        assert await worker.stop() == 0
    await forget_positions(stream)

    raw = await stream.publish(on((0, 1), real_traces[20:30]))
    async with stream.worker() as worker:
        await stream.outputs(worker, raw)
        assert await worker.stop() == 0

    assert sorted(map(source_of, await stream.all_outputs())) == [
        (partition, offset) for partition in (0, 1) for offset in range(15)
    ]
    report = await audit(stream.settings)
    assert (report.missing, report.differing, report.without_entry) == (0, 0, 0)
    assert "continuing from offset 10, as the ledger says" in worker.log()
    assert "rewind" not in worker.log()
