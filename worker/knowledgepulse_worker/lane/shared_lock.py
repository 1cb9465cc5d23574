"""A lock with shared and exclusive modes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedLock:
    """A lock that many tasks can hold in shared mode, or a single task exclusively.

    A task that waits for exclusive mode precedes later requests for shared mode.
    """

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._holders = 0
        self._free = asyncio.Event()
        self._free.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock in shared mode."""
        async with self._gate:
            self._holders += 1
            self._free.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._free.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lock exclusively."""
        async with self._gate:
            await self._free.wait()
            yield
