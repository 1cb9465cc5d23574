"""Keep clients from creating topics.

By default, a broker creates a missing topic when a client asks for its metadata, with one partition and the
broker's settings. aiokafka's requests allow this, and it has no option against it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest

_Client = TypeVar("_Client")


def never_creating(client: _Client) -> _Client:
    """Return a client of any kind that creates no topic by asking for its metadata.

    Other clients of the process are not affected.
    """
    plain: Any = client
    if isinstance(client, AIOKafkaProducer):
        plain = client.client
    elif not isinstance(client, AIOKafkaClient):
        plain = client._client  # type: ignore[attr-defined]  # noqa: SLF001 - consumers and admin clients hide it
    plain._get_conn = partial(_connected, plain._get_conn)  # noqa: SLF001 - all requests pass through it
    return client


async def _connected(connect: Any, *arguments: Any, **options: Any) -> Any:
    connection = await connect(*arguments, **options)
    if connection is not None and not isinstance(connection.send, partial):
        connection.send = partial(_send, connection.send)
    return connection


def _send(send: Any, request: Any, expect_response: bool = True) -> Any:
    if isinstance(request, MetadataRequest):
        request = MetadataRequest(request._topics, allow_auto_topic_creation=False)  # noqa: SLF001
    return send(request, expect_response=expect_response)
