"""Diagnose failed broker connections, and name the cause that Kafka's client hides and the setting to fix."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import ssl
import time
from asyncio import IncompleteReadError
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

from aiokafka.conn import collect_hosts
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.admin import SaslHandShakeRequest

from knowledgepulse_kafka.client_factory import client_arguments, new_client
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import ClientError, NoBrokerError, SecurityError
from knowledgepulse_kafka.oauth import TokenError
from knowledgepulse_kafka.reaching import address, brokers_of, create_conn, failed_since, problem_of

_DIAL_LIMIT_MS = 5000
_PROBE_LIMIT_MS = 2000

MAY_BE_FULL = "the broker is stopped, or has stopped itself, as with a full disk"
"""What a refused connection means where there was one before. A broker without room for its log halts."""

# https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/
_NOT_YET_VALID, _EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64

_TLS_ALERT = 0x1503
"""The first two bytes of an alert: content type 21, version 3."""


async def unreachable(config: Config, error: KafkaError, since: float = math.inf) -> ClientError:
    """Return the reason why a client cannot reach a broker.

    The client hides the cause, so every server is dialled again, all at once.

    Args:
        config: the client's configuration.
        error: the client's error, which is reported if every server answers now.
        since: when the client began (``time.monotonic``); servers that it failed to reach are not dialled.

    Returns:
        a :class:`SecurityError` with the setting to fix if a server refuses the client or the client refuses
        a server; otherwise a :class:`NoBrokerError`.
    """
    failures = [failure async for failure in _failures(config, client_arguments(config), since)]
    for failure in failures:
        if isinstance(failure, SecurityError):
            return failure
    cause = problem_of(error) if isinstance(error, KafkaConnectionError) else error
    causes = "; ".join(map(str, failures)) or f"{config.bootstrap_servers}: {cause}"
    return NoBrokerError(f"{config.prefix}bootstrap_servers: {causes}")


async def connect(client: Any, config: Config) -> None:
    """Start a client; stop it again if it cannot connect.

    Raises:
        NoBrokerError: no broker can be reached.
        SecurityError: the brokers refuse the login or the certificate.
    """
    began = time.monotonic()
    try:
        await client.start()
    except KafkaError as error:
        await client.stop()
        raise await unreachable(config, error, began) from error


async def problem_with(servers: str) -> str:
    """Return why a client without TLS or a login cannot reach a broker; empty if it can.

    Args:
        servers: the servers, in the form of ``Config.bootstrap_servers``.
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
    """Check the addresses that the brokers advertise, which may be unreachable from here."""
    client = new_client(Config(bootstrap_servers=servers), request_timeout_ms=_PROBE_LIMIT_MS)
    try:
        await client.bootstrap()
        nodes = client.cluster.brokers()
        if any([await client.ready(node.nodeId) for node in nodes]):
            return ""
        addresses = ", ".join(address(node.host, node.port) for node in nodes)
        return f"it refers clients to {addresses}, which cannot be reached"
    finally:
        await client.close()


async def _failures(
    config: Config, arguments: dict[str, Any], since: float = math.inf
) -> AsyncIterator[ClientError]:
    """Dial the configured servers, then the brokers that they advertise; yield the failures."""
    dialling = {name: value for name, value in arguments.items() if name != "bootstrap_servers"}
    dialled = set[tuple[str, int]]()
    servers = [(host, port) for host, port, _ in collect_hosts(config.bootstrap_servers, randomize=False)]
    origin = ""
    while servers := [server for server in dict.fromkeys(servers) if server not in dialled]:
        dialled.update(servers)
        results = await asyncio.gather(
            *(_dial(*server, dialling, since) for server in servers), return_exceptions=True
        )
        await asyncio.sleep(0)  # the client closes a failed connection in the next loop iteration
        for server, result in zip(servers, results, strict=True):
            if isinstance(result, (OSError, KafkaError, ValueError)):
                where = address(*server)
                if refusal := _first_refusal(config, where, result):
                    yield SecurityError(refusal)
                else:
                    yield NoBrokerError(f"{where}{origin}: {_cause(config, result)}")
            elif isinstance(result, BaseException):
                raise result
        servers = [broker for result in results if isinstance(result, list) for broker in result]
        origin = ", which the brokers advertise"


async def _dial(host: str, port: int, arguments: dict[str, Any], since: float) -> list[tuple[str, int]]:
    """Connect and log in, unless that failed since a time; return the addresses of the cluster's brokers."""
    if (known := failed_since(host, port, since)) is not None:
        raise known
    connection = await create_conn(host, port, request_timeout_ms=_DIAL_LIMIT_MS, **arguments)
    try:
        metadata = await brokers_of(connection)
        return [(host, port) for _, host, port, *_ in metadata.brokers]
    except KafkaConnectionError as error:
        if _ended(error) and await _expects_login(host, port, arguments):
            raise IllegalSaslStateError from error
        raise
    finally:
        connection.close()


async def _expects_login(host: str, port: int, arguments: dict[str, Any]) -> bool:
    """Return whether a server expects a login that the client does not attempt.

    Such a listener ends a connection at any request but the handshake of a login (KIP-43), which other
    listeners refuse. That it ended one does not tell: a broker that shuts down does so, too.
    """
    if arguments["security_protocol"].startswith("SASL"):
        return False
    with suppress(OSError, KafkaError):
        connection = await create_conn(host, port, request_timeout_ms=_DIAL_LIMIT_MS, **arguments)
        try:
            answer = await connection.send(SaslHandShakeRequest("PLAIN"))
        finally:
            connection.close()
        return bool(answer.error_code != IllegalSaslStateError.errno)
    return False


def _ended(error: BaseException) -> bool:
    """Return whether the server closed the connection cleanly, without an alert."""
    return any(isinstance(cause, IncompleteReadError) and not cause.partial for cause in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = (
            None if isinstance(cause, TokenError) else cause.__cause__
        )  # a TokenError's text includes its cause


def explanation(config: Config, server: str, error: Exception) -> str:
    """Return why a server cannot be reached: the setting to fix if there is one, or the cause."""
    cause = _first_refusal(config, server, error) or _cause(config, error)
    return f"{cause}: {MAY_BE_FULL}" if cause == os.strerror(errno.ECONNREFUSED) else cause


def _first_refusal(config: Config, server: str, error: Exception) -> str | None:
    refusals = (_refusal(config, server, cause) for cause in _chain(error))
    return next((refusal for refusal in refusals if refusal is not None), None)


def _cause(config: Config, error: Exception) -> str:
    *_, cause = (
        link for link in _chain(error) if isinstance(link, Exception)
    )  # not a time-out's CancelledError
    return _text(config, cause)


def _refusal(config: Config, server: str, error: BaseException) -> str | None:
    """Return a message that names the setting to fix if the error is a refusal; None for other errors."""
    protocol = f"{config.prefix}security_protocol: {config.security_protocol}"
    refusal = None
    match error:
        case ssl.SSLCertVerificationError():
            refusal = _untrusted(config, server, error)
        case ssl.SSLError(reason=str(reason)) if "ALERT" in reason:
            alert = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
            name = f"{config.prefix}ssl_certfile: {config.ssl_certfile or 'not set'}"
            refusal = f"{name}: {server} refuses the client certificate: {alert}"
        case ssl.SSLError():
            refusal = f"{protocol}: {server} does not speak TLS"
        case IncompleteReadError(expected=int(expected)) if expected >> 16 == _TLS_ALERT:
            refusal = f"{protocol}: {server} speaks TLS"
        case SaslAuthenticationFailed():
            refusal = f"{_login(config)}: {server} refuses the login"
        case UnsupportedSaslMechanismError():
            name = f"{config.prefix}sasl_mechanism: {config.sasl_mechanism}"
            refusal = f"{name}: {server} does not support it"
        case IllegalSaslStateError():
            wanted = "no login" if config.security_protocol.startswith("SASL") else "a login"
            refusal = f"{protocol}: {server} expects {wanted}"
        case TokenError(refused=True):
            refusal = str(error)
    return refusal


def _untrusted(config: Config, server: str, error: ssl.SSLCertVerificationError) -> str:
    reason, servers = error.verify_message, f"{config.prefix}bootstrap_servers"
    if error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        return f"{servers}: the certificate of {server} is for another host: {reason}"
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return f"{servers}: the certificate of {server} is not valid now: {reason}"
    authorities = config.ssl_cafile or "the system's authorities"
    return f"{config.prefix}ssl_cafile: {authorities}: cannot verify the certificate of {server}: {reason}"


def _login(config: Config) -> str:
    if config.sasl_mechanism == "OAUTHBEARER":
        return f"{config.prefix}sasl_oauthbearer_*"
    return f"{config.prefix}sasl_username, {config.prefix}{config.password_setting}"


def _text(config: Config, error: BaseException) -> str:
    if isinstance(error, ConnectionResetError) and config.security_protocol.endswith("SSL"):
        # Kafka resets TLS connections to a plaintext listener, as does a proxy whose upstream is down.
        setting = f"{config.prefix}security_protocol {config.security_protocol}"
        return f"resets the connection; does it speak TLS ({setting})?"
    return problem_of(error)
