"""Brokers enforce quotas on a worker or a command: it waits, and says so."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiokafka import AIOKafkaProducer

from knowledgepulse_kafka import admin as kafka_admin
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.tools.demo.brokers import Broker
from support import metrics_page as page
from support.brokers import configured_broker
from support.commands import kp_worker
from support.kafka_release import needs_kafka
from support.quotas import CONSUMER, MUTATIONS, PRODUCER, quota
from support.streams import READY_LIMIT, own_settings, source_of

pytestmark = pytest.mark.integration


SHORT_WINDOW = {"quota.window.num": "3"}
"""Seconds over which a rate is taken, instead of 11; so long a client may exceed it."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker of these tests' own, since the quotas apply to all clients."""
    with configured_broker(tmp_path_factory.mktemp("broker"), SHORT_WINDOW) as servers:
        yield Broker(servers, "started", "a broker with quotas")


async def throttled(worker):
    """Wait until the worker's verdict is that it is throttled; return the verdict."""
    async with asyncio.timeout(READY_LIMIT):
        while True:
            if await worker.metrics():
                verdict = json.loads((await worker.get("/api/status"))[1])["verdict"]
                if verdict["state"] == "throttled":
                    return verdict
            await asyncio.sleep(0.1)


async def finished_under(stream, key, rate, traces):
    """Score traces under a quota; return the worker, its verdict and its last metrics."""
    servers = stream.settings.kafka.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:  # in small batches
        for value in traces:
            await producer.send_and_wait(stream.settings.topics.raw, value)
    raw = await stream.read(stream.settings.topics.raw)
    async with (
        quota(servers, key, rate),
        stream.worker(stream.configured(kafka={"commit_interval": 5.0})) as worker,
    ):
        verdict = await throttled(worker)
        await worker.published(len(raw))
        metrics = await worker.metrics()
        status, _ = await worker.get("/readyz")
        assert status == 200
        assert await worker.stop() == 0
    assert sorted(map(source_of, await stream.all_outputs())) == [
        (record.partition, record.offset) for record in raw
    ]
    return worker, verdict, metrics


@pytest.mark.parametrize(("key", "quota_of"), [(PRODUCER, "producer"), (CONSUMER, "consumer")])
async def test_a_quota_is_waited_out_and_named(make_stream, real_traces, key, quota_of):
    """Transactions of a process that ignored the throttle time timed out, one after another."""
    stream = await make_stream()

    worker, verdict, metrics = await finished_under(stream, key, 30_000.0, real_traces[:20])

    assert f"a quota of the brokers ({key}) delays " in verdict["text"]
    assert page.value(metrics, "kp_throttled_seconds_total", quota=quota_of) > 1
    assert worker.told_once("Throttled: a quota of the brokers")
    for never in ("starting it again", "RequestTimedOut", "Unable to", "overlapping", "Traceback"):
        assert never not in worker.log()


async def test_publishing_waits_and_names_the_quota(make_stream, real_traces, config, tmp_path):
    stream = await make_stream()
    file = tmp_path / "traces.jsonl"
    file.write_bytes(b"\n".join(real_traces[:20]))

    async with quota(stream.settings.kafka.bootstrap_servers, PRODUCER, 30_000.0):
        status, _, errors = await kp_worker("publish", str(file), "--config", config(stream.settings))

    lines = errors.splitlines()  # after 10 s, some tell the progress
    waits = " s, since they exceed a quota (producer_byte_rate); waiting"
    assert sum(line.endswith(waits) for line in lines) == 1
    assert (status, lines[-1]) == (0, f"20 records published to {stream.settings.topics.raw}")
    assert [record.value for record in await stream.read(stream.settings.topics.raw)] == real_traces[:20]


@needs_kafka("3.9")  # 3.3 in KRaft mode does not enforce it
async def test_creating_topics_waits_and_names_the_quota(broker, monkeypatch, caplog):
    """A new topic counted as unknown, although the brokers only delayed the question for it."""
    monkeypatch.setattr(kafka_admin, "_CREATION_TIMEOUT", 6)
    settings = own_settings(broker.bootstrap_servers, "quota")

    async with (
        quota(broker.bootstrap_servers, MUTATIONS, 1.0),
        TopicAdmin(settings.kafka, settings.topics) as admin,
    ):
        topic = await admin.create(settings.topics.raw, 20, 1, {})

    assert topic.partitions == 20
    assert "since they exceed a quota (controller_mutation_rate); waiting" in caplog.text
