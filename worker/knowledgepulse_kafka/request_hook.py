"""Change how a client of any kind sends its requests, for which aiokafka has no hook."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient

_Client = TypeVar("_Client")
RequestSender = Callable[..., Awaitable[Any]]


def changing(client: _Client, change: Callable[[RequestSender], RequestSender]) -> _Client:
    """Return the client, whose connections from now on send in another way.

    Other clients of the process are not affected.

    Args:
        client: the client.
        change: returns the function that sends in place of a new connection's own.
    """
    plain = plain_client(client)
    # All requests pass through it.
    plain._get_conn = partial(_connected, plain._get_conn, change, WeakSet())  # noqa: SLF001
    return client


def plain_client(client: Any) -> AIOKafkaClient:
    """Return the client for single requests that a client of any kind uses."""
    if isinstance(client, AIOKafkaClient):
        return client
    return client.client if isinstance(client, AIOKafkaProducer) else client._client  # noqa: SLF001


async def _connected(
    connect: Any,
    change: Callable[[RequestSender], RequestSender],
    changed: WeakSet[Any],
    *arguments: Any,
    **options: Any,
) -> Any:
    connection = await connect(*arguments, **options)
    if connection is not None and connection not in changed:
        changed.add(connection)
        connection.send = change(connection.send)
    return connection
