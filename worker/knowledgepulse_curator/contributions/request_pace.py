"""The pace of requests at which a registry never refuses one; three refusals within an hour revoke the key.

A registry counts an agent's reads and writes separately, each in a bucket of ``X-RateLimit-Limit`` tokens
that refills within a minute. A process never empties the bucket if it waits before each request, including
the first one, for as long as one token takes to come back.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

SleepFunction = Callable[[float], Awaitable[None]]

MARGIN = 1.05
"""Factor on each wait, because clocks differ."""

MINUTE = 60.0


class Pace:
    """The pace of one kind of request.

    Args:
        limit: requests per minute until the registry states its limit.
        sleep: waits for some seconds.
        clock: returns the monotonic time.
    """

    def __init__(self, limit: int, sleep: SleepFunction, clock: Callable[[], float] = time.monotonic) -> None:
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
        """Adopt the limits in an answer's headers."""
        limit = _number(headers.get("X-RateLimit-Limit"))
        if limit:
            self._limit = limit
            remaining = _number(headers.get("X-RateLimit-Remaining"))
            self._remaining = limit if remaining is None else remaining

    @property
    def _interval(self) -> float:
        """Seconds between two requests: more if other processes of the agent have used up most tokens."""
        crowded = max(1.0, self._limit / (2 * (self._remaining + 1)))
        return MINUTE / self._limit * MARGIN * crowded


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
