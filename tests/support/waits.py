"""Waits of tests in whose process everything happens."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable

BUSY = 2.0
"""Seconds of CPU time that a wait may take. A wait spins, so no busy machine outlasts it."""


class Spin:
    """Turns of the loop until something has happened.

    Raises:
        AssertionError: it has not after :data:`BUSY`.
    """

    def __init__(self) -> None:
        self._until = time.process_time() + BUSY

    async def turn(self) -> None:
        """Let everything else go on for a turn."""
        assert time.process_time() < self._until, f"not after {BUSY:g} s of CPU time: is a wake-up lost?"
        await asyncio.sleep(0)


LIMIT = 120
"""Seconds that a wait for brokers may take."""


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, which may be awaitable and depend on brokers."""
    async with asyncio.timeout(LIMIT):
        while True:
            result = condition()
            if await result if inspect.isawaitable(result) else result:
                return
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    spin = Spin()
    while not condition():
        await spin.turn()
