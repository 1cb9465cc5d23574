"""A consumer stops whatever its fetches wait for."""

import asyncio
from contextlib import suppress

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher

from knowledgepulse_kafka.stopping import stoppable


class StartedFetcher(Fetcher):
    """The client's fetcher with given fetches under way."""

    def __init__(self, *fetches):
        self._closed = False
        self._fetch_waiters = set()
        self._fetch_task = asyncio.create_task(asyncio.Event().wait())
        self._pending_tasks = {asyncio.create_task(fetch) for fetch in fetches}


async def stopped(*fetches):
    """Stop a consumer with these fetches; return whether its connections are closed."""
    consumer = stoppable(AIOKafkaConsumer())
    closed = asyncio.Event()

    async def close():
        closed.set()

    consumer._client.close = close
    consumer._fetcher = StartedFetcher(*fetches)
    await asyncio.sleep(0)
    await consumer.stop()
    return closed.is_set()


async def test_a_fetch_that_waits_to_be_sent_again_does_not_keep_a_consumer_from_stopping():
    """Its CancelledError ended the worker, which was told to stop, with status 1 and a traceback."""
    assert await stopped(asyncio.sleep(3600), asyncio.sleep(3600))


async def test_a_fetch_that_swallows_its_cancellation_is_cancelled_again():
    async def swallow_one():
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    assert await stopped(swallow_one())
