"""Reach brokers although addresses are dead, or have changed (KIP-601, KIP-899).

aiokafka waits for a connection as long as for an answer, 40 s. It tries the bootstrap servers, and the
addresses of a name, one after another, and once it is connected, it asks only the brokers that it knows for
their present addresses.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from asyncio import IncompleteReadError
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection, CloseReason, OAuthAuthenticator, collect_hosts
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
)
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.metadata import MetadataRequest

from knowledgepulse_kafka.broker_requests import name_of
from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_kafka.private_parts import (
    BOOTSTRAP_BROKERS,
    BOOTSTRAP_SERVERS,
    BROKERS,
    CONNECT,
    CONNECTION_OPTIONS,
    LOOP,
    SYNCHRONIZE,
    SYNCHRONIZER,
    TOKEN_PROVIDER,
    UNANSWERED,
    UPDATE_METADATA,
)
from knowledgepulse_kafka.request_hook import plain_client

logger = logging.getLogger(__name__)

CONNECT_LIMIT = 4.0
"""Seconds for a connection to one of the addresses of a name."""

ANSWER_LIMIT = 8.0
"""Seconds for what a server answers at once, if it answers: its versions, and where the brokers are."""

HANDSHAKE_LIMIT = 10.0
"""Seconds for the whole of a connection, with TLS, the versions of the broker and the login."""

REGISTRATION_LIMIT = 10.0
"""Seconds for a server that answers, but names no broker, to name one.

The brokers of its cluster have yet to register, as at the start, or once they were suspended.
"""

_REGISTRATION_PAUSE = 0.1

# Seconds after which the next server, or the next address of a name, is tried as well (RFC 8305).
_NEXT_SERVER_PAUSE = 0.25

# Seconds for which servers that did not answer are tried last.
_AVOIDANCE_LIMIT = 60.0

# The first four bytes of an answer in HTTP, which the client takes for a length.
_HTTP = int.from_bytes(b"HTTP")

_Client = TypeVar("_Client")


class _Failure(NamedTuple):
    at: float
    error: Exception


# Of all clients, as what one finds spares the others, and the diagnosis, a wait.
_failed: dict[tuple[str, int], _Failure] = {}
_logged = LogInterval()


def address(host: str, port: int) -> str:
    """Return a server's address as ``kafka.bootstrap_servers`` takes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def problem_of(error: BaseException) -> str:
    """Return why a server cannot be reached, in a few words."""
    match error:
        case TimeoutError():
            problem = "no answer"
        case OSError(errno=int(number)) if number > 0:
            problem = os.strerror(number)
        case OSError(strerror=str(text)):
            problem = text
        case IncompatibleBrokerVersion():
            problem = "does not tell where the brokers are; is it the address of a controller (KRaft)?"
        case IncompleteReadError(expected=int(expected)) if expected == _HTTP:
            problem = "answers in HTTP, not as a broker"
        case IncompleteReadError():
            problem = "closes the connection"
        case KafkaError(args=(str(text),)):
            problem = text
        case _:
            problem = str(error) or type(error).__name__
    return problem


def reaching(client: _Client) -> _Client:
    """Return a client of any kind that names dead servers, and notices new addresses of all brokers."""
    plain = plain_client(client)
    servers: Any = BOOTSTRAP_SERVERS.of(plain)
    named = BOOTSTRAP_BROKERS.of(ClusterMetadata(bootstrap_servers=servers))
    BOOTSTRAP_BROKERS.replace(plain.cluster, named)
    CONNECT.replace_globals(plain, create_conn=create_conn)
    asking = set[asyncio.Task[Any]]()
    plain.bootstrap = partial(_bootstrap, plain, servers, asking)
    plain.close = partial(_close, plain.close, asking)
    UPDATE_METADATA.replace(plain, partial(_update, plain, UPDATE_METADATA.of(plain)))
    return client


async def _bootstrap(client: AIOKafkaClient, servers: Any, asking: set[asyncio.Task[Any]]) -> None:
    """Learn the brokers from the first of the servers that answers.

    Servers that turn out to be dead are logged, since nothing else tells.

    Args:
        client: the client.
        servers: the addresses of the servers.
        asking: holds the requests under way.

    Raises:
        KafkaConnectionError: no server answers with brokers.
    """
    asked = list[asyncio.Task[Any]]()
    try:
        metadata = await _first_answer(client, servers, asked)
    except BaseException:
        for request in asked:
            request.cancel()
        raise
    client.cluster.update_metadata(metadata)
    if SYNCHRONIZER.of(client) is None:  # as the client's own method
        SYNCHRONIZER.replace(client, asyncio.create_task(SYNCHRONIZE.of(client)()))
    for request in asked:
        asking.add(request)
        request.add_done_callback(asking.discard)
        request.add_done_callback(_name_if_dead)


async def _first_answer(client: AIOKafkaClient, servers: Any, asked: list[asyncio.Task[Any]]) -> Any:
    """Ask the servers one after another: the next one as soon as one fails, or has not answered in a moment.

    Args:
        client: the client.
        servers: the addresses of the servers.
        asked: the requests, to which those of this call are added.

    Raises:
        KafkaConnectionError: no server answers with brokers.
    """
    waiting = _by_last_failure(servers)
    while waiting or not all(request.done() for request in asked):
        if waiting:
            host, port, _ = waiting.pop(0)
            asked.append(asyncio.create_task(_brokers_of(client, host, port), name=address(host, port)))
        pending = [request for request in asked if not request.done()]
        await asyncio.wait(
            pending, timeout=_NEXT_SERVER_PAUSE if waiting else None, return_when=asyncio.FIRST_COMPLETED
        )
        for request in asked:
            if request.done() and request.exception() is None:
                return request.result()
    problems = "; ".join(f"{request.get_name()}: {_problem_of_request(request)}" for request in asked)
    raise KafkaConnectionError(f"no bootstrap server answers ({problems})")


async def _brokers_of(client: AIOKafkaClient, host: str, port: int) -> Any:
    """Return a server's answer to the question for the brokers.

    Raises:
        OSError: the server cannot be reached, or does not answer in time.
        KafkaError: the server refuses the client, or names no broker for :data:`REGISTRATION_LIMIT`.
    """
    options = {name: option.of(client) for name, option in CONNECTION_OPTIONS.items()}
    connection = await create_conn(host, port, **options)
    try:
        for _ in range(int(REGISTRATION_LIMIT / _REGISTRATION_PAUSE)):
            with suppress(UnregisteredError):
                return await brokers_of(connection)
            if _logged.let_pass(f"brokers of {address(host, port)}"):
                logger.warning("%s answers, but no broker is registered yet; waiting", address(host, port))
            await asyncio.sleep(_REGISTRATION_PAUSE)
        return await brokers_of(connection)
    finally:
        connection.close()


class UnregisteredError(KafkaConnectionError):  # type: ignore[misc]  # aiokafka is untyped
    """A server names no broker."""


async def brokers_of(connection: AIOKafkaConnection) -> Any:
    """Return the answer to the question for the brokers.

    Raises:
        TimeoutError: there is none.
        UnregisteredError: no broker is registered yet.
    """
    try:
        async with asyncio.timeout(ANSWER_LIMIT):
            metadata = await connection.send(MetadataRequest([]))
    except TimeoutError as error:
        _note(connection.host, connection.port, error)
        raise
    if not metadata.brokers:
        raise UnregisteredError("no broker is registered yet")
    return metadata


def _name_if_dead(asked: asyncio.Task[Any]) -> None:
    if not asked.cancelled() and asked.exception() is not None and _logged.let_pass(asked.get_name()):
        logger.warning(
            "bootstrap server %s cannot be reached (%s); another one answers",
            *(asked.get_name(), _problem_of_request(asked)),
        )


def _problem_of_request(failed: asyncio.Task[Any]) -> str:
    error = failed.exception()
    while error is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return "" if error is None else problem_of(error)


async def _close(close: Callable[[], Awaitable[None]], asking: set[asyncio.Task[Any]]) -> None:
    for request in (under_way := list(asking)):
        request.cancel()
    if under_way:
        await asyncio.wait(under_way)
    await close()


async def _update(
    client: AIOKafkaClient, update: Callable[..., Awaitable[bool]], metadata: ClusterMetadata, topics: Any
) -> bool:
    """Update the metadata; if no known broker answers, by the bootstrap servers."""
    if await update(metadata, topics):
        return True
    cluster = client.cluster
    known = BROKERS.of(cluster)
    BROKERS.replace(cluster, {})  # without brokers, these are the servers
    try:
        return await update(metadata, topics)
    finally:
        BROKERS.replace(cluster, BROKERS.of(cluster) or known)


class _Dialling:
    """The event loop, as a connection uses it; it tries all addresses of a name, within a limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Any, host: str, port: int, **options: Any) -> Any:
        try:
            async with asyncio.timeout(CONNECT_LIMIT):
                return await self._loop.create_connection(
                    factory, host, port, happy_eyeballs_delay=_NEXT_SERVER_PAUSE, **options
                )
        except TimeoutError:
            raise TimeoutError(f"{address(host, port)} does not answer in {CONNECT_LIMIT:g} s") from None


class _TokenAuthenticator(OAuthAuthenticator):  # type: ignore[misc]  # aiokafka is untyped
    async def step(self, payload: bytes | None) -> Any:
        """Raise the refusal of a token: a challenge (RFC 7628, 3.2.2), which aiokafka takes for success."""
        if payload:
            raise SaslAuthenticationFailed("the token is refused")
        return await super().step(payload)


class _Connection(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka is untyped
    async def connect(self) -> Any:
        loop = LOOP.of(self)
        LOOP.replace(self, _Dialling(loop))
        try:
            async with asyncio.timeout(HANDSHAKE_LIMIT):
                return await super().connect()
        finally:
            LOOP.replace(self, loop)

    def send(self, request: Any, expect_response: bool = True) -> Any:
        """Send a request; that for the versions, the first, has a limit of its own."""
        answer = super().send(request, expect_response)
        return asyncio.wait_for(answer, ANSWER_LIMIT) if isinstance(request, ApiVersionRequest) else answer

    def close(self, reason: CloseReason | None = None, exc: BaseException | None = None) -> Any:
        """Close the connection; if the broker did, tell at which request: it may not know that."""
        unanswered = [(request, answer) for _, request, answer in UNANSWERED.of(self) if request is not None]
        closed = super().close(reason, exc)
        if reason == CloseReason.CONNECTION_BROKEN and isinstance(exc, IncompleteReadError | OSError):
            for request, answer in unanswered:
                if not answer.cancelled() and isinstance(error := answer.exception(), KafkaConnectionError):
                    at = f"{name_of(request.API_KEY)} version {request.API_VERSION}"
                    error.args = (f"closes the connection at {at}",)
        return closed

    def authenticator_oauth(self) -> Any:
        return _TokenAuthenticator(sasl_oauth_token_provider=TOKEN_PROVIDER.of(self))


async def create_conn(host: str, port: int, **options: Any) -> AIOKafkaConnection:
    """Return a connection to a broker, as the client's own function does.

    Raises:
        OSError: the broker cannot be reached, or does not answer in time.
        KafkaError: the broker refuses the client.
    """
    connection = _Connection(host, port, **options)
    try:
        await connection.connect()
    except (OSError, KafkaError) as error:
        _note(host, port, error)
        raise
    _failed.pop((host, port), None)
    return connection


def _note(host: str, port: int, error: Exception) -> None:
    """Keep why an address cannot be reached, without the frames, which would keep its connection open."""
    _failed[host, port] = _Failure(time.monotonic(), error)
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__


def _by_last_failure(servers: Any) -> Any:
    """Return the bootstrap servers; those that did not answer lately are the last."""
    since = time.monotonic() - _AVOIDANCE_LIMIT
    return sorted(
        collect_hosts(servers),
        key=lambda host: failed_since(host[0], host[1], since) is not None,
    )


def failed_since(host: str, port: int, since: float = -math.inf) -> Exception | None:
    """Return why there is no connection to an address, if the last attempt failed after a time.

    Args:
        host: the host.
        port: the port.
        since: the time (``time.monotonic``).
    """
    failure = _failed.get((host, port))
    return None if failure is None or failure.at < since else failure.error
