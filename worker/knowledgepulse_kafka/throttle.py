"""The time for which brokers throttle a client, since it exceeds a quota (KIP-219)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

LONG_THROTTLE = 1.0
"""Seconds above which a throttle time is worth a message; shorter ones follow any burst."""

LONG_THROTTLE_MEMORY = 60.0
"""Seconds for which a client counts as throttled after the end of a long throttle time."""


class Throttle:
    """The throttle times that brokers have told a client.

    Args:
        on_throttled: called with each throttle time in seconds.
        clock: returns seconds.

    Attributes:
        deadline: when the records of a transaction must have been sent, by the clock; infinite without one.
    """

    def __init__(
        self,
        on_throttled: Callable[[float], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deadline = float("inf")
        self._on_throttled = on_throttled
        self._clock = clock
        self._until = self._long_until = self._long_requests_until = float("-inf")
        self._longest = 0.0

    def begin_sending(self, limit: float) -> None:
        """Set the deadline for sending a transaction's records, in seconds from now."""
        self.deadline = self._clock() + limit

    @property
    def remaining(self) -> float:
        """Seconds for which a broker still reads no request."""
        return max(0.0, self._until - self._clock())

    @property
    def recent(self) -> float:
        """The latest long throttle time in seconds; 0 some time after it ended."""
        return self._longest if self._clock() < self._long_until + LONG_THROTTLE_MEMORY else 0.0

    @property
    def is_of_requests(self) -> bool:
        """Whether a long throttle time was told for a request that no quota on bytes delays."""
        return self._clock() < self._long_requests_until + LONG_THROTTLE_MEMORY

    def note(self, seconds: float, *, has_records: bool = True) -> float:
        """Note a throttle time, and return when it ends, by the clock.

        Args:
            seconds: the throttle time.
            has_records: whether it was told for a request that has records, whose bytes have a quota.
        """
        until = self._clock() + seconds
        self._until = max(self._until, until)
        if seconds >= LONG_THROTTLE:
            self._longest, self._long_until = seconds, max(self._long_until, until)
            if not has_records:
                self._long_requests_until = until
        self._on_throttled(seconds)
        return until

    def seconds_until(self, end: float) -> float:
        """Return the seconds until a time by the clock; not more than 0 if it is over."""
        return end - self._clock()


@dataclass(frozen=True)
class Throttles:
    """The throttle times of a program's clients.

    Attributes:
        producer: those of what it publishes.
        consumer: those of what it reads.
    """

    producer: Throttle = field(default_factory=Throttle)
    consumer: Throttle = field(default_factory=Throttle)
