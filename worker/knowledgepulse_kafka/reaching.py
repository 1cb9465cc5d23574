"""Reach brokers although addresses are dead, or have changed (KIP-601, KIP-899).

aiokafka waits for a connection as long as for an answer, 40 s. It tries the addresses of a name one after
another, and once it is connected, it asks only the brokers that it knows for their present addresses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from aiokafka import client as client_module
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection
from aiokafka.conn import collect_hosts as collected_hosts
from aiokafka.errors import KafkaConnectionError, KafkaError

from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_kafka.sending import plain_client

logger = logging.getLogger(__name__)

CONNECT_LIMIT = 4.0
"""Seconds for a connection to one of the addresses of a name."""

HANDSHAKE_LIMIT = 10.0
"""Seconds for the whole of a connection, with TLS, the versions of the broker and the login."""

# Seconds after which the next address of a name is tried as well (RFC 8305).
_NEXT_ADDRESS = 0.25

# Seconds for which servers that did not answer are tried last.
_AVOIDED = 60.0

_NEVER = float("-inf"), ""

_Client = TypeVar("_Client")

_failed: dict[tuple[str, int], tuple[float, str]] = {}
_logged = LogInterval()


def reaching(client: _Client) -> _Client:
    """Return a client of any kind that names dead servers, and notices new addresses of all brokers."""
    plain = plain_client(client)
    servers: Any = plain._bootstrap_servers  # noqa: SLF001
    plain.cluster._bootstrap_brokers = ClusterMetadata(bootstrap_servers=servers)._bootstrap_brokers  # noqa: SLF001
    plain.bootstrap = partial(_bootstrap, plain, plain.bootstrap, servers)
    plain._metadata_update = partial(_update, plain, plain._metadata_update)  # noqa: SLF001
    return client


async def _bootstrap(client: AIOKafkaClient, bootstrap: Callable[[], Awaitable[None]], servers: Any) -> None:
    """Connect to one of the servers; log those that did not answer, since nothing else tells.

    Raises:
        KafkaConnectionError: no server can be reached, or the one that answers names no broker. A refused
            token looks like this: aiokafka takes the refusal for an answer.
    """
    began = time.monotonic()
    await bootstrap()
    if not client.cluster._brokers:  # noqa: SLF001 - the public method names the servers then
        raise KafkaConnectionError("the bootstrap server names no broker")
    for host, port, _ in collected_hosts(servers, randomize=False):
        if _failed.get((host, port), _NEVER)[0] >= began and _logged.let_pass(f"{host}:{port}"):
            logger.warning("bootstrap server %s:%d cannot be reached; another one answers", host, port)


async def _update(
    client: AIOKafkaClient, update: Callable[..., Awaitable[bool]], metadata: ClusterMetadata, topics: Any
) -> bool:
    """Update the metadata; if no known broker answers, by the bootstrap servers."""
    if await update(metadata, topics):
        return True
    cluster = client.cluster
    known, cluster._brokers = cluster._brokers, {}  # noqa: SLF001 - without brokers, these are the servers
    try:
        return await update(metadata, topics)
    finally:
        cluster._brokers = cluster._brokers or known  # noqa: SLF001


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
                    factory, host, port, happy_eyeballs_delay=_NEXT_ADDRESS, **options
                )
        except TimeoutError:
            raise TimeoutError(f"{host}:{port} does not answer in {CONNECT_LIMIT:g} s") from None


class _Connection(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka is untyped
    _loop: Any

    async def connect(self) -> Any:
        loop: asyncio.AbstractEventLoop = self._loop
        self._loop = _Dialling(loop)
        try:
            async with asyncio.timeout(HANDSHAKE_LIMIT):
                return await super().connect()
        finally:
            self._loop = loop


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
        _failed[host, port] = time.monotonic(), str(error) or type(error).__name__
        raise
    _failed.pop((host, port), None)
    return connection


def _collect_hosts(servers: Any, randomize: bool = True) -> Any:
    """Return the bootstrap servers; those that did not answer lately are the last."""
    now = time.monotonic()
    return sorted(
        collected_hosts(servers, randomize),
        key=lambda host: now - _failed.get((host[0], host[1]), _NEVER)[0] < _AVOIDED,
    )


def failure_of(host: str, port: int) -> str:
    """Return why there is no connection to an address; empty if it was not tried."""
    return _failed.get((host, port), _NEVER)[1]


# The client has no hook: it looks both functions up by these names.
client_module.create_conn = create_conn
client_module.collect_hosts = _collect_hosts
