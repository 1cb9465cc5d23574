"""The event loop: uvloop's, and Kafka's connections that get along with it."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError

_send = AIOKafkaConnection.send


def use_uvloop() -> None:
    """Take uvloop from here on, in every thread."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    AIOKafkaConnection.send = _send_or_close


def _send_or_close(connection: AIOKafkaConnection, *args: Any, **kwargs: Any) -> Any:
    """Take a closed connection for one, so that the client connects again.

    Where the broker has just closed it, uvloop raises a RuntimeError; asyncio's own loop does not. The client
    takes that for a failure of its own, and sends no heartbeat any more (aio-libs/aiokafka#1038).
    """
    try:
        return _send(connection, *args, **kwargs)
    except RuntimeError as error:
        connection.close(reason=CloseReason.CONNECTION_BROKEN)
        raise KafkaConnectionError(f"{connection.host}:{connection.port}: {error}") from error
