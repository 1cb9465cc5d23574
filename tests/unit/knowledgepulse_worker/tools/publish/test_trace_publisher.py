"""Publishing within a limit, whatever the brokers do."""

from __future__ import annotations

import asyncio
import logging

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

    async def connect(self):
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


async def test_a_publisher_waits_for_its_first_broker(monkeypatch, caplog):
    """An agent that started in an outage lost its trace: the publisher gave up after a third of a second."""
    attempts = []

    async def connect(_self):
        attempts.append(None)
        if len(attempts) < 6:
            raise NoBrokerError("kafka.bootstrap_servers: localhost:1: refused")

    async def close(*_):
        pass

    monkeypatch.setattr(TracePublisher, "connect", connect)
    monkeypatch.setattr(TracePublisher, "__aexit__", close)
    monkeypatch.setattr(trace_publisher, "_PAUSES", (0.0, 0.001))
    async with TracePublisher(Settings()):
        pass

    assert len(attempts) == 6
    assert [record.message for record in caplog.records] == [
        "kafka.bootstrap_servers: localhost:1: refused; waiting for a broker"
    ]


@pytest.mark.parametrize(
    ("level", "then"), [(logging.NOTSET, logging.CRITICAL), (logging.INFO, logging.INFO)]
)
async def test_the_client_logs_no_attempt_unless_the_program_wants_it(level, then, monkeypatch):
    """An outage of a minute wrote 3,604 lines to standard error, and an agent waited for their reader."""
    client = logging.getLogger("aiokafka")
    monkeypatch.setattr(client, "level", level)
    monkeypatch.setattr(TracePublisher, "connect", lambda _: asyncio.sleep(0))
    monkeypatch.setattr(TracePublisher, "__aexit__", lambda *_: asyncio.sleep(0))
    async with TracePublisher(Settings()):
        assert client.level == then


async def test_a_publication_with_a_limit_does_not_wait_where_brokers_refuse():
    """What it would publish waits in a spool, and an agent waits for its hook."""
    settings = Settings(kafka=KafkaSettings(bootstrap_servers=f"{LOOPBACK}:{free_ports(1)[0]}"))

    with pytest.raises(NoBrokerError, match="refused"):
        await asyncio.to_thread(publish_lines, [b"{}"], TracePublisher(settings), 60)


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
