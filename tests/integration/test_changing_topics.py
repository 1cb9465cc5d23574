"""Topics change while workers run: partitions are added, and positions expire."""

from __future__ import annotations

import os

import pytest
from aiokafka.admin import NewPartitions
from aiokafka.protocol.admin import DeleteGroupsRequest

from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.tools.audit import audit
from support.commands import kp_worker
from support.streams import Message, Stream, admin_of, score_of, source_of

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


async def test_deployments_with_one_group_and_other_raw_topics_do_not_share_a_ledger(
    make_stream, config, real_traces
):
    """Each would cut the other's entries at its starts. No topic ids are needed to see it."""
    first = await make_stream(1)
    await first.scored(await first.publish([Message(value) for value in real_traces[:2]]))
    former = first.settings.topics.raw
    second = Stream(first.configured(topics={"raw": f"{former}-copy"}), first.folder)
    await second.create_topics(1)

    checked = await kp_worker("check", "--config", config(second.settings))
    started = await kp_worker("run", "--config", config(second.settings))
    own = await kp_worker("check", "--config", config(first.settings))

    assert (checked[0], started[0], own[0]) == (os.EX_CONFIG, os.EX_CONFIG, 0)
    group = first.settings.kafka.group
    for said in (checked[1], started[2]):
        assert f"kafka.group: {group}: has positions in {former} too, but topics.raw is {former}-copy" in said
        assert f"--delete-offsets --group {group} --topic {former}" in said


async def test_positions_in_a_topic_that_is_gone_are_of_no_other_deployment(make_stream, config, real_traces):
    first = await make_stream(1)
    await first.scored(await first.publish([Message(value) for value in real_traces[:2]]))
    await first.delete_topic(first.settings.topics.raw)
    second = Stream(first.configured(topics={"raw": f"{first.settings.topics.raw}-2"}), first.folder)
    await second.create_topics(1)

    status, _, _ = await kp_worker("check", "--config", config(second.settings))

    assert status == 0
