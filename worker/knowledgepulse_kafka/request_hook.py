"""Change how a client of any kind sends its requests, for which aiokafka has no hook."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from knowledgepulse_kafka.private_parts import ADMIN_CLIENT, CONNECT, CONSUMER_CLIENT

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
    CONNECT.replace(plain, partial(_connected, CONNECT.of(plain), change, WeakSet()))
    return client


def plain_client(client: Any) -> AIOKafkaClient:
    """Return the client for single requests that a client of any kind uses."""
    if isinstance(client, AIOKafkaClient):
        return client
    if isinstance(client, AIOKafkaAdminClient):
        return ADMIN_CLIENT.of(client)
    return client.client if isinstance(client, AIOKafkaProducer) else CONSUMER_CLIENT.of(client)


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
