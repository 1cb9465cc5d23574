"""Publishing within a limit, whatever the brokers do."""

from __future__ import annotations

import asyncio

import pytest

from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.settings import KafkaSettings, Settings
from knowledgepulse_worker.tools.demo.processes import LOOPBACK, free_ports
from knowledgepulse_worker.tools.publish import trace_publisher
from knowledgepulse_worker.tools.publish.trace_publisher import TracePublisher, publish_lines


class Publisher:
    """A publisher whose brokers stop answering at one of its steps."""

    def __init__(self, silent):
        self.silent, self.closed = silent, False

    async def __aenter__(self):
        await self._step("enter")

    async def __aexit__(self, *_):
        self.closed = True
        await self._step("close")

    async def publish(self, _value):
        await self._step("publish")

    async def flush(self):
        await self._step("flush")

    async def _step(self, name):
        if name == self.silent:
            await asyncio.Event().wait()


@pytest.mark.parametrize("silent", ["enter", "publish", "flush"])
def test_a_publication_ends_within_its_limit(silent):
    publisher = Publisher(silent)
    with pytest.raises(NoBrokerError, match=r"^kafka\.bootstrap_servers: no confirmation in time$"):
        publish_lines([b"{}"], publisher, limit=0.2)
    assert publisher.closed == (silent != "enter")


def test_a_client_that_does_not_close_is_left_behind(monkeypatch):
    """Kafka's waits for the requests that are under way, each for 40 s."""
    monkeypatch.setattr(trace_publisher, "_CLOSE_LIMIT", 0.2)
    with pytest.raises(NoBrokerError, match="no confirmation in time"):
        publish_lines([b"{}"], Publisher("close"), limit=60)


async def test_a_broker_that_takes_connections_and_does_not_answer_ends_it_too():
    ended = asyncio.Event()

    async def silent(_reader, writer):
        await ended.wait()
        writer.close()

    port = free_ports(1)[0]
    async with await asyncio.start_server(silent, LOOPBACK, port):
        settings = Settings(kafka=KafkaSettings(bootstrap_servers=f"{LOOPBACK}:{port}"))
        with pytest.raises(NoBrokerError, match="no confirmation in time"):
            await asyncio.to_thread(publish_lines, [b"{}"], TracePublisher(settings), 0.2)
        ended.set()
