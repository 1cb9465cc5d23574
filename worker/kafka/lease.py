"""The lease under which this process may publish for its partitions.

A group reassigns a member's partitions once it has heard nothing from it for a session. The member may not
notice: it was suspended, or cannot reach the group's coordinator though it reaches everything else. It would
then publish what it had begun after its successor published the same records with scores of its own. So
nothing is sent unless the coordinator has answered recently. This is the lease of Gray and Cheriton (1989),
with the session as its term.
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
    """Held for some seconds after each request that the group's coordinator has answered.

    Args:
        seconds: its term, less than a session.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked = -math.inf
        self._waiting = 0

    def renew(self, asked: float) -> None:
        """Note that the coordinator knows this member.

        Args:
            asked: when the request was sent (``time.monotonic``): the session was renewed no earlier.
        """
        self._asked = max(self._asked, asked)

    async def hold(self) -> None:
        """Wait until the lease is held."""
        if self._is_held():
            return
        if not self._waiting:
            logger.warning(
                "nothing is sent: the group has not answered for %.1f s; after kafka.session_timeout it "
                "gives the partitions to others",
                time.monotonic() - self._asked,
            )
        self._waiting += 1
        try:
            while not self._is_held():  # noqa: ASYNC110 - time alone may end it, too
                await asyncio.sleep(_POLL)
        finally:
            self._waiting -= 1

    def _is_held(self) -> bool:
        return time.monotonic() - self._asked < self._seconds
