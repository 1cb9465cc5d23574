"""Brokers enforce quotas on a worker: it waits, and says so."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiokafka import AIOKafkaProducer

from support import metrics_page as page
from support.quotas import CONSUMER, PRODUCER, quota
from support.streams import READY_LIMIT, source_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]  # the quotas take most of it


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
    """Score traces under a quota; return the worker's verdict, its last metrics and its log."""
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
    topics = stream.settings.topics
    outputs = await stream.read(topics.contribute, topics.rejected, topics.dead_letter)
    assert sorted(map(source_of, outputs)) == [(one.partition, one.offset) for one in raw]
    return verdict, metrics, worker.log()


@pytest.mark.parametrize(("key", "quota_of"), [(PRODUCER, "producer"), (CONSUMER, "consumer")])
async def test_a_quota_is_waited_out_and_named(make_stream, real_traces, key, quota_of):
    """Transactions of a process that ignored the throttle time timed out, one after another."""
    stream = await make_stream()

    verdict, metrics, log = await finished_under(stream, key, 30_000.0, real_traces[:60])

    assert f"a quota of the brokers ({key}) delays " in verdict["text"]
    assert page.value(metrics, "kp_throttled_seconds_total", quota=quota_of) > 1
    assert log.count("Throttled: the brokers delay") == 1
    for never in ("starting it again", "RequestTimedOut", "Unable to", "overlapping", "Traceback"):
        assert never not in log
