"""The diagnosis of failed connections, whatever answers at the address."""

from __future__ import annotations

import asyncio
import datetime
import errno
import ssl
from asyncio import IncompleteReadError
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trustme
from aiokafka.errors import IllegalSaslStateError, KafkaConnectionError, SaslAuthenticationFailed
from aiokafka.protocol.admin import SaslHandShakeRequest
from aiokafka.protocol.metadata import MetadataRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledgepulse_kafka import connection_diagnosis, reaching
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.connection_diagnosis import explanation, unreachable
from knowledgepulse_kafka.errors import NoBrokerError, SecurityError
from knowledgepulse_kafka.rights import require_rights
from knowledgepulse_worker.tools.demo.processes import LOOPBACK, free_ports

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # a TLS connection that failed


@asynccontextmanager
async def server(answer, context=None):
    """Serve connections that answer the first bytes with these bytes and close; yield host and port."""

    async def serve(reader, writer):
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0, ssl=context) as listening:
        yield f"{LOOPBACK}:{listening.sockets[0].getsockname()[1]}"


async def diagnosed(servers, **kafka):
    return await unreachable(Config(bootstrap_servers=servers, **kafka), KafkaConnectionError("hidden"))


async def test_an_expired_broker_certificate_is_reported(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    long_ago = datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(LOOPBACK, not_after=long_ago).configure_cert(context)
    async with server(b"", context) as there:
        error = await diagnosed(there, security_protocol="SSL", ssl_cafile=tmp_path / "ca.pem")
    assert isinstance(error, SecurityError)
    assert f"the certificate of {there} is not valid now: certificate has expired" in str(error)


async def test_every_unreachable_server_is_named():
    first, second = free_ports(2)
    error = await diagnosed(f"{LOOPBACK}:{first}, {LOOPBACK}:{second}")
    assert f"{LOOPBACK}:{first}: Connection refused; {LOOPBACK}:{second}: Connection refused" in str(error)


async def test_an_address_that_the_brokers_advertise_is_told_as_one_of_theirs(monkeypatch):
    """It was told as one of kafka.bootstrap_servers, where no one had set it."""

    async def dial(host, port, _arguments, _since):
        if host == "broker-1":
            return [("localhost", 9092)]
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(connection_diagnosis, "_dial", dial)

    error = await diagnosed("broker-1:9092")

    assert str(error) == (
        "bootstrap_servers: localhost:9092, which the brokers advertise: Connection refused"
    )


class Answers:
    """A connection whose server answers each request by its type, or ends it."""

    def __init__(self, answers):
        self._answers = answers

    async def send(self, request):
        if type(request) in self._answers:
            return self._answers[type(request)]
        raise KafkaConnectionError("closed") from IncompleteReadError(b"", 4)

    def close(self): ...


def answer_with(monkeypatch, answers):
    async def create_conn(*_, **__):
        return Answers(answers)

    monkeypatch.setattr(connection_diagnosis, "create_conn", create_conn)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
async def test_a_cluster_without_a_registered_broker_refuses_no_login(monkeypatch, protocol):
    """Any empty list was taken for a refused token, and ended the worker for good."""
    answer_with(monkeypatch, {MetadataRequest: SimpleNamespace(brokers=[])})

    error = await diagnosed("broker-1:9092", security_protocol=protocol, sasl_username="a", sasl_password="b")

    assert isinstance(error, NoBrokerError)
    assert str(error) == "bootstrap_servers: broker-1:9092: no broker is registered yet"


async def test_a_broker_that_ends_the_connection_expects_a_login_only_if_it_says_so(monkeypatch):
    """One that shuts down ends it, too."""
    answer_with(monkeypatch, {SaslHandShakeRequest: SimpleNamespace(error_code=0)})
    assert str(await diagnosed("broker-1:9092")) == (
        "security_protocol: PLAINTEXT: broker-1:9092 expects a login"
    )

    for answers in ({}, {SaslHandShakeRequest: SimpleNamespace(error_code=IllegalSaslStateError.errno)}):
        answer_with(monkeypatch, answers)
        error = await diagnosed("broker-1:9092")
        assert isinstance(error, NoBrokerError)
        assert str(error) == "bootstrap_servers: broker-1:9092: closes the connection"


async def test_a_refusal_takes_precedence_over_an_unreachable_server():
    (away,) = free_ports(1)
    async with server(b"\x15\x03\x03\x00\x02\x02\x50") as there:  # a TLS alert
        error = await diagnosed(f"{LOOPBACK}:{away},{there}")
    assert isinstance(error, SecurityError)
    assert str(error) == f"security_protocol: PLAINTEXT: {there} speaks TLS"


async def test_a_silent_server_is_reported(monkeypatch):
    monkeypatch.setattr(connection_diagnosis, "_DIAL_LIMIT_MS", 50)
    opened = asyncio.Event()

    async def serve(_reader, writer):
        await opened.wait()
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0) as listening:
        there = f"{LOOPBACK}:{listening.sockets[0].getsockname()[1]}"
        error = await diagnosed(there)
        opened.set()
    assert isinstance(error, NoBrokerError)
    assert f"{there}: no answer" in str(error)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers in HTTP, not as a broker"),
        (b"", "closes the connection"),
        (b"\0\0", "closes the connection"),
    ],
)
async def test_what_is_no_broker_is_told_in_words_not_in_counts_of_bytes(answer, problem):
    async with server(answer) as there:
        error = await diagnosed(there)
    assert str(error) == f"bootstrap_servers: {there}: {problem}"


async def test_an_address_of_ipv6_is_named_as_the_setting_takes_it():
    (port,) = free_ports(1)
    error = await diagnosed(f"[::1]:{port}")
    assert str(error).startswith(f"bootstrap_servers: [::1]:{port}: ")


@given(st.binary(max_size=40) | st.just(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
@settings(max_examples=60)
def test_any_answer_gives_an_error_with_the_address(answer):
    async def ask():
        async with server(answer) as there:
            error = await diagnosed(there)
            assert there in str(error)
            return error

    assert isinstance(asyncio.run(ask()), NoBrokerError | SecurityError)


async def test_a_server_that_has_not_answered_is_not_dialled_again(monkeypatch):
    """It would take as long once more, before anybody is told."""
    monkeypatch.setattr(reaching, "HANDSHAKE_LIMIT", 0.1)
    dialled = []
    server = await asyncio.start_server(lambda *client: dialled.append(client), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        with pytest.raises(NoBrokerError, match="no answer"):
            await require_rights(Config(bootstrap_servers=f"{host}:{port}"), [])
        for _, writer in dialled:
            writer.close()

    assert len(dialled) == 1


def test_a_refused_login_names_the_setting_that_has_the_password():
    """It named sasl_password where sasl_password_file was set."""
    config = Config(sasl_mechanism="PLAIN", password_setting="sasl_password_file", prefix="kafka.")

    assert explanation(config, "broker-1:9092", SaslAuthenticationFailed()) == (
        "kafka.sasl_username, kafka.sasl_password_file: broker-1:9092 refuses the login"
    )


def test_a_refused_connection_says_what_else_it_can_be():
    """A broker whose disk is full halts, and nothing said so."""
    told = explanation(Config(), "broker-1:9092", ConnectionRefusedError(errno.ECONNREFUSED, "refused"))

    assert told == "Connection refused: the broker is stopped, or has stopped itself, as with a full disk"
