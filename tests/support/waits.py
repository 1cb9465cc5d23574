"""Waits of tests in whose process everything happens."""

from __future__ import annotations

import asyncio
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


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    spin = Spin()
    while not condition():
        await spin.turn()
