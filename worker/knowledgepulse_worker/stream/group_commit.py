"""Group commit: a transaction begins as soon as there is something to commit, but not too soon.

What is completed while a transaction is open belongs to the next one, as in a database that flushes its log
for several transactions at once. A transaction takes processor time of worker and brokers, whatever it
commits. So transactions are further apart while they take long, and furthest while records wait to be scored:
then processor time is scarce, and nobody gains by an output that leaves a backlog sooner than the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from knowledgepulse_worker.observe.lane_metrics import WaitedFor

PAUSE_FACTOR = 4
"""The least time between the begins of two transactions, as a multiple of the first one's duration."""

LOOK_INTERVAL = 0.01
"""Seconds after which to look again whether records still wait to be scored."""


class Lanes(Protocol):
    """What the lanes have to do."""

    @property
    def is_scoring(self) -> bool:
        """Whether a record was taken that is not scored yet."""
        ...

    @property
    def has_backlog(self) -> bool:
        """Whether records wait to be scored, other than those that are being scored."""
        ...

    @property
    def has_complete(self) -> bool:
        """Whether an output is complete, and not committed."""
        ...

    @property
    def is_throttled(self) -> bool:
        """Whether a quota throttles the producer."""
        ...


class GroupCommit:
    """Begins transactions, one after another.

    Args:
        interval: seconds from the begin of a transaction to the next while there is a backlog; half of it is
            the most while no record is being scored.
        least: seconds that are at least between two begins, unless that is longer than ``interval`` allows.
        lanes: tells what the lanes have to do.
        commit: commits what is complete; returns whether anything was.
        on_committed: called after each transaction with what its begin waited for.
    """

    def __init__(
        self,
        interval: float,
        least: float,
        *,
        lanes: Lanes,
        commit: Callable[[], Awaitable[bool]],
        on_committed: Callable[[WaitedFor], None] = lambda _: None,
    ) -> None:
        self._interval = interval
        self._least = least
        self._lanes = lanes
        self._commit = commit
        self._on_committed = on_committed
        self._completed, self._requested = asyncio.Event(), asyncio.Event()
        self._began = float("-inf")
        self._taken = 0.0
        self._is_held_up = False

    def completed(self) -> None:
        """Note that an output is complete."""
        self._completed.set()

    def requested(self) -> None:
        """Note that a lane waits for a commit, which then is not delayed."""
        self._requested.set()
        self._completed.set()

    async def run(self, is_wanted: Callable[[], bool]) -> None:
        """Commit whenever there is something to commit, as long as it is wanted."""
        time = asyncio.get_running_loop().time
        while is_wanted():
            await self._completed.wait()
            waited_for = await self._wait_until_due()
            self._requested.clear()
            self._began = time()
            is_committed = await self._commit()
            self._taken = time() - self._began
            self._is_held_up = not is_committed
            if is_committed:
                self._on_committed(waited_for)
            if not (self._lanes.has_complete or self._requested.is_set()):
                self._completed.clear()

    async def _wait_until_due(self) -> WaitedFor:
        time = asyncio.get_running_loop().time
        waited_for: WaitedFor = "output"
        while not self._requested.is_set():
            apart, reason = self._apart()
            left = self._began + apart - time()
            if left <= 0:
                return waited_for
            waited_for = reason
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_INTERVAL)):
                    await self._requested.wait()
        return "room"

    def _apart(self) -> tuple[float, WaitedFor]:
        """Return the seconds from the begin of the last transaction to the next, and why they are so many.

        What arrives during a slow transaction waits for the next one, which therefore follows at once; but
        while a lane is scoring, the lanes first get as much time as the transaction took.
        """
        lanes, interval, taken = self._lanes, self._interval, self._taken
        scoring = max(interval, taken + min(interval, taken))
        if self._is_held_up or lanes.is_throttled:
            return scoring, "brokers"
        if lanes.has_backlog:
            return scoring, "backlog"
        most = scoring if lanes.is_scoring else max(interval / 2, taken)
        if PAUSE_FACTOR * taken > self._least:
            return min(most, PAUSE_FACTOR * taken), "transaction"
        return min(most, self._least), "interval"
