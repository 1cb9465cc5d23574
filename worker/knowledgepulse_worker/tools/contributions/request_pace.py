"""How fast a registry may be asked, so that it never refuses: three refusals within an hour revoke the key.

A registry counts reads and writes of an agent apart, each in a bucket of ``X-RateLimit-Limit`` tokens that
fills up within a minute. Whoever waits before each request, the first one included, as long as a token takes
to come back, never empties the bucket, whatever was asked before and by whomever of the same process.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

Sleep = Callable[[float], Awaitable[None]]

MARGIN = 1.05
"""Clocks run differently."""

MINUTE = 60.0


class Pace:
    """The pace of one kind of request; ``limit``: a minute, until the registry says how many."""

    def __init__(self, limit: int, sleep: Sleep, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._remaining = limit
        self._sleep = sleep
        self._clock = clock
        self._last = clock()

    async def wait(self) -> None:
        """Wait for the turn of the next request."""
        wait = self._last + self._interval - self._clock()
        if wait > 0:
            await self._sleep(wait)
        self._last = self._clock()

    def told(self, headers: Mapping[str, str]) -> None:
        """Take over what the registry says about its limits; keep what it does not say."""
        limit = _number(headers.get("X-RateLimit-Limit"))
        if limit:
            self._limit = limit
            remaining = _number(headers.get("X-RateLimit-Remaining"))
            self._remaining = limit if remaining is None else remaining

    @property
    def _interval(self) -> float:
        """Seconds between two requests: the longer, the less others of the same agent have left over."""
        crowded = max(1.0, self._limit / (2 * (self._remaining + 1)))
        return MINUTE / self._limit * MARGIN * crowded


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
