"""Bootstrap servers that are gone do not keep a worker from its brokers."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.process.supervisor import PROBE_LIMIT
from support.dead_address import dead_address

pytestmark = pytest.mark.integration

DEAD = 8


@pytest.fixture
def dead_servers():
    """Servers whose machines are gone, as values of ``kafka.bootstrap_servers``."""
    with ExitStack() as stack:
        yield ["{}:{}".format(*stack.enter_context(dead_address())) for _ in range(DEAD)]


def with_servers(stream, *servers):
    return stream.configured(kafka={"bootstrap_servers": ",".join(servers)})


async def test_a_worker_starts_although_most_bootstrap_servers_are_dead(
    make_stream, dead_servers, real_traces
):
    """Four of them before the first that answers took longer than the supervisor's first probe."""
    stream = await make_stream(1)
    settings = with_servers(stream, *dead_servers, stream.settings.kafka.bootstrap_servers)
    async with stream.worker(settings) as worker:
        await worker.owns(1)
        assert "trying again" not in worker.log()


async def test_all_dead_servers_are_named_within_one_probe(make_stream, dead_servers):
    stream = await make_stream(1)
    settings = with_servers(stream, *dead_servers)

    with pytest.raises(NoBrokerError) as raised:
        async with asyncio.timeout(PROBE_LIMIT), TopicAdmin(settings.kafka, settings.topics):
            pass

    assert [server for server in dead_servers if f"{server}: no answer" not in str(raised.value)] == []
