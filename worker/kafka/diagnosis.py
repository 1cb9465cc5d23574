"""Why no broker can be reached: the cause that Kafka's client hides, and the setting to mend."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from asyncio import IncompleteReadError
from collections.abc import AsyncIterator, Iterator
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, collect_hosts, create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from worker.errors import NoBrokerError, SecurityError, WorkerError
from worker.kafka.connection import client_arguments
from worker.kafka.oauth import TokenError
from worker.settings import KafkaSettings

_DIAL_LIMIT_MS = 5000
_PROBE_LIMIT_MS = 2000

# https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/
_NOT_YET_VALID, _EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64

_TLS_ALERT = 0x1503
"""The first two bytes of an alert: content type 21, version 3."""


async def unreachable(kafka: KafkaSettings, error: KafkaError) -> WorkerError:
    """Return why a client reaches no broker.

    The client hides the causes, so each server is dialled once more.

    Args:
        kafka: the settings that the client was made with.
        error: what the client raised; it is told when every server answers by now.

    Returns:
        a :class:`SecurityError` where a server refuses us or we refuse it, with the setting to mend; else a
        :class:`NoBrokerError`.
    """
    failures = [failure async for failure in _failures(kafka, client_arguments(kafka))]
    for failure in failures:
        if isinstance(failure, SecurityError):
            return failure
    told = "; ".join(map(str, failures)) or f"{kafka.bootstrap_servers}: {error}"
    return NoBrokerError(f"kafka.bootstrap_servers: {told}")


async def problem_with(servers: str) -> str:
    """Return why a client without TLS or a login would reach no broker; empty when it reaches one.

    Args:
        servers: as in ``kafka.bootstrap_servers``.
    """
    logger = logging.getLogger("aiokafka")  # it logs every failed attempt
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        return await _problem_with_advertised(servers)
    except KafkaConnectionError:
        return f"nothing on {servers} speaks Kafka"
    except (KafkaError, OSError, ValueError) as error:
        return str(error).partition("\n")[0] or type(error).__name__
    finally:
        logger.setLevel(level)


async def _problem_with_advertised(servers: str) -> str:
    """Clients go on to the addresses that brokers advertise, which may be unreachable from here."""
    client = AIOKafkaClient(bootstrap_servers=servers, request_timeout_ms=_PROBE_LIMIT_MS)
    try:
        await client.bootstrap()
        nodes = client.cluster.brokers()
        if any([await client.ready(node.nodeId) for node in nodes]):
            return ""
        addresses = ", ".join(f"{node.host}:{node.port}" for node in nodes)
        return f"it refers clients to {addresses or 'no broker'}, which cannot be reached"
    finally:
        await client.close()


async def _failures(kafka: KafkaSettings, arguments: dict[str, Any]) -> AsyncIterator[WorkerError]:
    """Dial the servers of the settings, and the brokers that they name; yield what fails."""
    dialling = {name: value for name, value in arguments.items() if name != "bootstrap_servers"}
    dialled = set()
    servers = collect_hosts(kafka.bootstrap_servers, randomize=False)
    waiting = [(host, port) for host, port, _ in servers]
    while waiting:
        server = waiting.pop(0)
        if server not in dialled:
            dialled.add(server)
            try:
                waiting += await _dial(*server, dialling)
            except (OSError, KafkaError, ValueError) as error:
                await asyncio.sleep(0)  # the client closes a connection that failed in the loop's next turn
                yield _explained(kafka, "{}:{}".format(*server), error)


async def _dial(host: str, port: int, arguments: dict[str, Any]) -> list[tuple[str, int]]:
    """Connect and log in; returns the addresses of the cluster's brokers."""
    connection = await create_conn(host, port, request_timeout_ms=_DIAL_LIMIT_MS, **arguments)
    try:
        return await _brokers(connection)
    except KafkaConnectionError as error:
        if arguments["security_protocol"] in ("PLAINTEXT", "SSL") and _ended(error):
            # It has answered before, so it lives; without a login it takes no more.
            raise IllegalSaslStateError from error
        raise
    finally:
        connection.close()


async def _brokers(connection: AIOKafkaConnection) -> list[tuple[str, int]]:
    metadata = await connection.send(MetadataRequest([]))
    if not metadata.brokers:
        # A token is refused by a challenge (RFC 7628, 3.2.2), which the client takes for success.
        raise SaslAuthenticationFailed("the answer is empty")
    return [(host, port) for _, host, port, *_ in metadata.brokers]


def _ended(error: BaseException) -> bool:
    """Whether the server closed the connection, in good order and without an alert."""
    return any(isinstance(one, IncompleteReadError) and not one.partial for one in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = None if isinstance(one, TokenError) else one.__cause__  # that tells its cause itself


def _explained(kafka: KafkaSettings, server: str, error: Exception) -> WorkerError:
    """Return what a person can do about a failed connection."""
    for one in _chain(error):
        told = _refusal(kafka, server, one)
        if told is not None:
            return SecurityError(told)
    *_, cause = (
        one for one in _chain(error) if isinstance(one, Exception)
    )  # not a time-out's CancelledError
    return NoBrokerError(f"{server}: {_text(kafka, cause)}")


def _refusal(kafka: KafkaSettings, server: str, error: BaseException) -> str | None:
    """Return the setting that a refusal is about, and why; None for what is no refusal."""
    protocol = f"kafka.security_protocol: {kafka.security_protocol}"
    told = None
    match error:
        case ssl.SSLCertVerificationError():
            told = _untrusted(kafka, server, error)
        case ssl.SSLError(reason=str(reason)) if "ALERT" in reason:
            alert = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
            certificate = kafka.ssl_certfile or "not set"
            told = f"kafka.ssl_certfile: {certificate}: {server} refuses the client certificate: {alert}"
        case ssl.SSLError():
            told = f"{protocol}: {server} does not speak TLS"
        case IncompleteReadError(expected=int(expected)) if expected >> 16 == _TLS_ALERT:
            told = f"{protocol}: {server} speaks TLS"
        case SaslAuthenticationFailed():
            told = f"{_login(kafka)}: {server} refuses the login"
        case UnsupportedSaslMechanismError():
            told = f"kafka.sasl_mechanism: {kafka.sasl_mechanism}: {server} does not take it"
        case IllegalSaslStateError():
            wants = "no login" if kafka.security_protocol.startswith("SASL") else "a login"
            told = f"{protocol}: {server} takes {wants}"
        case TokenError(refused=True):
            told = str(error)
    return told


def _untrusted(kafka: KafkaSettings, server: str, error: ssl.SSLCertVerificationError) -> str:
    why = error.verify_message
    if error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        return f"kafka.bootstrap_servers: the certificate of {server} is another host's: {why}"
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return f"kafka.bootstrap_servers: the certificate of {server} is not valid now: {why}"
    authorities = kafka.ssl_cafile or "the system's authorities"
    return f"kafka.ssl_cafile: {authorities}: cannot verify the certificate of {server}: {why}"


def _login(kafka: KafkaSettings) -> str:
    if kafka.sasl_mechanism == "OAUTHBEARER":
        return "kafka.sasl_oauthbearer_*"
    return "kafka.sasl_username, kafka.sasl_password"


def _text(kafka: KafkaSettings, error: BaseException) -> str:
    match error:
        case ConnectionResetError() if kafka.security_protocol.endswith("SSL"):
            # Kafka's way to answer TLS on a listener without it, but a proxy's too when its upstream is away.
            protocol = kafka.security_protocol
            return f"resets the connection; does it speak TLS (kafka.security_protocol {protocol})?"
        case TimeoutError():
            return "no answer"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case OSError(strerror=str(text)):
            return text
    return str(error) or type(error).__name__
