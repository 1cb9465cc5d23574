"""The lease under which this process may publish for its partitions.

A group reassigns a member's partitions after a session timeout without a heartbeat. The member may not
notice: it was suspended, or can reach every broker but the group's coordinator. It could then still publish
records that its successor has already published with different scores. So nothing is sent unless the
coordinator has responded recently. This is the lease of Gray and Cheriton (1989), with the session as its
term.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time

logger = logging.getLogger(__name__)

_POLL = 0.05


def heartbeat_interval(session_timeout: float) -> float:
    """Return the seconds between two heartbeats to the group."""
    return session_timeout / 4


class Lease:
    """Held for a term after each request that the group's coordinator has answered.

    Args:
        seconds: the term, shorter than a session.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._renewed = -math.inf
        self._waiting = 0

    def renew(self, sent_at: float) -> None:
        """Start a new term, since the coordinator knows this member.

        Args:
            sent_at: when the request was sent (``time.monotonic``): the session was renewed no earlier.
        """
        self._renewed = max(self._renewed, sent_at)

    @property
    def is_held(self) -> bool:
        """Whether the coordinator has known this member recently enough."""
        return time.monotonic() - self._renewed < self._seconds

    @property
    def age(self) -> float:
        """Seconds since the coordinator has last answered; infinite before the first answer."""
        return time.monotonic() - self._renewed

    async def hold(self) -> None:
        """Wait until the lease is held."""
        if self.is_held:
            return
        if not self._waiting:
            logger.warning(
                "publishing is suspended: no response from the group for %.1f s; after kafka.session_timeout "
                "it reassigns the partitions",
                time.monotonic() - self._renewed,
            )
        self._waiting += 1
        try:
            while not self.is_held:  # noqa: ASYNC110 - the lease also expires by time alone
                await asyncio.sleep(_POLL)
        finally:
            self._waiting -= 1
