"""Clients reach brokers although addresses are dead, or have changed."""

import asyncio
import contextlib
import gc
import socket
import weakref
from types import SimpleNamespace

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

from knowledgepulse_kafka import reaching
from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_kafka.reaching import create_conn
from knowledgepulse_worker.tools.demo.processes import LOOPBACK
from support.dead_address import dead_address


@pytest.fixture(autouse=True)
def _no_former_failures(monkeypatch):
    monkeypatch.setattr(reaching, "_failed", {})
    monkeypatch.setattr(reaching, "_logged", LogInterval())


@pytest.fixture
def dead():
    """An address that drops connections."""
    with dead_address() as address:
        yield address


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


class Transport:
    """What a connection holds."""


async def test_a_failure_that_is_kept_holds_no_connection_open(monkeypatch):
    """Its traceback held the transport of a TLS connection that had failed."""
    transports = []

    async def fail(_connection):
        transport = Transport()
        transports.append(weakref.ref(transport))
        raise ConnectionError("refused")

    monkeypatch.setattr(AIOKafkaConnection, "connect", fail)
    with pytest.raises(ConnectionError):
        await create_conn("a-name", 9092)
    gc.collect()

    assert str(reaching.failed_since("a-name", 9092)) == "refused"
    assert [transport() for transport in transports] == [None]


@pytest.mark.parametrize("limit", ["ANSWER_LIMIT", "HANDSHAKE_LIMIT"])
async def test_a_broker_that_accepts_and_does_not_answer_is_given_up(monkeypatch, limit):
    """As one that is suspended."""
    monkeypatch.setattr(reaching, limit, 0.1)

    async def serve(reader, writer):
        await reader.read(-1)
        writer.close()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        with pytest.raises(TimeoutError):
            await create_conn(*server.sockets[0].getsockname())
        await ended.wait()


class Server:
    """A bootstrap server that accepts connections.

    Args:
        brokers: the brokers that it names; None to answer nothing.
    """

    def __init__(self, brokers):
        self.brokers = brokers
        self.asked = 0
        self.address = (LOOPBACK, 0)


@pytest.fixture
async def serve(monkeypatch):
    """Start servers whose protocol does not matter."""
    servers = {}

    async def no_versions(_connection): ...

    async def answer(connection, *_request):
        server = servers[connection.port]
        server.asked += 1
        if server.brokers is None:
            await asyncio.Event().wait()
        return SimpleNamespace(**vars(metadata("a-broker")) | {"brokers": server.brokers})

    async def accept(reader, writer):
        await reader.read()
        writer.close()

    monkeypatch.setattr(AIOKafkaConnection, "_do_version_lookup", no_versions)
    monkeypatch.setattr(AIOKafkaConnection, "send", answer)
    async with contextlib.AsyncExitStack() as stack:

        async def start(brokers):
            listening = await stack.enter_async_context(await asyncio.start_server(accept, LOOPBACK, 0))
            server = Server(brokers)
            server.address = listening.sockets[0].getsockname()
            servers[server.address[1]] = server
            return server

        yield start


BROKERS = [(7, "a-broker", 9092, None)]


@contextlib.asynccontextmanager
async def bootstrapped(monkeypatch, *addresses):
    """Yield a client that has asked servers at these addresses, in this order."""
    monkeypatch.setattr(
        reaching, "collect_hosts", lambda *_, **__: [(host, port, 0) for host, port in addresses]
    )
    client = reaching.reaching(AIOKafkaClient(bootstrap_servers="servers:9092"))
    try:
        await client.bootstrap()
        yield client
    finally:
        await client.close()


async def test_a_cluster_without_a_registered_broker_is_waited_for(serve, monkeypatch, caplog):
    """A broker that was suspended names none for a moment."""
    server = await serve([])

    async def register(_seconds):
        server.brokers = BROKERS

    monkeypatch.setattr(reaching.asyncio, "sleep", register)
    async with bootstrapped(monkeypatch, server.address) as client:
        assert [broker.host for broker in client.cluster.brokers()] == ["a-broker"]

    assert caplog.messages == [
        f"{LOOPBACK}:{server.address[1]} answers, but no broker is registered yet; waiting"
    ]


async def test_a_cluster_that_registers_no_broker_is_given_up(serve, monkeypatch):
    monkeypatch.setattr(reaching, "REGISTRATION_LIMIT", 0.1)
    monkeypatch.setattr(reaching, "_REGISTRATION_PAUSE", 0.01)
    server = await serve([])

    with pytest.raises(KafkaConnectionError, match=r"\([\d.]+:\d+: no broker is registered yet\)"):
        async with bootstrapped(monkeypatch, server.address):
            pass


async def test_a_token_that_is_refused_is_no_login():
    """The client took the challenge for success, and the broker for one that names no others."""

    class Provider(AbstractTokenProvider):
        async def token(self):
            return "a-token"

    connection = reaching._Connection(
        *("a-broker", 9092),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    login = connection.authenticator_oauth()
    assert await login.step(None)

    with pytest.raises(SaslAuthenticationFailed):
        await login.step(b'{"status":"invalid_token"}')

    assert await login.step(b"") is None


async def test_any_number_of_dead_servers_before_the_first_that_answers_cost_a_moment_each(
    dead, serve, monkeypatch
):
    """Four of them, 4 s each, took longer than the supervisor's first probe."""
    monkeypatch.setattr(reaching, "CONNECT_LIMIT", 3600.0)
    monkeypatch.setattr(reaching, "_NEXT_SERVER_PAUSE", 0.01)
    server = await serve(BROKERS)

    async with bootstrapped(monkeypatch, *[dead] * 8, server.address) as client:
        assert [broker.host for broker in client.cluster.brokers()] == ["a-broker"]


async def test_a_server_that_accepts_and_never_answers_does_not_delay_the_next(serve, monkeypatch):
    monkeypatch.setattr(reaching, "_NEXT_SERVER_PAUSE", 0.01)
    hung, server = await serve(None), await serve(BROKERS)

    async with bootstrapped(monkeypatch, hung.address, server.address) as client:
        assert client.cluster.brokers()
    assert hung.asked == 1


async def test_a_server_that_tells_its_versions_and_nothing_else_is_given_up_at_once(serve, monkeypatch):
    """As a proxy whose brokers are away; it took as long as any request may, and was dialled once more."""
    monkeypatch.setattr(reaching, "ANSWER_LIMIT", 0.1)
    hung = await serve(None)

    with pytest.raises(KafkaConnectionError, match="no answer"):
        async with bootstrapped(monkeypatch, hung.address):
            pass
    assert isinstance(reaching.failed_since(*hung.address), TimeoutError)


async def test_no_other_server_is_asked_if_the_first_answers_at_once(serve, monkeypatch):
    first, second = await serve(BROKERS), await serve(BROKERS)

    async with bootstrapped(monkeypatch, first.address, second.address):
        pass

    assert (first.asked, second.asked) == (1, 0)


async def test_a_dead_bootstrap_server_is_named_once_and_then_tried_last(dead, serve, monkeypatch, caplog):
    monkeypatch.setattr(reaching, "CONNECT_LIMIT", 0.5)
    server = await serve(BROKERS)

    for tries in range(1, 3):
        async with bootstrapped(monkeypatch, dead, server.address):
            while reaching.failed_since(*dead, 0.0) is None:
                await asyncio.sleep(0.01)
        assert server.asked == tries

    assert caplog.messages == [
        f"bootstrap server {LOOPBACK}:{dead[1]} cannot be reached (no answer); another one answers"
    ]
    assert reaching._by_last_failure("servers")[-1][:2] == dead


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
    assert [broker.host for broker in brokers.client.cluster.brokers()] == ["new"]


async def test_the_bootstrap_servers_are_not_asked_while_a_broker_answers():
    brokers = Brokers(answering={"former", "bootstrap"})

    assert await brokers.client._metadata_update(brokers.client.cluster, set())

    assert brokers.asked == ["former"]


async def test_the_known_brokers_stay_known_while_nobody_answers():
    brokers = Brokers(answering=set())

    assert not await brokers.client._metadata_update(brokers.client.cluster, set())

    assert [broker.host for broker in brokers.client.cluster.brokers()] == ["former"]
