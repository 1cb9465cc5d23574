"""The audit of real streams."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from aiokafka import AIOKafkaProducer

from knowledgepulse_worker.tools.audit import audit
from support.commands import kp_worker
from support.streams import Message, score_of, source_of

pytestmark = pytest.mark.integration

SMALL = {"cache": {"max_elements": 20}}


@pytest.fixture
def kp_worker_audit(config):
    """Run the command and return its status, standard output and standard error."""

    async def run(settings, *arguments):
        return await kp_worker("audit", "--config", config(settings), *arguments, COLUMNS="100")

    return run


async def send(stream, record, changed_score=None, **options):
    """Publish a copy of an output with some fields of its kp-score replaced."""
    score = json.dumps(score_of(record) | (changed_score or {}), separators=(",", ":")).encode()
    headers = [(name, score if name == "kp-score" else value) for name, value in record.headers]
    producer = AIOKafkaProducer(bootstrap_servers=stream.settings.kafka.bootstrap_servers, **options)
    async with producer, producer.transaction() if options else nullcontext():
        await producer.send_and_wait(
            record.topic,
            record.value,
            key=record.key,
            partition=record.partition,
            timestamp_ms=record.timestamp,
            headers=headers,
        )


async def test_accepts_a_stream_after_a_kill_and_detects_a_tampered_output(
    make_stream, real_traces, kp_worker_audit
):
    stream = await make_stream(2, **SMALL)
    lines = [(b"no trace" if number % 10 == 9 else line) for number, line in enumerate(real_traces)]
    raw = await stream.publish(Message(line, str(n).encode(), n % 2) for n, line in enumerate(lines))

    before = await audit(stream.settings)
    assert (before.ok, before.waiting) == (True, len(raw)), "nothing was lost, nothing was done yet"

    await stream.killed(lambda worker: worker.published(40))
    async with stream.worker() as worker:
        await worker.owns(2)  # the one that was killed may have committed everything
        await stream.outputs(worker, raw)
        running = await audit(stream.settings)
        assert await worker.stop() == 0
    assert running.ok
    # Repeats may follow: the killed worker may have published everything without committing it.
    topics, outputs = stream.settings.topics, await stream.all_outputs()

    report = await audit(stream.settings)
    assert (report.ok, report.waiting, report.unknown, report.rescored) == (True, 0, 0, 0)
    assert [part.records for part in report.partitions] == [len(raw) // 2] * 2
    assert sum(part.outputs for part in report.partitions) == len(outputs) == len(raw) + report.repeated
    scored = {source_of(record) for record in outputs if record.topic != stream.settings.topics.dead_letter}
    assert sum(part.novelty_exact for part in report.partitions) == len(scored)
    status, table, errors = await kp_worker_audit(stream.settings)
    assert status == 0, errors  # where there are lines of progress, if it takes long
    assert table.splitlines()[-1].split()[:3] == ["all", str(len(raw)), "0"]

    target = next(record for record in outputs if record.topic == stream.settings.topics.rejected)
    await send(stream, target)
    status, table, _ = await kp_worker_audit(stream.settings)
    assert (status, "repeated: " in table) == (0, False), "a release before 0.3.0 could publish copies"
    await send(stream, target, transactional_id=topics.raw)
    status, table, _ = await kp_worker_audit(stream.settings)
    partition, offset = source_of(target)
    assert status == 1
    assert f"repeated: {topics.raw}/{partition}/{offset} has several outputs" in table

    await send(stream, target, {"novelty": score_of(target)["novelty"] + 0.01})

    status, table, _ = await kp_worker_audit(stream.settings)
    assert status == 1
    assert f"differs: {stream.settings.topics.raw}/{partition}/{offset}: " in table
    assert "repeats differ in headers" in table
    status, text, _ = await kp_worker_audit(stream.settings, "--json")
    data = json.loads(text)
    assert status == 1
    assert (data["ok"], data["missing"], data["differing"]) == (False, 0, 1)
    assert [record["offset"] for record in data["partitions"][partition]["differing"]] == [offset]


async def test_transactions_partition_counts_and_trimmed_topics_are_not_losses(make_stream, real_traces):
    """Aborted records are not missing, even at the end; records deleted by retention are unknown."""
    stream = await make_stream(2, **SMALL)
    topics = stream.settings.topics
    await stream.recreate_topic(topics.rejected, 3)
    producer = AIOKafkaProducer(
        bootstrap_servers=stream.settings.kafka.bootstrap_servers, transactional_id=topics.raw
    )
    async with producer:
        for number in range(8):
            await producer.begin_transaction()
            for line in real_traces[number * 10 : number * 10 + 10]:
                await producer.send(
                    topics.raw, line, key=json.loads(line)["id"].encode(), partition=number % 2
                )
            await (producer.abort_transaction() if number % 4 > 1 else producer.commit_transaction())
    raw = await stream.read(topics.raw)
    outputs = await stream.scored(raw)

    report = await audit(stream.settings)
    assert (report.ok, report.waiting, report.unknown) == (True, 0, 0)
    assert [part.records for part in report.partitions] == [20, 20]

    trimmed = [r for r in outputs if (r.topic, r.partition) == (topics.rejected, 0)]
    await stream.delete_records(topics.rejected, 0, before=trimmed[-1].offset)
    report = await audit(stream.settings)
    assert report.ok
    assert sum(part.outputs_trimmed for part in report.partitions) == len(trimmed) - 1

    await stream.delete_records(topics.raw, 1, before=raw[-1].offset - 3)
    report = await audit(stream.settings)
    assert report.ok
    assert report.unknown
    assert report.partitions[1].records == 4
    assert report.compacted == []

    await stream.configure_topic(topics.contribute, {"cleanup.policy": "compact"})
    assert (await audit(stream.settings)).compacted == [topics.contribute]
