"""End the process in time, even if a Kafka client does not close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

CLEANUP_LIMIT = 1.0
"""Seconds for the remaining tasks to end after cancellation."""


def run_in_time(work: Coroutine[Any, Any, None]) -> None:
    """Run like ``asyncio.run``, but abandon tasks that do not end when cancelled.

    While a broker is down, some of the client's tasks do not end, but the process must.
    """
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=CLEANUP_LIMIT))


async def close_within(limit: float, close: Callable[[], Awaitable[None]], what: str) -> None:
    """Close a resource within a time limit, since closing may wait forever while a broker is down.

    Args:
        limit: the seconds after which it is abandoned, with a warning.
        close: closes it.
        what: its name in the warning.
    """
    try:
        async with asyncio.timeout(limit):
            await close()
    except TimeoutError:
        logger.warning("%s has not ended in %g s and is abandoned", what, limit)
