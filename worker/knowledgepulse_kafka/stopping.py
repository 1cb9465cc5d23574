"""Stop a consumer whose brokers are away.

aiokafka cancels its fetches and awaits them; the cancellation of one that waits to be sent again escapes, and
the rest stays open. A fetch that swallows the cancellation is awaited without end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from aiokafka import AIOKafkaConsumer

from knowledgepulse_kafka.private_parts import FETCHER, FETCHES_UNDER_WAY, FETCHING

# Seconds after which a fetch that has not ended is cancelled again.
_RETRY_PAUSE = 0.1

_Client = TypeVar("_Client")


def stoppable(client: _Client) -> _Client:
    """Return a client of any kind; if it is a consumer, it can be stopped whatever its fetches wait for."""
    if isinstance(client, AIOKafkaConsumer):
        client.stop = partial(_stop, client, client.stop)
    return client


async def _stop(consumer: AIOKafkaConsumer, stop: Callable[[], Awaitable[None]]) -> None:
    if (fetcher := FETCHER.of(consumer)) is not None:
        while running := {
            task for task in (FETCHING.of(fetcher), *FETCHES_UNDER_WAY.of(fetcher)) if not task.done()
        }:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=_RETRY_PAUSE)
        FETCHES_UNDER_WAY.of(fetcher).clear()
    await stop()
