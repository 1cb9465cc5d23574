"""The worker's verdict on itself, where its reasons are real: a broker that hangs, and comes back."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from chaos.brokers import running_brokers
from support.streams import Message, Stream, own_settings

pytestmark = pytest.mark.integration

LIMIT = 120


@pytest.fixture
def brokers():
    """A broker that no other test uses."""
    with running_brokers(1) as brokers:
        yield brokers


@pytest.fixture
async def stream(brokers, tmp_path):
    usual = {"embedding": {"backend": "lexical"}}
    stream = Stream(own_settings(brokers.direct, "verdict", usual), tmp_path)
    await stream.create_topics(2)
    return stream


async def verdict(worker):
    """Return the verdict in the response of the readiness probe."""
    return json.loads((await worker.get("/readyz"))[1])["verdict"]


async def becomes(worker, state):
    async with asyncio.timeout(LIMIT):
        while (found := await verdict(worker))["state"] != state:
            await asyncio.sleep(0.1)
    return found


async def test_a_worker_whose_broker_hangs_waits_for_kafka_until_it_is_back(brokers, stream, real_traces):
    """Its page said "live", and its probe "ready", with a lag of 0."""
    await stream.publish([Message(one, b"key", partition=0) for one in real_traces[:5]])
    async with stream.worker() as worker:
        await worker.published(5)
        assert (await becomes(worker, "healthy"))["text"] == "Healthy"

        broker = brokers.nodes[0].process.pid
        os.kill(broker, signal.SIGSTOP)
        waiting = await becomes(worker, "waiting_for_kafka")
        try:
            assert waiting["text"].startswith("Waiting for Kafka: no answer from ")
            assert waiting["runbook"] == "KpNoCommit"
            page = json.loads((await worker.get("/api/status"))[1])
            assert page["verdict"]["state"] == "waiting_for_kafka"
            assert 'kp_state{state="waiting_for_kafka"} 1.0' in await worker.metrics()
        finally:
            os.kill(broker, signal.SIGCONT)
        await becomes(worker, "healthy")
    log = worker.log()
    assert log.count("Waiting for Kafka: no answer from ") == 1
    assert log.count("Healthy (was waiting_for_kafka for ") == 1
