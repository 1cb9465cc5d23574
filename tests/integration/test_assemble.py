"""Agent runs assembled from spans in Kafka; tests/chaos shows that crashes neither lose nor repeat one."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from chaos.assembly import GROUP, LIMIT, PARTITIONS, Fleet, new_stream, write
from knowledgepulse_kafka import transactional_publisher
from knowledgepulse_kafka.errors import DeliveryError
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from knowledgepulse_worker.tools.assemble.assembly_topics import assembly_group
from knowledgepulse_worker.tools.assemble.transaction_log import POSITION, AssemblyLog
from support import metrics_page as page

pytestmark = pytest.mark.integration


@pytest.fixture
async def stream(broker, tmp_path):
    stream = await new_stream(broker.bootstrap_servers, tmp_path)
    stream.settings = stream.configured(kafka={"session_timeout": 6.0}, assemble={"grace": 1.0})
    return stream


async def published(stream, count):
    """Wait until so many traces are in the raw topic; returns them by id."""
    raw = stream.settings.topics.raw
    async with asyncio.timeout(LIMIT):
        while len(records := await stream.read(raw)) < count:
            await asyncio.sleep(0.2)
    found = {record.key.decode(): record.value for record in records}
    assert len(found) == len(records), "a trace is published twice"
    return found


async def test_a_quiet_partition_ends_by_the_clock_and_a_successor_publishes_nothing_again(
    stream, real_traces
):
    fleet = Fleet(real_traces[:GROUP])
    (records,) = fleet.groups
    await write(stream, records)
    async with stream.worker(command="assemble") as assembler:
        assert await published(stream, GROUP) == fleet.expected
        assert (await assembler.get("/readyz"))[0] == 200
        assert await assembler.stop() == 0, assembler.log()

    await write(stream, records)
    async with stream.worker(command="assemble"), asyncio.timeout(LIMIT):
        while len(await stream.read(stream.settings.assemble.late)) < fleet.spans:
            await asyncio.sleep(0.2)
    assert await published(stream, GROUP) == fleet.expected


async def test_an_assembler_of_0_3_0_is_fenced_off_and_its_runs_are_not_published_again(
    stream, real_traces, monkeypatch
):
    """It had a transactional id for each partition, and committed as no member of the group."""
    # However slow the machine, it is the new assembler that ends the former one's transaction.
    monkeypatch.setattr(transactional_publisher, "TRANSACTION_TIMEOUT_MS", LIMIT * 1000)
    monkeypatch.setattr(transactional_publisher, "_TIMEOUT", LIMIT)
    fleet = Fleet(real_traces[:GROUP])
    (records,) = fleet.groups
    settings = stream.settings = stream.configured(assemble={"grace": 1.0})
    await write(stream, records)
    async with stream.worker(command="assemble") as assembler:
        assert await published(stream, GROUP) == fleet.expected
        assert await assembler.stop() == 0, assembler.log()

    log, group = AssemblyLog(settings, 0), assembly_group(settings.kafka.group)
    position = (await log.read()).position
    async with TransactionalPublisher(settings.kafka.client_config(), f"{group}-0") as former:
        await former.commit(
            [log._mark(POSITION, b"%d" % position)],
            {(settings.assemble.spans, 0): Position(position)},
            GroupMetadata(group),
        )
        assert not (await log.read()).by_member

        async def be_fenced_off():
            async with former.transaction() as write_as_former:
                await write_as_former(
                    [OutputRecord(settings.topics.raw, 0, NO_TIMESTAMP, b"k", b"again", ())]
                )
                async with stream.worker(command="assemble"), asyncio.timeout(LIMIT):
                    await write(stream, records)
                    while len(await stream.read(settings.assemble.late)) < fleet.spans:
                        await asyncio.sleep(0.2)

        with pytest.raises(DeliveryError, match="took over"):
            await be_fenced_off()
    assert await published(stream, GROUP) == fleet.expected
    assert (await log.read()).by_member


async def test_a_position_that_a_stranger_holds_back_keeps_only_its_own_partition(stream, real_traces):
    """Partitions were opened one after another, so that those behind it waited, too."""
    fleet = Fleet(real_traces[:GROUP])
    (records,) = fleet.groups
    spans, server = stream.settings.assemble.spans, stream.settings.kafka.bootstrap_servers
    await write(stream, records)
    stranger = AIOKafkaProducer(bootstrap_servers=server, transactional_id=f"{spans}-stranger")
    async with stranger, AsyncExitStack() as stack:
        async with stranger.transaction():
            group = assembly_group(stream.settings.kafka.group)
            await stranger.send_offsets_to_transaction({TopicPartition(spans, 0): 0}, group)
            assembler = await stack.enter_async_context(stream.worker(command="assemble"))
            reason = f"not read yet: {spans}/0; OffsetFetch to {spans}/0: UNSTABLE_OFFSET_COMMIT (88)"
            await assembler.logged(reason)
            for partition in range(1, PARTITIONS):
                await assembler.logged(f"partition {partition}: reading from offset 0")
            status, body = await assembler.get("/readyz")
            assert (status, json.loads(body)["reasons"]) == (503, [reason])
            labels = {"request": "OffsetFetch", "error": "UNSTABLE_OFFSET_COMMIT (88)"}
            assert page.value(await assembler.metrics(), "kp_waiting_seconds", **labels) > 0
        assert await published(stream, GROUP) == fleet.expected
        assert (await assembler.get("/readyz"))[0] == 200


async def test_a_missing_topic_ends_the_start(stream):
    settings = stream.configured(assemble={"spans": "nobody-writes-this"})
    async with stream.worker(settings, command="assemble") as assembler:
        assert await assembler.process.wait() == os.EX_CONFIG
        assert "missing: nobody-writes-this" in assembler.log()
