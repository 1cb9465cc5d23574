"""Many at once, or one alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Shared and exclusive turns; who waits for an exclusive one goes before later shared ones."""

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._sharing = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Take a turn beside others."""
        async with self._gate:
            self._sharing += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._sharing -= 1
            if not self._sharing:
                self._empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Take a turn while nobody else has one."""
        async with self._gate:
            await self._empty.wait()
            yield
