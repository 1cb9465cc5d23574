"""Clients reach brokers although addresses are dead, or have changed."""

import asyncio
import contextlib
import logging
import socket
from types import SimpleNamespace

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError

from knowledgepulse_kafka import reaching
from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_kafka.reaching import create_conn

LOOPBACK = "127.0.0.1"


@pytest.fixture(autouse=True)
def _no_former_failures(monkeypatch):
    monkeypatch.setattr(reaching, "_failed", {})
    monkeypatch.setattr(reaching, "_logged", LogInterval())


@pytest.fixture
def dead():
    """An address that drops connections, as that of a machine that is gone: its queue is full."""
    with contextlib.ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind((LOOPBACK, 0))
        hole.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(hole.getsockname())
        yield hole.getsockname()


@pytest.fixture
async def alive(monkeypatch):
    """An address that accepts connections, of a broker whose versions do not matter."""

    async def no_versions(_connection): ...

    async def serve(reader, writer):
        await reader.read()
        writer.close()
        ended.set()

    monkeypatch.setattr(AIOKafkaConnection, "_do_version_lookup", no_versions)
    ended = asyncio.Event()
    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        yield server.sockets[0].getsockname()
        await ended.wait()


async def test_a_name_whose_first_address_is_dead_is_reached_by_its_next(dead, alive, monkeypatch):
    """The client waited for the first address until its time was over, at each attempt."""

    async def addresses(*_, **__):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (dead, alive)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", addresses)

    connection = await create_conn("a-name", 9092)

    assert connection._writer.get_extra_info("peername") == alive
    await connection.close()


async def test_a_dead_address_is_given_up_before_a_probe_is_and_named(dead, monkeypatch):
    monkeypatch.setattr(reaching, "CONNECT_LIMIT", 0.1)

    with pytest.raises(TimeoutError, match=rf"^{LOOPBACK}:{dead[1]} does not answer in 0\.1 s$"):
        await create_conn(*dead)


async def test_a_broker_that_accepts_and_does_not_answer_is_given_up(monkeypatch):
    """As one that is suspended."""
    monkeypatch.setattr(reaching, "HANDSHAKE_LIMIT", 0.1)

    async def serve(reader, writer):
        await reader.read(-1)
        writer.close()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        with pytest.raises(TimeoutError):
            await create_conn(*server.sockets[0].getsockname())
        await ended.wait()


async def test_a_server_that_names_no_broker_is_not_reached():
    """A broker that refuses a token answers like this, and was taken for one that grants all rights."""
    client = SimpleNamespace(cluster=SimpleNamespace(_brokers={}))

    async def bootstrap(): ...

    with pytest.raises(KafkaConnectionError, match="names no broker"):
        await reaching._bootstrap(client, bootstrap, [])


async def test_a_dead_bootstrap_server_is_named_once_and_then_tried_last(dead, alive, monkeypatch, caplog):
    monkeypatch.setattr(reaching, "CONNECT_LIMIT", 0.1)
    monkeypatch.setattr(reaching, "collected_hosts", lambda *_, **__: [(*dead, 0), (*alive, 0)])

    async def bootstrap():
        """Connect to the first server that answers, as the client does."""
        tried = []
        for host, port, _ in reaching._collect_hosts("servers"):
            tried.append((host, port))
            with contextlib.suppress(OSError):
                await (await create_conn(host, port)).close()
                return tried
        raise KafkaConnectionError

    client = SimpleNamespace(cluster=SimpleNamespace(_brokers={1: "a broker"}))
    tried = []

    async def noted():
        tried.append(await bootstrap())

    with caplog.at_level(logging.WARNING, logger=reaching.__name__):
        for _ in range(2):
            await reaching._bootstrap(client, noted, "servers")

    assert tried == [[dead, alive], [alive]]
    assert caplog.messages == [
        f"bootstrap server {LOOPBACK}:{dead[1]} cannot be reached; another one answers"
    ]


class Brokers:
    """A client whose brokers have moved; its bootstrap server tells their new addresses.

    Attributes:
        asked: the nodes that were asked.
    """

    def __init__(self, answering):
        self.asked = []
        self._answering = answering
        self.client = AIOKafkaClient(bootstrap_servers="bootstrap:9092")
        self.client._get_conn = self._connected
        reaching.reaching(self.client)
        self.client.cluster.update_metadata(metadata("former"))

    async def _connected(self, node, **_):
        self.asked.append(self.client.cluster.broker_metadata(node).host)
        return self if self.asked[-1] in self._answering else None

    async def send(self, _request):
        return metadata("new")


def metadata(host):
    return SimpleNamespace(API_VERSION=1, brokers=[(7, host, 9092, None)], controller_id=7, topics=[])


async def test_new_addresses_of_all_brokers_are_asked_of_the_bootstrap_servers():
    """A worker in reserve dialled the former addresses for ever (KIP-899)."""
    brokers = Brokers(answering={"bootstrap"})

    assert await brokers.client._metadata_update(brokers.client.cluster, set())

    assert brokers.asked == ["former", "bootstrap"]
    assert [one.host for one in brokers.client.cluster.brokers()] == ["new"]


async def test_the_bootstrap_servers_are_not_asked_while_a_broker_answers():
    brokers = Brokers(answering={"former", "bootstrap"})

    assert await brokers.client._metadata_update(brokers.client.cluster, set())

    assert brokers.asked == ["former"]


async def test_the_known_brokers_stay_known_while_nobody_answers():
    brokers = Brokers(answering=set())

    assert not await brokers.client._metadata_update(brokers.client.cluster, set())

    assert [one.host for one in brokers.client.cluster.brokers()] == ["former"]
